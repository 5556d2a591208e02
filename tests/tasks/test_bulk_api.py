"""The same for all tasks that a filter finds: counted first, bounded, and safe to repeat."""

import pytest

from ade import Status
from ade.errors import IllegalTransition, InvalidFilter, InvalidTask, NotPermitted, UnknownTask
from ade.tasks.api import create, dead_letters, tasks
from ade.tasks.api.requests import (
    BulkAction,
    DeadLetters,
    Discard,
    DiscardDeadLetters,
    ListDeadLetterGroups,
    ListDeadLetters,
    RetryTask,
    TaskFilter,
)
from ade.tasks.bulk import BulkPreview, BulkReport
from ade.tasks.decisions import UnknownFingerprint
from tests.domain import NewTask, Role
from tests.server.operations import LOCAL, Operations
from tests.tasks.finished_tasks import failed


async def test_a_bulk_cancel_is_counted_first_and_then_done_in_steps(ops: Operations) -> None:
    ids = [(await create.create_task(ops.services, LOCAL, NewTask(name="greet", tags=["old"]))).id for _ in range(5)]
    other = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    action = BulkAction(action="cancel", filter=TaskFilter(tag="old"), reason="no need", limit=3)

    assert await dead_letters.preview_bulk_action(ops.services, LOCAL, action) == BulkPreview(count=5)
    first = await dead_letters.run_bulk_action(ops.services, LOCAL, action)
    second = await dead_letters.run_bulk_action(ops.services, LOCAL, action)
    third = await dead_letters.run_bulk_action(ops.services, LOCAL, action)

    assert first == BulkReport(changed=tuple(ids[:3]), is_more=True, next=first.next)
    assert first.next is not None
    assert second == BulkReport(changed=tuple(ids[3:]))
    assert third == BulkReport(changed=())
    found = await ops.services.stores.tasks.get([*ids, other.id])
    assert [task and task.status for task in found] == [Status.CANCELLED] * 5 + [Status.PENDING]
    assert {task.reason for task in found if task is not None} == {"no need", None}


@pytest.mark.parametrize("action", ["retry", "discard"])
async def test_failed_tasks_are_dealt_with_once(ops: Operations, action: str) -> None:
    letters = [await failed(ops) for _ in range(3)]
    await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    body = BulkAction(action=action, filter=TaskFilter(name="greet"), reason="seen")  # type: ignore[arg-type]
    assert (await dead_letters.preview_bulk_action(ops.services, LOCAL, body)).count == 3
    assert (await dead_letters.run_bulk_action(ops.services, LOCAL, body)).changed == tuple(task.id for task in letters)
    assert await dead_letters.run_bulk_action(ops.services, LOCAL, body) == BulkReport(changed=())


async def test_a_filter_that_says_nothing_reaches_nothing(ops: Operations) -> None:
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    for run in (dead_letters.preview_bulk_action, dead_letters.run_bulk_action):
        with pytest.raises(InvalidFilter):
            await run(ops.services, LOCAL, BulkAction(action="cancel", filter=TaskFilter()))
    over = BulkAction(action="cancel", filter=TaskFilter(status=[Status.COMPLETED]))
    assert (await dead_letters.preview_bulk_action(ops.services, LOCAL, over)).count == 0
    assert await dead_letters.run_bulk_action(ops.services, LOCAL, over) == BulkReport(changed=())
    assert await ops.services.stores.tasks.get([made.id]) == [made]


async def test_nothing_is_discarded_without_a_reason(ops: Operations) -> None:
    letter = await failed(ops)
    with pytest.raises(InvalidTask):
        await dead_letters.run_bulk_action(
            ops.services, LOCAL, BulkAction(action="discard", filter=TaskFilter(name="greet"), reason=" ")
        )
    assert await ops.services.stores.tasks.get([letter.id]) == [letter]


async def test_an_agent_acts_on_no_filter(ops: Operations) -> None:
    agent = await ops.account("agent-a", Role.AGENT)
    for operation in ("run_bulk_action", "preview_bulk_action", "replay_dead_letters", "discard_dead_letter"):
        with pytest.raises(NotPermitted):
            ops.request(agent, operation)


