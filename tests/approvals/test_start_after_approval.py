"""From an approval to the run: by hand, in a window, in time; and nothing that somebody slipped in."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw, structs

from ade import Status, Task
from ade.approvals import service as approvals_service
from ade.approvals.errors import ApprovalNotGood, ConflictOfInterest, GateClosed, TaskCannotRun
from ade.approvals.run_gates import check_before_run
from ade.approvals.service import sweep_reviews
from ade.approvals.submission import replay
from ade.errors import IllegalTransition, InvalidTask, NotPermitted
from ade.failures import FailureKind
from ade.settings import runtime
from tests.approvals.scene import APPROVE, ONE, REJECT, TWO, Scene
from tests.domain import Change, ChangePrecondition, Failed, GateState, Payloads, TaskQuery, Verb, VoteRequest, cancel

HOUR = 3_600.0


async def overwrite(shop: Scene, task: Task, **fields: Any) -> None:
    """Change a record as no decision of ADE would: somebody got at the store."""
    after = structs.replace(task, version=task.version + 1, **fields)
    names = frozenset(fields)
    forged = Change(
        verb=Verb.REVIEW,
        before=task,
        after=after,
        fields=names,
        guard=ChangePrecondition(version=task.version),
        events=(),
    )
    await shop.stores.tasks.commit(forged)


async def test_arguments_that_were_changed_behind_the_back_of_everybody_do_not_run(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked("plan a")
    approved = await shop.vote(task, "bob")
    await overwrite(shop, approved, args=Raw(b'{"what": "plan b"}'))
    await shop.kit.drain()

    assert shop.deployed == []
    assert await task.status() is Status.REVIEWING
    review = (await task.get()).review
    states = [] if review is None else [gate.state for gate in review.gates]
    assert states == [GateState.REVOKED, GateState.OPEN]


async def test_a_role_that_is_lost_after_the_vote_does_not_undo_a_low_risk(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked()
    await shop.vote(task, "bob")
    await shop.change("bob", roles=frozenset({"viewer"}))
    await shop.kit.drain()

    assert shop.deployed == ["shop"]


async def test_a_task_that_is_started_by_hand_waits_for_that(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked(start="by_hand")
    await shop.vote(task, "bob")
    await shop.kit.drain()
    assert (await task.status(), shop.deployed) == (Status.APPROVED, [])

    with pytest.raises(NotPermitted):
        await task.start(by="bob")
    await task.start(by="ada")
    await shop.kit.drain()
    assert shop.deployed == ["shop"]


async def test_no_hand_starts_what_is_not_good_any_more(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked(start="by_hand")
    await shop.vote(task, "bob")
    await shop.change("bob", is_active=False)

    with pytest.raises(ApprovalNotGood):
        await task.start(by="ada")


@pytest.mark.parametrize("start", ["at_once", "by_hand"])
async def test_an_approval_that_nobody_uses_is_none_any_more(shop: Scene, start: str) -> None:
    await shop.rules({**ONE, "valid_for": "1h"})
    task = await shop.asked(start=start)
    await shop.vote(task, "bob")
    await shop.kit.advance(HOUR)
    await shop.kit.drain()

    assert shop.deployed == []
    assert await task.status() is (Status.REJECTED if start == "by_hand" else Status.REVIEWING)


async def test_a_window_opens_and_closes(shop: Scene) -> None:
    await shop.rules(ONE)
    now = datetime.fromtimestamp(shop.kit.clock.now() / 1000, UTC)
    window = now + timedelta(hours=1), now + timedelta(hours=2)
    early, late = await shop.asked("early", window=window), await shop.asked("late", window=window)
    await shop.vote(early, "bob")
    await shop.kit.drain()
    assert shop.deployed == []
    await shop.kit.advance(HOUR)
    await shop.kit.drain()
    assert shop.deployed == ["early"]

    shop.kit.clock.advance(HOUR)
    with pytest.raises(TaskCannotRun, match="its window is over"):
        await shop.vote(late, "bob")
    await shop.kit.drain()
    assert shop.deployed == ["early"]
    assert await late.status() is Status.FAILED


@pytest.mark.parametrize("act", ["vote", "break glass", "start", "sweep"])
async def test_nothing_starts_after_its_deadline(shop: Scene, act: str) -> None:
    await shop.rules(ONE)
    task = await shop.asked(deadline=60, start="by_hand")
    if act == "start":
        await shop.vote(task, "bob")
    shop.kit.clock.advance(60)
    now = shop.kit.clock.now()
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "vote": lambda: shop.vote(task, "bob"),
        "break glass": lambda: approvals_service.break_glass(
            shop.stores, task.id, "fire", actor="root", authenticated_at=now
        ),
        "start": lambda: task.start(by="ada"),
    }
    if act in acts:
        with pytest.raises(TaskCannotRun, match="its deadline passed"):
            await acts[act]()
    else:
        await sweep_reviews(shop.stores, Payloads(shop.stores.blobs))
    after = await task.get()
    assert after.error is not None
    assert (after.status, after.error.kind) == (Status.FAILED, FailureKind.DEADLINE_PASSED)
    assert (await shop.gate(task)).state is GateState.CANCELLED


async def test_a_submitted_task_past_its_deadline_asks_no_one(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.app.enqueue("deploy", {"what": "shop"}, author="ada", deadline=60)
    assert await task.status() is Status.SUBMITTED
    shop.kit.clock.advance(60)
    await shop.kit.drain()  # its preview
    await sweep_reviews(shop.stores, Payloads(shop.stores.blobs))
    assert await task.status() is Status.FAILED
    assert "approval.requested" not in await shop.types(task)


async def test_a_draft_past_its_deadline_is_edited_before_it_is_submitted(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.app.draft("deploy", {"what": "shop"}, author="ada", deadline=60)
    shop.kit.clock.advance(60)
    with pytest.raises(TaskCannotRun, match="edit the draft"):
        await task.submit(by="ada")
    assert await task.status() is Status.DRAFT


async def test_a_run_that_is_claimed_after_its_deadline_does_not_start(shop: Scene) -> None:
    """Claimed before a sweep has seen it, with and without an approval."""
    await shop.rules(ONE)
    handle = await shop.asked(deadline=60)
    await shop.vote(handle, "bob")
    shop.kit.clock.advance(60)
    plain = await shop.app.enqueue("publish", {"page": "home"}, author="ada", deadline=60)
    for task in (handle, plain):
        late = structs.replace(await task.get(), deadline=shop.kit.clock.now())
        refused = await check_before_run(shop.stores, Payloads(shop.stores.blobs), late)
        assert isinstance(refused, Failed)
        assert (refused.error.kind, refused.has_begun) == (FailureKind.DEADLINE_PASSED, False)


async def test_two_sweepers_take_each_step_once(shop: Scene) -> None:
    steps = [{"after": "10m", "users": ["root"]}, {"after": "20m", "roles": ["dba"]}]
    await shop.rules({**ONE, "rules": [{"needed": 1, "users": ["bob"]}], "steps": steps})
    task = await shop.asked()
    payloads = Payloads(shop.stores.blobs)
    for _ in range(2):
        shop.kit.clock.advance(600)
        await asyncio.gather(*(sweep_reviews(shop.stores, payloads) for _ in range(4)))

    told = [event.payload["step"] async for event in task.events() if event.type == "approval.escalated"]
    assert told == [0, 1]
    await shop.vote(task, "cy")  # asked by the second step
    await shop.kit.drain()
    assert shop.deployed == ["shop"]


async def test_a_gate_that_nobody_can_pass_asks_others_at_once_and_never_opens_by_itself(shop: Scene) -> None:
    await shop.rules({**ONE, "rules": [{"needed": 1, "users": ["ada"]}], "steps": [{"after": "6h", "users": ["cy"]}]})
    task = await shop.asked()
    gate = await shop.gate(task)
    assert (gate.state, gate.early) == (GateState.OPEN, (0,))
    assert "approval.escalated" in await shop.types(task)

    await shop.change("cy", is_active=False)
    await shop.kit.advance(HOUR)
    assert (await shop.gate(task)).state is GateState.BLOCKED
    assert (await shop.types(task)).count("approval.blocked") == 1
    await shop.change("cy", is_active=True)
    await shop.kit.advance(1)
    assert (await shop.gate(task)).state is GateState.OPEN
    await shop.vote(task, "cy")
    await shop.kit.drain()
    assert shop.deployed == ["shop"]


async def test_a_blocked_gate_expires_like_any_other(shop: Scene) -> None:
    await shop.rules({**ONE, "rules": [{"needed": 1, "users": ["ada"]}], "expires_after": "1h"})
    task = await shop.asked()
    assert (await shop.gate(task)).state is GateState.BLOCKED
    await shop.kit.advance(HOUR)

    assert (await task.status(), shop.deployed) == (Status.REJECTED, [])


async def test_one_key_is_one_task_with_one_preview(shop: Scene) -> None:
    await shop.rules(ONE)
    first, again = await shop.asked(key="only one"), await shop.asked(key="only one")
    await shop.vote(first, "bob")
    await shop.kit.finish()

    assert first == again
    assert shop.deployed == ["shop"]
    page = await shop.stores.tasks.find(TaskQuery(limit=10))
    assert {task.status for task in page.tasks} == {Status.COMPLETED}


async def test_an_author_is_the_same_however_the_name_is_spelled(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked(author="ADA")

    with pytest.raises(ConflictOfInterest):
        await shop.vote(task, "ada", APPROVE)


async def test_what_was_bypassed_is_judged_afterwards_by_others(shop: Scene) -> None:
    await shop.rules(TWO)
    task = await shop.asked()
    now = shop.kit.clock.now()
    await approvals_service.break_glass(shop.stores, task.id, "fire", actor="root", authenticated_at=now)
    await shop.kit.drain()
    [later, _] = (await task.get()).review.gates  # type: ignore[union-attr]  # it has one

    def ballot(voter: str) -> VoteRequest:
        return VoteRequest(voter=voter, decision=REJECT, approval=later.id, digest=later.digest)

    with pytest.raises(ConflictOfInterest):
        await approvals_service.vote(shop.stores, task.id, ballot("root"))
    judged = await approvals_service.vote(shop.stores, task.id, ballot("bob"))
    assert judged.review is not None
    assert judged.review.gates[0].state is GateState.REJECTED
    assert (judged.status, shop.deployed) == (Status.COMPLETED, ["shop"])


async def test_the_glass_is_broken_for_one_digest_alone(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked()
    now = shop.kit.clock.now()
    bypassed = await approvals_service.break_glass(shop.stores, task.id, "fire", actor="root", authenticated_at=now)
    await overwrite(shop, bypassed, args=Raw(b'{"what": "something else"}'))
    await shop.kit.drain()

    assert (await task.status(), shop.deployed) == (Status.REVIEWING, [])


async def test_what_was_bypassed_and_found_wrong_does_not_run_again(shop: Scene) -> None:
    await shop.rules({**ONE, "names": ["blunder"]})
    tried: list[int] = []

    @shop.app.task(name="blunder", max_attempts=1)
    async def blunder() -> None:
        tried.append(1)
        raise RuntimeError("it broke")

    task = await blunder.with_options(approval="one", author="ada").enqueue()
    now, payloads = shop.kit.clock.now(), Payloads(shop.stores.blobs)
    await approvals_service.break_glass(shop.stores, task.id, "fire", actor="root", authenticated_at=now)
    await shop.kit.drain()
    assert await task.status() is Status.FAILED
    [later, _] = (await task.get()).review.gates  # type: ignore[union-attr]  # it has one
    ballot = VoteRequest(voter="bob", decision=REJECT, approval=later.id, digest=later.digest)
    await approvals_service.vote(shop.stores, task.id, ballot)
    await replay(shop.stores, payloads, task.id)
    await shop.kit.drain()

    assert (await task.status(), tried) == (Status.REVIEWING, [1])


async def test_what_passed_by_itself_and_was_changed_then_is_put_before_people(shop: Scene) -> None:
    await shop.rules({**ONE, "names": ["note"], "auto_approve": "low"})
    await runtime.switch(shop.stores, "auto_approve_low_risk", True, actor="root")
    noted: list[str] = []

    @shop.app.task(name="note")
    async def note(what: str) -> None:
        noted.append(what)

    task = await note.with_options(approval="one", author="ada").enqueue("harmless")
    passed = (await task.get()).risk
    assert passed is not None
    assert (passed["auto_approvable"], passed["assessed_by"]) == (True, "ade-risk/1")
    await overwrite(shop, await task.get(), args=Raw(b'{"what": "harmful"}'))
    await shop.kit.drain()

    assert (await task.status(), noted) == (Status.REVIEWING, [])


@pytest.mark.parametrize("act", ["vote", "break glass"])
async def test_a_vote_between_the_failure_of_a_dependency_and_the_sweep_is_refused(shop: Scene, act: str) -> None:
    """The vote applies what the task wants then, so that no one else votes on it either."""
    await shop.rules(ONE)
    first = await shop.app.enqueue("publish", {"page": "home"}, author="ada", delay=60)
    handle = await shop.asked(after=[first.id])
    dropped = cancel(await first.get(), "not needed", now=shop.kit.clock.now())
    await shop.stores.tasks.commit(dropped)  # as by a process that is killed before it looks at what waits
    assert await handle.status() is Status.REVIEWING

    voting, now = shop.vote(handle, "bob"), shop.kit.clock.now()
    if act == "break glass":
        voting.close()
        voting = approvals_service.break_glass(shop.stores, handle.id, "fire", actor="root", authenticated_at=now)
    with pytest.raises(TaskCannotRun, match=f"waits for {first.id}, which did not complete"):
        await voting
    after = await handle.get()
    assert after.status is Status.CANCELLED
    gate = await shop.gate(handle)
    assert (gate.state, gate.votes) == (GateState.CANCELLED, ())
    with pytest.raises(GateClosed, match="dependency failed"):
        await shop.vote(handle, "bob")


async def test_an_approval_survives_another_priority_and_start(shop: Scene) -> None:
    await shop.rules(ONE)
    task = await shop.asked()
    with pytest.raises(IllegalTransition, match="is reviewing"):
        await task.reschedule(priority=0)
    approved = await shop.vote(task, "bob")
    moved = await task.reschedule(priority="urgent", delay=600)
    assert (moved.digest, moved.review, moved.status) == (approved.digest, approved.review, Status.PENDING)
    await shop.kit.drain()
    assert shop.deployed == []
    await task.reschedule(delay=0)
    await shop.kit.drain()
    assert len(shop.deployed) == 1
    assert await task.status() is Status.COMPLETED


async def test_a_task_does_not_leave_the_window_that_was_approved(shop: Scene) -> None:
    await shop.rules(ONE)
    now = datetime.fromtimestamp(shop.kit.clock.now() / 1000, UTC)
    task = await shop.asked(window=(now + timedelta(hours=1), now + timedelta(hours=2)))
    approved = await shop.vote(task, "bob")
    for start in (timedelta(0), timedelta(minutes=59), timedelta(hours=2), timedelta(days=3)):
        with pytest.raises(InvalidTask, match="was approved for"):
            await task.reschedule(run_at=now + start)
    assert await task.get() == approved
    await shop.kit.drain()
    assert shop.deployed == []
    await task.reschedule(run_at=now + timedelta(minutes=90))
    await shop.kit.advance(3_600)
    await shop.kit.drain()
    assert shop.deployed == []
    await shop.kit.advance(1_800)
    await shop.kit.drain()
    assert len(shop.deployed) == 1
