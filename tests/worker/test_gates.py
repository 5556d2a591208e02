"""A run asks people in the middle of its work: it ends there, and begins anew when they have agreed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from ade import Context, Status, SyncContext, Task
from ade.approvals import service as approvals_service
from ade.approvals.model import MAX_STEP_REQUESTS, Decision, Gate, GateState, Policy, PolicyRule, Review, Subject
from ade.tasks import service as tasks_service
from tests.domain import HandlerMode, User, UserChanges, VoteRequest, add_user, change_user
from tests.waiting import eventually
from tests.worker.harness import Workshop


def note(journal: str, word: str) -> None:
    """One line, written whole, from any process."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


async def in_the_loop(journal: str, ctx: Context) -> str:
    await ctx.once(f"first {ctx.task_id}", note, journal, "first")
    await ctx.hold("the second part", {"of": "two"}, reason="it is dangerous")
    note(journal, "second")
    return "done"


def elsewhere(journal: str, ctx: SyncContext) -> str:
    ctx.once(f"first {ctx.task_id}", note, journal, "first")
    ctx.hold("the second part", {"of": "two"}, reason="it is dangerous")
    note(journal, "second")
    return "done"


async def asks_often(count: int, ctx: Context) -> int:
    for number in range(count):
        await ctx.hold(f"step {number}")
    return count


async def asks_in_the_loop(ctx: Context) -> list[Any]:
    response = await ctx.hold("which one", {"of": "two"}, responses=True)
    return [bool(response), response.text, response.args, response.by]


def asks_elsewhere(ctx: SyncContext) -> list[Any]:
    response = ctx.hold("which one", {"of": "two"}, responses=True)
    return [bool(response), response.text, response.args, response.by]


class Office(Workshop):
    """A workshop with people: bob and cy review, root is the administrator."""

    async def open(self) -> None:
        for name, role in (("ada", "agent"), ("bob", "reviewer"), ("cy", "reviewer"), ("root", "admin")):
            await add_user(self.stores, User(id=name, roles=frozenset({role})))

    async def held(self, task: Task, but: str = "") -> Gate:
        """The gate at which it waits, once it waits at another than this one."""

        async def look() -> Gate | None:
            found = await self.get(task)
            gate = found.review.gate if found.review is not None and found.status is Status.REVIEWING else None
            return gate if gate is not None and gate.id != but else None

        return await eventually(look)

    async def vote(self, gate: Gate, voter: str = "bob", decision: Decision = Decision.APPROVE, **fields: Any) -> Task:
        ballot = VoteRequest(voter=voter, decision=decision, approval=gate.id, digest=gate.digest, **fields)
        return await approvals_service.vote(self.stores, gate.task_id, ballot)


@pytest.fixture
async def services(workshop: Workshop) -> Office:
    made = Office(workshop.stores)
    await made.open()
    return made


@pytest.fixture
async def office_anywhere(workshop_anywhere: Workshop) -> Office:
    made = Office(workshop_anywhere.stores)
    await made.open()
    return made


HANDLERS: list[tuple[Callable[..., Any], HandlerMode]] = [
    (in_the_loop, HandlerMode.ASYNC),
    (elsewhere, HandlerMode.THREAD),
    (elsewhere, HandlerMode.PROCESS),
]


@pytest.mark.parametrize(("function", "mode"), HANDLERS, ids=["async", "thread", "process"])
async def test_a_held_run_waits_without_a_worker_and_repeats_nothing(
    office_anywhere: Office, tmp_path: Path, function: Callable[..., Any], mode: HandlerMode
) -> None:
    services, journal = office_anywhere, tmp_path / "journal"
    services.handle(function, name="careful", mode=mode)
    async with services.worker():
        task = await services.enqueue("careful", {"journal": str(journal)}, author_id="ada")
        gate = await services.held(task)
        waiting = await services.get(task)

        assert (waiting.lease_until, waiting.worker_id, waiting.attempt) == (None, None, 0)
        assert (gate.step, gate.reason) == ("the second part", "it is dangerous")
        assert journal.read_text().split() == ["first"]
        await services.vote(gate)
        final = await services.final(task)

    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
    assert journal.read_text().split() == ["first", "second"]


ASKING: list[tuple[Callable[..., Any], HandlerMode]] = [
    (asks_in_the_loop, HandlerMode.ASYNC),
    (asks_elsewhere, HandlerMode.THREAD),
    (asks_elsewhere, HandlerMode.PROCESS),
]


