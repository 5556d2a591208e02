"""Dead letters by what they have in common, and what can be done with all of them."""

from functools import partial

import pytest

from ade import Status
from ade.approvals.submission import replay
from ade.errors import InvalidTask
from ade.tasks import dead_letters
from ade.tasks.bulk import ReplayOne
from tests.domain import Payloads, Stores, TaskPage, TaskQuery
from tests.tasks.queue_driver import QueueDriver


def one(stores: Stores) -> ReplayOne:
    return partial(replay, stores, Payloads(stores.blobs))


async def test_the_same_mistake_is_one_group_whatever_varies_in_it(queue: QueueDriver, stores: Stores) -> None:
    first = await queue.dead_letter("no user 17 in 'berlin'")
    queue.clock.advance(60)
    second = await queue.dead_letter("no user 4711 in 'bern'")
    await queue.dead_letter("disk full")

    [users, disk] = await dead_letters.groups(stores)

    assert (users.count, users.pattern, users.error_type) == (2, "no user <n> in <text>", "Oops")
    assert users.newest == (second.id, first.id)
    assert (users.first_at, users.last_at) == (first.finished_at, second.finished_at)
    assert disk.count == 1


async def test_a_group_can_be_replayed_without_the_others(queue: QueueDriver, stores: Stores) -> None:
    users = [await queue.dead_letter(f"no user {number}") for number in range(3)]
    other = await queue.dead_letter("disk full")
    [group, _] = await dead_letters.groups(stores)

    tried, _ = await dead_letters.replay_all(stores, same_as=group.fingerprint, actor="ada", replay_one=one(stores))

    assert set(tried.changed) == {task.id for task in users}
    assert (await queue.get(users[0])).status is Status.PENDING
    assert (await queue.get(other)).status is Status.FAILED


async def test_a_filter_and_a_limit_narrow_a_bulk_replay(queue: QueueDriver, stores: Stores) -> None:
    for _ in range(3):
        await queue.dead_letter(queue="mail")
    await queue.dead_letter(queue="other")

    tried, _ = await dead_letters.replay_all(stores, TaskQuery(queue="mail"), limit=2, replay_one=one(stores))

    assert len(tried.changed) == 2
    assert (await dead_letters.groups(stores))[0].count == 2


async def test_more_than_a_page_is_replayed(
    queue: QueueDriver, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_PAGE", 2)
    dead = [await queue.dead_letter() for _ in range(5)]

    tried, _ = await dead_letters.replay_all(stores, replay_one=one(stores))

    assert set(tried.changed) == {task.id for task in dead}
    assert tried.moved_on == ()


async def test_a_search_from_outside_examines_a_limited_number_and_takes_turns(
    queue: QueueDriver, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_BUDGET", 2)
    monkeypatch.setattr(dead_letters, "_PAGE", 2)
    first = await queue.dead_letter(queue="mail")
    for _ in range(9):
        await queue.dead_letter(queue="other")
    queries, find = list[TaskQuery](), stores.tasks.find

    async def noted(query: TaskQuery) -> TaskPage:
        queries.append(query)
        return await find(query)

    monkeypatch.setattr(stores.tasks, "find", noted)
    mail = TaskQuery(queue="mail")

    assert await dead_letters.groups(stores, mail, most=4) == []  # the newest four are others
    assert [query.budget for query in queries] == [2, 2]
    assert [group.newest for group in await dead_letters.groups(stores, mail, most=50)] == [(first.id,)]


async def test_discarded_letters_leave_the_list_and_stay_on_record(queue: QueueDriver, stores: Stores) -> None:
    dead = await queue.dead_letter()

    with pytest.raises(InvalidTask, match="give a reason"):
        await dead_letters.discard_all(stores, "")
    tried, _ = await dead_letters.discard_all(stores, "obsolete", actor="ada")

    assert tried.changed == (dead.id,)
    assert await dead_letters.groups(stores) == []
    kept = await queue.get(dead)
    assert (kept.status, kept.discarded, kept.reason) == (Status.FAILED, True, "obsolete")
