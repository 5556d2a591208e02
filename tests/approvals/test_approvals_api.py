"""Approvals over the operations: what waits, all about one, and what people do about it."""

import msgspec
import pytest

from ade import Status
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
from ade.approvals.views import ApprovalView
from ade.errors import InvalidArguments, InvalidTask, NotPermitted, UnknownTask
from ade.settings import runtime
from ade.tasks.api.requests import GetTask
from ade.tasks.api.tasks import get_task
from tests.approvals.people import (
    HIGH,
    PASSWORD,
    TWO,
    answer,
    by,
    council,
    digest_of,
    fresh,
    held,
    shown,
    through_token,
)
from tests.domain import Decision, Definition, GateState, Permission, Role, UnknownAccount, Worker, from_wire, to_wire
from tests.server.operations import LOCAL, Operations

ABSENT = "01900000-0000-7000-8000-000000000000"


async def waiting_for(ops: Operations, name: str, **more: object) -> list[str]:
    query = ListApprovals(**more)  # type: ignore[arg-type]
    found = await approvals_api.list_approvals(ops.services, await by(ops, name, "list_approvals"), query)
    return [item.task_id for item in found.items]


async def test_what_waits_is_listed_for_who_may_answer_and_for_all(ops: Operations) -> None:
    await council(ops)
    later, first = await held(ops, priority=5), await held(ops, priority=1)

    assert await waiting_for(ops, "bob") == [first.id, later.id]
    assert await waiting_for(ops, "ada") == []
    assert await waiting_for(ops, "ada", mine=False) == [first.id, later.id]
    everybody = await approvals_api.list_approvals(ops.services, LOCAL, ListApprovals())
    assert [item.task_id for item in everybody.items] == [first.id, later.id]  # there is no account `tester`


async def test_a_long_list_is_cut_into_pages(ops: Operations) -> None:
    await council(ops)
    ids = [(await held(ops, priority=number)).id for number in range(3)]
    request = await by(ops, "bob", "list_approvals")
    first = await approvals_api.list_approvals(ops.services, request, ListApprovals(limit=2))
    rest = await approvals_api.list_approvals(ops.services, request, ListApprovals(limit=2, cursor=first.next))
    assert [item.task_id for page in (first, rest) for item in page.items] == ids
    assert rest.next is None


async def test_one_is_shown_with_all_that_counts(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, description="a greeting")
    seen = await approvals_api.get_approval(ops.services, await by(ops, "bob", "get_approval"), task.id)

    assert (seen.author, seen.description, seen.status) == ("ada", "a greeting", Status.REVIEWING)
    assert msgspec.json.decode(seen.args) == {"name": "Ada"}
    assert seen.review.gates[0].may_answer == ["bob", "cy"]
    assert seen.stats is not None
    assert seen.stats.pending == 1
    sent = msgspec.json.decode(msgspec.json.encode(to_wire(seen)))
    assert sent["review"]["gates"][0]["digest"] == digest_of(task)
    assert from_wire(to_wire(seen), ApprovalView) == seen


