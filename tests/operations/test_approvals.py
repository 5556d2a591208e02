"""Approvals over the operations: what waits, all about one, and what people do about it."""

import msgspec
import pytest

from ade.accounts.model import Permission, Role, UnknownAccount
from ade.approvals import api as approvals_api
from ade.approvals.api import (
    AmendApproval,
    AnswerApprovals,
    BatchItem,
    BreakGlass,
    DelegateApproval,
    DismissRequest,
    GetApprovalStats,
    ListApprovals,
    NewComment,
    RevokeApproval,
    SnoozeApproval,
)
from ade.approvals.errors import DigestMismatch, GateClosed, NotEligible, ReauthenticationNeeded, UnknownApproval
from ade.approvals.model import Decision, GateState
from ade.approvals.views import ApprovalView
from ade.errors import InvalidArguments, InvalidTask, NotPermitted, UnknownTask
from ade.server.wire_format import from_wire, to_wire
from ade.settings import runtime
from ade.tasks.api.requests import GetTask
from ade.tasks.api.tasks import get_task
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Worker
from tests.operations.conftest import LOCAL, Desk
from tests.operations.people import HIGH, PASSWORD, TWO, answer, by, council, digest_of, held, through_token

ABSENT = "01900000-0000-7000-8000-000000000000"


async def waiting_for(desk: Desk, name: str, **more: object) -> list[str]:
    query = ListApprovals(**more)  # type: ignore[arg-type]
    found = await approvals_api.list_approvals(desk.services, await by(desk, name, "list_approvals"), query)
    return [item.task_id for item in found.items]


async def test_what_waits_is_listed_for_who_may_answer_and_for_all(desk: Desk) -> None:
    await council(desk)
    later, first = await held(desk, priority=5), await held(desk, priority=1)

    assert await waiting_for(desk, "bob") == [first.id, later.id]
    assert await waiting_for(desk, "ada") == []
    assert await waiting_for(desk, "ada", mine=False) == [first.id, later.id]
    everybody = await approvals_api.list_approvals(desk.services, LOCAL, ListApprovals())
    assert [item.task_id for item in everybody.items] == [first.id, later.id]  # there is no account `tester`


async def test_a_long_list_is_cut_into_pages(desk: Desk) -> None:
    await council(desk)
    ids = [(await held(desk, priority=number)).id for number in range(3)]
    request = await by(desk, "bob", "list_approvals")
    first = await approvals_api.list_approvals(desk.services, request, ListApprovals(limit=2))
    rest = await approvals_api.list_approvals(desk.services, request, ListApprovals(limit=2, cursor=first.next))
    assert [item.task_id for page in (first, rest) for item in page.items] == ids
    assert rest.next is None


async def test_one_is_shown_with_all_that_counts(desk: Desk) -> None:
    await council(desk)
    task = await held(desk, description="a greeting")
    seen = await approvals_api.get_approval(desk.services, await by(desk, "bob", "get_approval"), task.id)

    assert (seen.author, seen.description, seen.status) == ("ada", "a greeting", Status.REVIEWING)
    assert msgspec.json.decode(seen.args) == {"name": "Ada"}
    assert seen.review.gates[0].may_answer == ["bob", "cy"]
    assert seen.stats is not None
    assert seen.stats.pending == 1
    sent = msgspec.json.decode(msgspec.json.encode(to_wire(seen)))
    assert sent["review"]["gates"][0]["digest"] == digest_of(task)
    assert from_wire(to_wire(seen), ApprovalView) == seen