@pytest.mark.parametrize(("function", "mode"), ASKING, ids=["async", "thread", "process"])
async def test_a_handler_gets_what_reviewers_respond(
    office_anywhere: Office, function: Callable[..., Any], mode: HandlerMode
) -> None:
    services = office_anywhere
    services.handle(function, name="asks", mode=mode)
    async with services.worker():
        words, edit = [await services.enqueue("asks", author_id="ada") for _ in range(2)]
        await services.vote(await services.held(words), decision=Decision.RESPOND, text="neither")
        first = await services.held(edit)
        await services.vote(first, decision=Decision.RESPOND, text="the third", args={"of": "three"})
        await services.vote(await services.held(edit, but=first.id), voter="cy")
        results = [(await services.final(task)).result for task in (words, edit)]

    assert [msgspec.json.decode(result or b"") for result in results] == [
        [False, "neither", None, "bob"],
        [True, "the third", {"of": "three"}, "bob"],
    ]


async def test_a_held_run_that_is_refused_never_goes_on(services: Office, tmp_path: Path) -> None:
    services.handle(in_the_loop)
    async with services.worker():
        task = await services.enqueue("in_the_loop", {"journal": str(tmp_path / "j")}, author_id="ada")
        await services.vote(await services.held(task), decision=Decision.REJECT)
        final = await services.final(task)

    assert final.status is Status.REJECTED
    assert (tmp_path / "j").read_text().split() == ["first"]


async def test_a_held_run_can_be_cancelled(services: Office, tmp_path: Path) -> None:
    services.handle(in_the_loop)
    async with services.worker():
        task = await services.enqueue("in_the_loop", {"journal": str(tmp_path / "j")})
        await services.held(task)
        await tasks_service.cancel(services.stores, task.id, "enough")

    found = await services.get(task)
    assert found.review is not None
    assert found.review.gate is not None
    assert (found.status, found.review.gate.state) == (Status.CANCELLED, GateState.CANCELLED)


async def test_every_step_is_asked_about_once_however_many_there_are(services: Office) -> None:
    services.handle(asks_often)
    async with services.worker():
        task = await services.enqueue("asks_often", {"count": 25}, author_id="ada")
        last = ""
        for _ in range(25):
            gate = await services.held(task, but=last)
            await services.vote(gate)
            last = gate.id
        final = await services.final(task)

    assert final.status is Status.COMPLETED
    kinds = await services.event_types(task)
    assert kinds.count("approval.requested") == 25


async def test_a_run_that_asks_without_end_fails(services: Office) -> None:
    services.handle(asks_often)
    policy = Policy(id="any", rules=(PolicyRule(needed=1, roles=frozenset({"reviewer"})),))
    answered = Gate(
        id="", task_id="", digest="", subject=Subject(name="x"), policy=policy, conflicts=frozenset(), opened_at=0
    )
    gates = [
        structs.replace(answered, id=f"x.{number}", step=f"earlier {number}", state=GateState.APPROVED)
        for number in range(MAX_STEP_REQUESTS + 1)
    ]
    final = await services.perform("asks_often", {"count": 1}, review=Review(gates=tuple(gates)), max_attempts=1)

    assert final.error is not None
    assert (final.status, final.error.type) == (Status.FAILED, "InvalidTask")


async def test_whoever_let_a_step_pass_must_still_be_there_when_it_goes_on(services: Office) -> None:
    services.handle(asks_often)
    async with services.worker():
        task = await services.enqueue("asks_often", {"count": 1}, author_id="ada")
        gate = await services.held(task)
    await services.vote(gate)
    await change_user(services.stores, "bob", UserChanges(is_active=False))
    async with services.worker():
        anew = await services.held(task, but=gate.id)
        await services.vote(anew, "cy")
        final = await services.final(task)

    assert final.status is Status.COMPLETED


async def test_the_glass_is_broken_for_a_step_too_and_for_one_after_the_other(services: Office) -> None:
    services.handle(asks_often)
    async with services.worker():
        task = await services.enqueue("asks_often", {"count": 2}, author_id="ada")
        last = ""
        for _ in range(2):
            last = (await services.held(task, but=last)).id
            now = services.stores.clock.now()
            await approvals_service.break_glass(services.stores, task.id, "fire", actor="root", authenticated_at=now)
        final = await services.final(task)

    assert final.status is Status.COMPLETED
    assert (await services.event_types(task)).count("approval.bypassed") == 2


async def stubborn(journal: str, ctx: Context) -> None:
    try:
        await ctx.hold("the dangerous part")
    except Exception:
        note(journal, "caught")
    note(journal, "went on")


async def test_a_handler_that_catches_everything_waits_all_the_same(services: Office, tmp_path: Path) -> None:
    services.handle(stubborn)
    async with services.worker():
        task = await services.enqueue("stubborn", {"journal": str(tmp_path / "j")}, author_id="ada")
        gate = await services.held(task)
        await services.vote(gate)
        final = await services.final(task)

    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
    assert (tmp_path / "j").read_text().splitlines() == ["went on"]  # once, and after people had agreed
