"""What a task did is undone: by itself when it fails, on demand, or not at all; and never what was completed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from ade import Ade, Status, Task
from ade.approvals import repository as approvals_repository
from ade.approvals.rollback import prepare_rollbacks
from ade.approvals.submission import replay
from ade.errors import IllegalTransition, NotPermitted, UnknownName
from ade.testing import TestKit, harness
from ade.worker.sweep import settle_reported
from tests.domain import (
    ClaimRequest,
    Payloads,
    Succeeded,
    TaskFunction,
    TaskQuery,
    User,
    add_user,
    lose_lease,
    read_rulebook,
    settle,
)

LEASE_S = 30


class Farm:
    """`move` moves something, and can be undone; it fails when told to."""

    def __init__(self, kit: TestKit, move: TaskFunction[[str, bool], None]) -> None:
        self.kit, self.stores, self.move = kit, kit.stores, move
        self.done: list[str] = []

    async def claimed(self) -> Task:
        """By a worker that will not be heard of again."""
        request = ClaimRequest(
            worker_id="doomed", run_ids=["r" * 32], names=frozenset({self.move.name}), lease_ms=LEASE_S * 1000
        )
        [task] = await self.stores.tasks.claim(request)
        return task

    async def rollbacks(self) -> list[Status]:
        page = await self.stores.tasks.find(TaskQuery(name=f"{self.move.name}:rollback", limit=10))
        return [task.status for task in page.tasks]


@asynccontextmanager
async def _farm() -> AsyncIterator[Farm]:
    app = Ade("memory://")

    @app.task(name="move", max_attempts=1)
    async def move(what: str, fails: bool) -> None:
        made.done.append(f"moved {what}")
        if fails:
            raise RuntimeError("it broke")

    @move.rollback
    async def undo(what: str, fails: bool) -> None:
        made.done.append(f"moved {what} back")

    @app.task(name="plain")
    async def plain() -> None: ...

    async with harness(app) as kit:
        made = Farm(kit, move)
        yield made
        assert await made.stores.maintenance.check_invariants() == []


@pytest.fixture
async def farm() -> AsyncIterator[Farm]:
    async with _farm() as made:
        yield made


@pytest.mark.parametrize(
    ("rollback", "done"),
    [("automatic", ["moved it", "moved it back"]), ("manual", ["moved it"]), ("none", ["moved it"])],
)
async def test_a_failure_is_undone_where_that_was_asked_for(farm: Farm, rollback: Any, done: list[str]) -> None:
    task = await farm.move.with_options(rollback=rollback).enqueue("it", True)
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.FAILED, done)


async def test_what_never_began_is_not_undone(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic", author="ada", locks=["db:main"]).enqueue("it", False)
    rules = {"locks": [{"names": ["db:*"], "roles": ["admin"]}]}
    await approvals_repository.apply(farm.stores, read_rulebook(rules), actor="root")
    await farm.kit.drain()

    found = await task.get()
    assert found.error is not None
    assert (found.status, found.error.type) == (Status.FAILED, "LockNotPermitted")
    assert (farm.done, await farm.rollbacks()) == ([], [])


async def test_what_went_well_is_not_undone_by_itself(farm: Farm) -> None:
    await farm.move.with_options(rollback="automatic").enqueue("it", False)
    await farm.kit.finish()

    assert (farm.done, await farm.rollbacks()) == (["moved it"], [])


async def test_people_undo_it_once_however_often_they_ask(farm: Farm) -> None:
    await add_user(farm.stores, User(id="bob", roles=frozenset({"operator"})))
    await add_user(farm.stores, User(id="cyd", roles=frozenset({"reviewer"})))
    task = await farm.move.with_options(author="ada").enqueue("it", False)
    with pytest.raises(IllegalTransition):
        await task.roll_back(by="ada")  # it has not run
    await farm.kit.drain()
    with pytest.raises(NotPermitted):
        await task.roll_back(by="cyd")
    first, again = await task.roll_back(by="ada"), await task.roll_back(by="bob")
    await farm.kit.drain()

    assert first == again
    assert farm.done == ["moved it", "moved it back"]


async def test_what_nobody_can_undo_is_said_to_be_so(farm: Farm) -> None:
    task = await farm.kit.app.enqueue("plain")
    await farm.kit.drain()

    with pytest.raises(UnknownName):
        await task.roll_back()


async def test_a_worker_that_died_in_its_last_attempt_is_undone(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic").enqueue("it", True)
    await farm.claimed()
    await farm.kit.advance(LEASE_S + 1)
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.FAILED, ["moved it back"])


async def test_a_failure_that_a_worker_in_another_language_hands_in_is_undone(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic").enqueue("it", True)
    said = b'{"error": {"kind": "raised", "type": "Broken", "message": "it broke"}}'
    await settle_reported(farm.stores, Payloads(farm.stores.blobs), [(await farm.claimed(), said)])
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.FAILED, ["moved it back"])


async def test_a_deadline_that_passes_while_its_worker_is_dead_is_undone(farm: Farm) -> None:
    deadline = datetime.fromtimestamp(farm.kit.clock.now() / 1000 + LEASE_S + 10, UTC)
    enqueued = farm.move.with_options(rollback="automatic", max_attempts=3, deadline=deadline)
    task = await enqueued.enqueue("it", False)
    await farm.claimed()
    await farm.kit.advance(LEASE_S + 1)
    assert await task.status() is Status.STALLED
    await farm.kit.advance(30)
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.FAILED, ["moved it back"])


async def test_whoever_dies_between_the_rollback_and_the_failure_leaves_nothing_undone(farm: Farm) -> None:
    """The rollback is there and waits; the next one to judge finds it and makes no second."""
    task = await farm.move.with_options(rollback="automatic").enqueue("it", True)
    claimed = await farm.claimed()
    failing = lose_lease(claimed, now=farm.kit.clock.now())
    await prepare_rollbacks(farm.stores, Payloads(farm.stores.blobs), [failing])
    assert await farm.kit.drain() == 0  # it waits
    await farm.kit.advance(LEASE_S + 1)
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.FAILED, ["moved it back"])
    assert await farm.rollbacks() == [Status.COMPLETED]


async def test_the_rollback_of_what_was_completed_after_all_does_nothing(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic").enqueue("it", True)
    claimed = await farm.claimed()
    now = farm.kit.clock.now()
    await prepare_rollbacks(farm.stores, Payloads(farm.stores.blobs), [lose_lease(claimed, now=now)])
    await farm.stores.tasks.commit(settle(claimed, Succeeded(Raw(b"null")), now=now, randomness=0.5))
    await farm.kit.drain()

    assert (await task.status(), farm.done) == (Status.COMPLETED, [])
    assert await farm.rollbacks() == [Status.COMPLETED]


async def test_a_second_life_has_a_rollback_of_its_own(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic").enqueue("it", True)
    await farm.kit.drain()
    await replay(farm.stores, Payloads(farm.stores.blobs), task.id)
    await farm.kit.drain()

    assert farm.done == ["moved it", "moved it back"] * 2


@pytest.mark.parametrize("name", ["*:rollback", "move"])
async def test_a_freeze_stops_automatic_rollbacks_too_and_that_is_logged(farm: Farm, name: str) -> None:
    await farm.move.with_options(rollback="automatic").enqueue("it", True)
    rules = {"guard": [{"do": "deny", "name": name, "reason": "freeze", "at": ["enqueue"]}]}
    await approvals_repository.apply(farm.stores, read_rulebook(rules), actor="root")
    await farm.kit.drain()

    assert farm.done == ["moved it"]
    denied = [event for event in await farm.stores.events.read(0, 100) if event.type == "guard.denied"]
    assert [event.payload["name"] for event in denied] == [f"{farm.move.name}:rollback"]


async def test_what_the_guard_denied_before_it_began_needs_no_undoing(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic").enqueue("cow", False)
    rules = {"guard": [{"name": "move", "at": ["run"], "do": "deny", "reason": "not today"}]}
    await approvals_repository.apply(farm.stores, read_rulebook(rules), actor=None)
    await farm.kit.drain()

    assert (await task.status()) is Status.FAILED
    assert (farm.done, await farm.rollbacks()) == ([], [])


async def test_a_rollback_by_itself_and_one_on_request_are_the_same(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic", author="ada").enqueue("it", True)
    await farm.kit.drain()
    await task.roll_back(by="ada")
    await farm.kit.drain()

    assert farm.done == ["moved it", "moved it back"]
    assert len(await farm.rollbacks()) == 1


async def test_a_prepared_rollback_that_did_nothing_does_not_stand_in_for_a_requested_one(farm: Farm) -> None:
    task = await farm.move.with_options(rollback="automatic", author="ada").enqueue("it", False)
    claimed = await farm.claimed()
    lost = lose_lease(claimed, now=farm.kit.clock.now())
    await prepare_rollbacks(farm.stores, Payloads(farm.stores.blobs), [lost])
    done = settle(claimed, Succeeded(Raw(b"null")), now=farm.kit.clock.now(), randomness=0.5)
    await farm.stores.tasks.commit(done)  # the worker was alive after all
    await farm.kit.drain()
    assert farm.done == []

    await task.roll_back(by="ada")
    await farm.kit.drain()
    assert farm.done == ["moved it back"]