async def test_large_arguments_are_shown_whole(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    form = AmendApproval(digest=digest_of(task), args={"name": "x" * 300_000})
    await approvals_api.amend_approval(desk.services, await by(desk, "bob", "amend_approval"), task.id, form)
    seen = await approvals_api.get_approval(desk.services, LOCAL, task.id)
    assert msgspec.json.decode(seen.args) == {"name": "x" * 300_000}


async def test_an_answer_counts_for_exactly_what_was_seen(desk: Desk) -> None:
    await council(desk, TWO)
    task = await held(desk)
    bob = await by(desk, "bob", "respond_to_approval")
    with pytest.raises(DigestMismatch):
        await answer(desk, bob, task, digest="f" * 64)
    first = await answer(desk, bob, task, digest=digest_of(task)[:8])
    assert (first.task.status, first.state, len(first.missing)) == (Status.REVIEWING, GateState.OPEN, 1)
    again = await answer(desk, bob, task)
    assert again.task.version == first.task.version

    second = await answer(desk, await by(desk, "cy", "respond_to_approval"), task)
    assert (second.task.status, second.state, second.missing) == (Status.PENDING, GateState.APPROVED, [])
    votes = second.task.review.gates[0].votes if second.task.review else ()
    assert [(vote.voter, vote.via) for vote in votes] == [("bob", "api"), ("cy", "api")]


async def test_who_answers_on_a_local_store_is_noted_as_such(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    local = type(LOCAL)(actor="cli:bob", author="BOB")
    after = await answer(desk, local, task, Decision.REJECT, reason="not today")
    assert after.task.status is Status.REJECTED
    assert after.task.review is not None
    assert [(vote.voter, vote.via) for vote in after.task.review.gates[0].votes] == [("bob", "cli")]


async def test_changes_are_asked_for_with_a_reason(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    bob = await by(desk, "bob", "respond_to_approval")
    with pytest.raises(InvalidTask, match="which changes"):
        await answer(desk, bob, task, Decision.REQUEST_CHANGES, reason=" ")
    request = await answer(desk, bob, task, Decision.REQUEST_CHANGES, reason="say hello")
    assert (request.task.status, request.state) == (Status.DRAFT, GateState.CHANGES_REQUESTED)

    form = DismissRequest(voter="Bob", reason="hello is optional")
    with pytest.raises(NotPermitted):
        await by(desk, "cy", "dismiss_request")
    root = await by(desk, "root", "dismiss_request")
    dismissed = await approvals_api.dismiss_request(desk.services, root, task.id, form)
    assert dismissed.status is Status.REVIEWING


async def test_a_closed_gate_takes_no_answer(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    await answer(desk, await by(desk, "bob", "respond_to_approval"), task)
    cy = await by(desk, "cy", "respond_to_approval")
    with pytest.raises(GateClosed):
        await answer(desk, cy, task, Decision.REJECT)
    with pytest.raises(UnknownApproval):
        await answer(desk, cy, task, approval=f"{task.id}.7")
    with pytest.raises(UnknownApproval):
        await answer(desk, cy, task, approval=f"{ABSENT}.1")
    with pytest.raises(GateClosed):
        await answer(desk, cy, task, approval=f"{task.id}.1")


async def test_what_is_no_task_is_not_found(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    for wrong in (ABSENT, "a{b}", f"{task.id}.1", "x" * 900):
        with pytest.raises(UnknownTask):
            await approvals_api.get_approval(desk.services, LOCAL, wrong)
        with pytest.raises(UnknownTask):
            await approvals_api.revoke_approval(desk.services, LOCAL, wrong, RevokeApproval(reason="x"))


async def test_a_high_risk_takes_a_password_given_just_now(desk: Desk) -> None:
    await council(desk)
    task = await held(desk, **HIGH)
    now = desk.clock.now()
    for request in (
        await by(desk, "bob", "respond_to_approval"),
        await by(desk, "bob", "respond_to_approval", confirmed_at=now - 300_001),
        await through_token(desk, "bob", "respond_to_approval"),
    ):
        with pytest.raises(ReauthenticationNeeded):
            await answer(desk, request, task)
    fresh = await by(desk, "bob", "respond_to_approval", confirmed_at=now - 1_000)
    assert (await answer(desk, fresh, task)).state is GateState.APPROVED


async def test_the_password_may_come_with_the_answer(desk: Desk) -> None:
    await council(desk)
    task = await held(desk, **HIGH)
    after = await answer(desk, await through_token(desk, "bob", "respond_to_approval"), task, password=PASSWORD)
    assert after.state is GateState.APPROVED


async def test_many_are_answered_each_by_itself(desk: Desk) -> None:
    await council(desk)
    good, gone, risky, other = [await held(desk), await held(desk), await held(desk, **HIGH), await held(desk)]
    cy = await by(desk, "cy", "respond_to_approval")
    await answer(desk, cy, gone, Decision.REJECT)
    form = AnswerApprovals(
        decision="approve",
        items=[
            BatchItem(task_id=good.id, digest=digest_of(good)[:12]),
            BatchItem(task_id="a{b}:c", digest="f" * 64),
            BatchItem(task_id=gone.id, digest=digest_of(gone)),
            BatchItem(task_id=risky.id, digest=digest_of(risky)),
            BatchItem(task_id=other.id, digest="f" * 64),
            BatchItem(task_id=other.id, digest=digest_of(other), approval=f"{other.id}.1"),
        ],
        password=PASSWORD,
    )
    bob = await by(desk, "bob", "respond_to_approvals")
    done = await approvals_api.respond_to_approvals(desk.services, bob, form)
    told = [(one.task_id, one.code or one.status) for one in done.items]
    assert told == [
        (good.id, Status.PENDING),
        ("a{b}:c", "unknown_task"),
        (gone.id, "gate_closed"),
        (risky.id, "not_permitted"),
        (other.id, "digest_mismatch"),
        (other.id, Status.PENDING),
    ]


async def test_many_at_once_can_be_switched_off(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    await runtime.switch(desk.services.stores, "batch_approvals", False, actor="root")
    form = AnswerApprovals(decision="approve", items=[BatchItem(task_id=task.id, digest=digest_of(task))])
    with pytest.raises(NotPermitted, match="batch_approvals"):
        await approvals_api.respond_to_approvals(desk.services, await by(desk, "bob", "respond_to_approvals"), form)
    assert (await get_task(desk.services, LOCAL, task.id, GetTask())).version == task.version


async def test_somebody_else_answers_for_this_one(desk: Desk) -> None:
    await council(desk, {"id": "bobs", "rules": [{"needed": 1, "users": ["bob"]}]})
    task = await held(desk)
    cy = await by(desk, "cy", "respond_to_approval")
    with pytest.raises(NotEligible):
        await answer(desk, cy, task)
    bob = await by(desk, "bob", "delegate_approval")
    made = await approvals_api.delegate_approval(desk.services, bob, task.id, DelegateApproval(to="CY"))
    assert (made.delegator, made.delegate, made.task_id) == ("bob", "cy", task.id)
    assert await approvals_api.get_delegation(desk.services, LOCAL, made.id) == made

    after = await answer(desk, cy, task, for_whom="Bob")
    assert after.state is GateState.APPROVED


async def test_a_reviewer_mends_a_task_and_others_answer(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    bob = await by(desk, "bob", "amend_approval")
    with pytest.raises(InvalidTask):
        await approvals_api.amend_approval(desk.services, bob, task.id, AmendApproval(digest=digest_of(task)))
    form = AmendApproval(digest=digest_of(task), args={"name": "Eve"}, description="better", reason="a slip")
    mended = await approvals_api.amend_approval(desk.services, bob, task.id, form)
    assert (mended.status, mended.arguments(), mended.description) == (Status.REVIEWING, {"name": "Eve"}, "better")
    assert await waiting_for(desk, "bob") == []
    assert await waiting_for(desk, "cy") == [task.id]


async def test_arguments_that_do_not_fit_change_nothing(desk: Desk) -> None:
    await council(desk)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    worker = Worker(id="w", hostname="h", pid=1, started_at=desk.clock.now(), version="0", names=("greet",))
    await desk.services.stores.workers.register(worker, [Definition(name="greet", schema=schema)], 60_000)
    task = await held(desk)
    form = AmendApproval(digest=digest_of(task), args={"name": 7})
    with pytest.raises(InvalidArguments):
        await approvals_api.amend_approval(desk.services, await by(desk, "bob", "amend_approval"), task.id, form)
    assert (await get_task(desk.services, LOCAL, task.id, GetTask())).version == task.version


async def test_what_is_put_off_comes_back(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    bob = await by(desk, "bob", "snooze_approval")
    put_off = await approvals_api.snooze_approval(desk.services, bob, task.id, SnoozeApproval(seconds=60))
    assert (put_off.account, put_off.until) == ("bob", desk.clock.now() + 60_000)
    assert (await waiting_for(desk, "bob"), await waiting_for(desk, "cy")) == ([], [task.id])
    desk.clock.advance(61)
    assert await waiting_for(desk, "bob") == [task.id]


async def test_anybody_who_works_here_may_say_something(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    agent = await desk.account("helper", Role.AGENT)
    form = NewComment(text="the name is right")
    said = await approvals_api.comment_on_approval(
        desk.services, desk.request(agent, "comment_on_approval"), task.id, form
    )
    assert said.review is not None
    assert [(each.by, each.text) for each in said.review.comments] == [("helper", "the name is right")]
    assert said.review.gate is not None
    assert said.review.gate.votes == ()


async def test_an_approval_is_taken_back_by_who_gave_it_or_an_admin(desk: Desk) -> None:
    await council(desk)
    task = await held(desk, start="by_hand")
    await answer(desk, await by(desk, "bob", "respond_to_approval"), task)
    form = RevokeApproval(reason="on second thoughts")
    with pytest.raises(NotPermitted):
        await approvals_api.revoke_approval(desk.services, await by(desk, "cy", "revoke_approval"), task.id, form)
    narrow = await through_token(desk, "root", "revoke_approval", Permission.VOTE, Permission.READ)
    with pytest.raises(NotPermitted, match="through this token"):
        await approvals_api.revoke_approval(desk.services, narrow, task.id, form)
    bob = await by(desk, "bob", "revoke_approval")
    assert (await approvals_api.revoke_approval(desk.services, bob, task.id, form)).status is Status.REVIEWING


async def test_the_glass_is_broken_with_a_password(desk: Desk) -> None:
    await council(desk)
    task = await held(desk)
    with pytest.raises(NotPermitted):
        await by(desk, "bob", "break_glass")
    root = await by(desk, "root", "break_glass")
    with pytest.raises(ReauthenticationNeeded):
        await approvals_api.break_glass(desk.services, root, task.id, BreakGlass(reason="fire"))
    form = BreakGlass(reason="fire", password=PASSWORD)
    assert "horse" not in repr(form)
    done = await approvals_api.break_glass(desk.services, root, task.id, form)
    assert done.status is Status.PENDING
    assert done.review is not None
    assert done.review.bypass is not None
    assert done.review.bypass.by == "root"


async def test_figures_tell_what_waits_and_what_was_answered(desk: Desk) -> None:
    await council(desk)
    task, _ = await held(desk), await held(desk)
    await answer(desk, await by(desk, "bob", "respond_to_approval"), task)
    seen = await approvals_api.get_approval_stats(desk.services, LOCAL, GetApprovalStats())
    assert (seen.waiting.count, seen.ended.outcomes["approved"]) == (1, 1)  # type: ignore[index]
    msgspec.json.encode(to_wire(seen))
    own = await approvals_api.get_account_approval_stats(desk.services, LOCAL, "Bob")
    assert (own.account, own.pending, own.approved) == ("bob", 1, 1)
    with pytest.raises(UnknownAccount):
        await approvals_api.get_account_approval_stats(desk.services, LOCAL, "nobody")
