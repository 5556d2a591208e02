"""What schedules bring meets the guard as it comes in, whoever fires it."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from ade import ConflictOfInterest, Denied, Status, Task
from ade.accounts.model import SYSTEM, User
from ade.approvals import repository as approvals_repository
from ade.approvals.service import vote
from ade.approvals.submission import enqueue_guarded
from ade.settings import Settings
from ade.tasks import schedules
from ade.testing import TestClock
from ade.worker.maintenance import standard_jobs
from tests.conformance.backends import BACKENDS, sound
from tests.domain import (
    Decision,
    Definition,
    Payloads,
    Queue,
    Schedule,
    Stores,
    TaskQuery,
    TaskSettings,
    VoteRequest,
    Worker,
    add_user,
    read_rulebook,
)

HOUR = 3600
WIPE = Schedule(name="hourly", cron="0 * * * *", task_name="wipe", args=Raw(b'{"what":"disk"}'))
COUNT = Schedule(name="counting", cron="0 * * * *", task_name="count")
NEVER = {"do": "deny", "name": "wipe", "reason": "nothing is wiped here"}
ASK = {"do": "demand", "name": "wipe", "reason": "somebody should look"}


class Night:
    """Nobody is there but the duties on a timer."""

    def __init__(self, stores: Stores, clock: TestClock) -> None:
        self.stores, self.clock = stores, clock
        self.payloads = Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)
        made = standard_jobs(stores, self.payloads, Settings())
        [self._duty] = [duty for duty in made if duty.name == "schedules"]

    async def rules(self, *rules: dict[str, Any]) -> None:
        await approvals_repository.apply(self.stores, read_rulebook({"guard": list(rules)}), actor="root")

    async def passes(self, seconds: float = HOUR) -> None:
        self.clock.advance(seconds)
        await self._duty.perform()

    async def tasks(self) -> list[Task]:
        return list((await self.stores.tasks.find(TaskQuery(limit=50))).tasks)

    async def denials(self) -> list[tuple[str | None, object]]:
        events = await self.stores.events.read(0, 1_000)
        return [(event.actor, event.payload["name"]) for event in events if event.type == "guard.denied"]

    async def vote(self, task: Task, voter: str) -> Task:
        assert task.digest is not None
        ballot = VoteRequest(voter=voter, decision=Decision.APPROVE, approval=f"{task.id}.1", digest=task.digest)
        return await vote(self.stores, task.id, ballot)


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def night(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Night]:
    clock = TestClock()
    async with sound(await BACKENDS[request.param].open(tmp_path, clock)) as stores:
        for name in ("ada", "bob"):
            await add_user(stores, User(id=name, roles=frozenset({"reviewer"})))
        yield Night(stores, clock)


async def test_a_firing_that_is_denied_stores_nothing_and_the_next_has_its_turn(night: Night) -> None:
    await night.rules(NEVER)
    first = await schedules.put(night.stores, WIPE, actor="ada")
    await schedules.put(night.stores, COUNT)
    await night.passes()
    await night.passes(1)  # the duty comes again: nothing is due

    assert [task.name for task in await night.tasks()] == ["count"]
    assert await night.denials() == [("ada", "wipe")]
    after = await schedules.get(night.stores, "hourly")
    assert (after.next_at, after.last_task_id, after.author) == (first.next_at + HOUR * 1000, None, "ada")

    await night.rules()
    await night.passes()
    assert sorted(task.name for task in await night.tasks()) == ["count", "count", "wipe"]


async def test_a_firing_that_somebody_must_look_at_waits_and_its_author_cannot_approve_it(night: Night) -> None:
    await night.rules(ASK)
    await schedules.put(night.stores, WIPE, actor="ada")
    await night.passes()
    [task] = await night.tasks()
    assert (task.status, task.author_id) == (Status.REVIEWING, "ada")

    with pytest.raises(ConflictOfInterest):
        await night.vote(task, "ada")
    assert (await night.vote(task, "bob")).status is Status.PENDING
    await night.passes(1)
    assert len(await night.tasks()) == 1


async def test_only_what_a_rule_is_for_is_held(night: Night) -> None:
    large = Raw(b'{"what":"%s"}' % (b"x" * 200))  # kept beside the record
    await night.rules({**NEVER, "when": {"what": "xxx*"}}, {**ASK, "when": {"what": "disk"}})
    await schedules.put(night.stores, WIPE, actor="ada")
    await schedules.put(night.stores, Schedule(name="large", cron="0 * * * *", task_name="wipe", args=large))
    await schedules.put(night.stores, Schedule(name="free", cron="0 * * * *", task_name="wipe"))
    await night.passes()

    assert sorted((task.description, task.status) for task in await night.tasks()) == [
        ("schedule free", Status.PENDING),
        ("schedule hourly", Status.REVIEWING),
    ]
    assert await night.denials() == [(None, "wipe")]


async def test_a_firing_that_can_be_previewed_is_previewed_first_even_in_a_full_queue(night: Night) -> None:
    worker = Worker(id="w", hostname="h", pid=1, started_at=0, version="0")
    await night.stores.workers.register(worker, [Definition(name="wipe", has_preview=True)], 30_000)
    await night.stores.queues.configure(Queue(name="default", max_depth=1))
    await schedules.put(night.stores, WIPE, actor="ada")
    await night.passes()

    found = {task.name: task for task in await night.tasks()}
    assert found["wipe"].status is Status.SUBMITTED
    assert (found["wipe:preview"].status, found["wipe:preview"].source) == (Status.PENDING, SYSTEM)


async def test_a_firing_by_hand_is_judged_too(night: Night) -> None:
    await night.rules(NEVER)
    before = await schedules.put(night.stores, WIPE)
    keep = partial(enqueue_guarded, night.stores, night.payloads)
    with pytest.raises(Denied):
        await schedules.fire_now(night.stores, TaskSettings(), "hourly", keep, actor="bob")

    assert await night.tasks() == []
    assert await night.denials() == [("bob", "wipe")]
    assert await schedules.get(night.stores, "hourly") == before