async def test_large_arguments_are_shown_whole(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    form = AmendApproval(**shown(task), args={"name": "x" * 300_000})
    await approvals_api.amend_approval(ops.services, await by(ops, "bob", "amend_approval"), task.id, form)
    seen = await approvals_api.get_approval(ops.services, LOCAL, task.id)
    assert msgspec.json.decode(seen.args) == {"name": "x" * 300_000}


async def test_an_answer_counts_for_exactly_what_was_seen(ops: Operations) -> None:
    await council(ops, TWO)
    task = await held(ops)
    bob = await by(ops, "bob", "respond_to_approval")
    for other in ("f" * 64, digest_of(task)[:63]):
        with pytest.raises(DigestMismatch):
            await answer(ops, bob, task, digest=other)
    first = await answer(ops, bob, task)
    assert (first.task.status, first.state, len(first.missing)) == (Status.REVIEWING, GateState.OPEN, 1)
    again = await answer(ops, bob, task)
    assert again.task.version == first.task.version

    second = await answer(ops, await by(ops, "cy", "respond_to_approval"), task)
    assert (second.task.status, second.state, second.missing) == (Status.PENDING, GateState.APPROVED, [])
    votes = second.task.review.gates[0].votes if second.task.review else ()
    assert [(vote.voter, vote.via) for vote in votes] == [("bob", "api"), ("cy", "api")]


async def test_who_answers_on_a_local_store_is_noted_as_such(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    local = type(LOCAL)(actor="cli:bob", author="BOB")
    after = await answer(ops, local, task, Decision.REJECT, reason="not today")
    assert after.task.status is Status.REJECTED
    assert after.task.review is not None
    assert [(vote.voter, vote.via) for vote in after.task.review.gates[0].votes] == [("bob", "cli")]


async def test_changes_are_asked_for_with_a_reason(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    bob = await by(ops, "bob", "respond_to_approval")
    with pytest.raises(InvalidTask, match="requested changes"):
        await answer(ops, bob, task, Decision.REQUEST_CHANGES, reason=" ")
    request = await answer(ops, bob, task, Decision.REQUEST_CHANGES, reason="say hello")
    assert (request.task.status, request.state) == (Status.DRAFT, GateState.CHANGES_REQUESTED)

    form = DismissRequest(voter="Bob", reason="hello is optional")
    with pytest.raises(NotPermitted):
        await by(ops, "cy", "dismiss_request")
    root = await by(ops, "root", "dismiss_request")
    dismissed = await approvals_api.dismiss_request(ops.services, root, task.id, form)
    assert dismissed.status is Status.REVIEWING


async def test_a_closed_gate_takes_no_answer(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    await answer(ops, await by(ops, "bob", "respond_to_approval"), task)
    cy = await by(ops, "cy", "respond_to_approval")
    with pytest.raises(GateClosed):
        await answer(ops, cy, task, Decision.REJECT)
    with pytest.raises(UnknownApproval):
        await answer(ops, cy, task, approval=f"{task.id}.7")
    with pytest.raises(UnknownApproval):
        await answer(ops, cy, task, approval=f"{ABSENT}.1")
    with pytest.raises(GateClosed):
        await answer(ops, cy, task, approval=f"{task.id}.1")


async def test_what_is_no_task_is_not_found(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    for wrong in (ABSENT, "a{b}", f"{task.id}.1", "x" * 900):
        with pytest.raises(UnknownTask):
            await approvals_api.get_approval(ops.services, LOCAL, wrong)
        with pytest.raises(UnknownTask):
            await approvals_api.revoke_approval(ops.services, LOCAL, wrong, RevokeApproval(reason="x"))


async def test_a_high_risk_takes_a_password_given_just_now(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, **HIGH)
    now = ops.clock.now()
    for request in (
        await by(ops, "bob", "respond_to_approval"),
        await by(ops, "bob", "respond_to_approval", confirmed_at=now - 300_001),
        await through_token(ops, "bob", "respond_to_approval"),
    ):
        with pytest.raises(ReauthenticationNeeded):
            await answer(ops, request, task)
    fresh = await by(ops, "bob", "respond_to_approval", confirmed_at=now - 1_000)
    assert (await answer(ops, fresh, task)).state is GateState.APPROVED


async def test_the_password_may_come_with_the_answer(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, **HIGH)
    after = await answer(ops, await through_token(ops, "bob", "respond_to_approval"), task, password=PASSWORD)
    assert after.state is GateState.APPROVED


async def test_many_are_answered_each_by_itself(ops: Operations) -> None:
    await council(ops)
    good, gone, risky, other = [await held(ops), await held(ops), await held(ops, **HIGH), await held(ops)]
    cy = await by(ops, "cy", "respond_to_approval")
    await answer(ops, cy, gone, Decision.REJECT)
    form = AnswerApprovals(
        decision="approve",
        items=[
            BatchItem(task_id=good.id, **shown(good)),
            BatchItem(task_id="a{b}:c", approval="a{b}:c.1", digest="f" * 64),
            BatchItem(task_id=gone.id, **shown(gone)),
            BatchItem(task_id=risky.id, **shown(risky)),
            BatchItem(task_id=other.id, approval=f"{other.id}.1", digest="f" * 64),
            BatchItem(task_id=other.id, **shown(other)),
        ],
        password=PASSWORD,
    )
    bob = await by(ops, "bob", "respond_to_approvals")
    done = await approvals_api.respond_to_approvals(ops.services, bob, form)
    told = [(one.task_id, one.code or one.status) for one in done.items]
    assert told == [
        (good.id, Status.PENDING),
        ("a{b}:c", "unknown_task"),
        (gone.id, "gate_closed"),
        (risky.id, "not_permitted"),
        (other.id, "digest_mismatch"),
        (other.id, Status.PENDING),
    ]


async def test_many_at_once_can_be_switched_off(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    await runtime.switch(ops.services.stores, "batch_approvals", False, actor="root")
    form = AnswerApprovals(decision="approve", items=[BatchItem(task_id=task.id, **shown(task))])
    with pytest.raises(NotPermitted, match="batch_approvals"):
        await approvals_api.respond_to_approvals(ops.services, await by(ops, "bob", "respond_to_approvals"), form)
    assert (await get_task(ops.services, LOCAL, task.id, GetTask())).version == task.version


async def test_somebody_else_answers_for_this_one(ops: Operations) -> None:
    await council(ops, {"id": "bobs", "rules": [{"needed": 1, "users": ["bob"]}]})
    task = await held(ops)
    cy = await by(ops, "cy", "respond_to_approval")
    with pytest.raises(NotEligible):
        await answer(ops, cy, task)
    bob = await fresh(ops, "bob", "delegate_approval")
    made = await approvals_api.delegate_approval(ops.services, bob, task.id, DelegateApproval(to="CY"))
    assert (made.delegator, made.delegate, made.task_id) == ("bob", "cy", task.id)
    assert await approvals_api.get_delegation(ops.services, LOCAL, made.id) == made

    after = await answer(ops, cy, task, for_whom="Bob")
    assert after.state is GateState.APPROVED


async def test_a_reviewer_mends_a_task_and_others_answer(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    bob = await by(ops, "bob", "amend_approval")
    with pytest.raises(InvalidTask):
        await approvals_api.amend_approval(ops.services, bob, task.id, AmendApproval(**shown(task)))
    form = AmendApproval(**shown(task), args={"name": "Eve"}, description="better", reason="a slip")
    mended = await approvals_api.amend_approval(ops.services, bob, task.id, form)
    assert (mended.status, mended.arguments(), mended.description) == (Status.REVIEWING, {"name": "Eve"}, "better")
    assert await waiting_for(ops, "bob") == []
    assert await waiting_for(ops, "cy") == [task.id]


async def test_arguments_that_do_not_fit_change_nothing(ops: Operations) -> None:
    await council(ops)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    worker = Worker(id="w", hostname="h", pid=1, started_at=ops.clock.now(), version="0", names=("greet",))
    await ops.services.stores.workers.register(worker, [Definition(name="greet", schema=schema)], 60_000)
    task = await held(ops)
    form = AmendApproval(**shown(task), args={"name": 7})
    with pytest.raises(InvalidArguments):
        await approvals_api.amend_approval(ops.services, await by(ops, "bob", "amend_approval"), task.id, form)
    assert (await get_task(ops.services, LOCAL, task.id, GetTask())).version == task.version


async def test_what_is_put_off_comes_back(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    bob = await by(ops, "bob", "snooze_approval")
    put_off = await approvals_api.snooze_approval(ops.services, bob, task.id, SnoozeApproval(seconds=60))
    assert (put_off.account, put_off.until) == ("bob", ops.clock.now() + 60_000)
    assert (await waiting_for(ops, "bob"), await waiting_for(ops, "cy")) == ([], [task.id])
    ops.clock.advance(61)
    assert await waiting_for(ops, "bob") == [task.id]


async def test_anybody_who_works_here_may_say_something(ops: Operations) -> None:
    await council(ops)
    agent = await ops.account("helper", Role.AGENT)
    task = await held(ops, "helper")
    form = NewComment(text="the name is right")
    said = await approvals_api.comment_on_approval(
        ops.services, ops.request(agent, "comment_on_approval"), task.id, form
    )
    assert said.review is not None
    assert [(each.by, each.text) for each in said.review.comments] == [("helper", "the name is right")]
    assert said.review.gate is not None
    assert said.review.gate.votes == ()


async def test_an_approval_is_taken_back_by_who_gave_it_or_an_admin(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, start="by_hand")
    await answer(ops, await by(ops, "bob", "respond_to_approval"), task)
    form = RevokeApproval(reason="on second thoughts")
    with pytest.raises(NotPermitted):
        await approvals_api.revoke_approval(ops.services, await by(ops, "cy", "revoke_approval"), task.id, form)
    narrow = await through_token(ops, "root", "revoke_approval", Permission.VOTE, Permission.READ)
    with pytest.raises(NotPermitted, match="through this token"):
        await approvals_api.revoke_approval(ops.services, narrow, task.id, form)
    bob = await by(ops, "bob", "revoke_approval")
    assert (await approvals_api.revoke_approval(ops.services, bob, task.id, form)).status is Status.REVIEWING


async def test_the_glass_is_broken_with_a_password(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    with pytest.raises(NotPermitted):
        await by(ops, "bob", "break_glass")
    root = await by(ops, "root", "break_glass")
    with pytest.raises(ReauthenticationNeeded):
        await approvals_api.break_glass(ops.services, root, task.id, BreakGlass(reason="fire"))
    form = BreakGlass(reason="fire", password=PASSWORD)
    assert "horse" not in repr(form)
    done = await approvals_api.break_glass(ops.services, root, task.id, form)
    assert done.status is Status.PENDING
    assert done.review is not None
    assert done.review.bypass is not None
    assert done.review.bypass.by == "root"


async def test_figures_tell_what_waits_and_what_was_answered(ops: Operations) -> None:
    await council(ops)
    task, _ = await held(ops), await held(ops)
    await answer(ops, await by(ops, "bob", "respond_to_approval"), task)
    seen = await approvals_api.get_approval_stats(ops.services, LOCAL, GetApprovalStats())
    assert (seen.waiting.count, seen.ended.outcomes["approved"]) == (1, 1)  # type: ignore[index]
    msgspec.json.encode(to_wire(seen))
    own = await approvals_api.get_account_approval_stats(ops.services, LOCAL, "Bob")
    assert (own.account, own.pending, own.approved) == ("bob", 1, 1)
    with pytest.raises(UnknownAccount):
        await approvals_api.get_account_approval_stats(ops.services, LOCAL, "nobody")