async def test_dead_letters_are_listed_by_what_went_wrong(ops: Operations) -> None:
    same = [(await failed(ops, f"no luck with {number}")).id for number in range(4)]
    other = await failed(ops, "quite another thing")
    groups = await dead_letters.list_dead_letter_groups(ops.services, LOCAL, ListDeadLetterGroups())
    assert [(group.count, group.newest[0]) for group in groups.items] == [(4, same[-1]), (1, other.id)]

    found: list[str] = []
    query = ListDeadLetters(fingerprint=groups.items[0].fingerprint, limit=2)
    while True:
        page = await dead_letters.list_dead_letters(ops.services, LOCAL, query)
        assert len(page.items) <= 2
        found += [task.id for task in page.items]
        if page.next is None:
            break
        query = ListDeadLetters(fingerprint=groups.items[0].fingerprint, limit=2, cursor=page.next)
    assert found == same[::-1]
    everything = await dead_letters.list_dead_letters(ops.services, LOCAL, ListDeadLetters())
    assert [task.id for task in everything.items] == [other.id, *same[::-1]]


async def test_a_group_is_replayed_in_steps_and_the_rest_discarded(ops: Operations) -> None:
    same = [(await failed(ops, f"no luck with {number}")).id for number in range(3)]
    other = await failed(ops, "quite another thing")
    [group, _] = (await dead_letters.list_dead_letter_groups(ops.services, LOCAL, ListDeadLetterGroups())).items
    wanted = DeadLetters(fingerprint=group.fingerprint, limit=2)

    first = await dead_letters.replay_dead_letters(ops.services, LOCAL, wanted)
    second = await dead_letters.replay_dead_letters(ops.services, LOCAL, wanted)
    assert (first.changed, first.is_more) == (tuple(same[:2]), True)
    assert (second.changed, second.is_more) == (tuple(same[2:]), False)
    with pytest.raises(UnknownFingerprint):
        await dead_letters.replay_dead_letters(ops.services, LOCAL, wanted)
    rest = await dead_letters.discard_dead_letters(
        ops.services, LOCAL, DiscardDeadLetters(everything=True, reason="too old")
    )
    assert rest.changed == (other.id,)
    assert (await dead_letters.list_dead_letters(ops.services, LOCAL, ListDeadLetters())).items == []


@pytest.mark.parametrize("wrong", [DeadLetters(), DeadLetters(name="greet", everything=True)])
async def test_which_dead_letters_must_be_said(ops: Operations, wrong: DeadLetters) -> None:
    with pytest.raises(InvalidFilter):
        await dead_letters.replay_dead_letters(ops.services, LOCAL, wrong)


async def test_one_dead_letter_is_edited_and_replayed_or_discarded(ops: Operations) -> None:
    one, two = await failed(ops), await failed(ops)
    again = await dead_letters.replay_dead_letter(ops.services, LOCAL, one.id, RetryTask(args={"name": "Bob"}))
    gone = await dead_letters.discard_dead_letter(ops.services, LOCAL, two.id, Discard(reason="seen"))
    assert (again.arguments(), gone.discarded, gone.reason) == ({"name": "Bob"}, True, "seen")
    with pytest.raises(IllegalTransition):
        await dead_letters.discard_dead_letter(ops.services, LOCAL, one.id, Discard(reason="seen"))
    with pytest.raises(UnknownTask):
        await dead_letters.replay_dead_letter(ops.services, LOCAL, "x", RetryTask())


async def test_a_page_of_large_dead_letters_has_fewer(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tasks, dead_letters):
        monkeypatch.setattr(module, "LARGEST_PAGE", 10_000)
    sizes = [3_000, 3_000, 20_000, 10, *[3_000] * 6]
    ids = [(await failed(ops, args={"text": "x" * size})).id for size in sizes]
    seen, cursor = list[str](), None
    while True:
        query = ListDeadLetters(limit=8, cursor=cursor)
        page = await dead_letters.list_dead_letters(ops.services, LOCAL, query)
        *others, _largest = sorted(len(task.args) for task in page.items)
        assert sum(others) <= 15_000
        seen += [task.id for task in page.items]
        if (cursor := page.next) is None:
            break
    assert seen == ids[::-1]
