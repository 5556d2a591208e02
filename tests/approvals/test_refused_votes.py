"""Ways to a vote that somebody should not have: refused on each of them, and nothing is counted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ade import ConflictOfInterest, GateClosed, NotEligible, Task
from ade.accounts import api as accounts_api
from ade.accounts import api_sessions
from ade.accounts.api import SignIn, UseLoginLink
from ade.approvals import api as approvals_api
from ade.approvals.api import (
    AmendApproval,
    AnswerApproval,
    AnswerApprovals,
    BatchItem,
    DelegateApproval,
    NewDelegation,
    RevokeApproval,
    SnoozeApproval,
)
from ade.errors import AdeError, NotPermitted
from ade.server.operation import RouteAccess
from ade.server.problems import problem_of_error
from ade.tasks.api import create, tasks
from ade.tasks.api.requests import GetTask
from tests.approvals.people import (
    PASSWORD,
    answer,
    as_caller,
    by,
    council,
    fresh,
    held,
    person,
    shown,
    through_token,
)
from tests.domain import (
    Caller,
    Decision,
    GateState,
    InvalidAccount,
    NewTask,
    Permission,
    ReauthenticationNeeded,
    RequestContext,
    Role,
    User,
    UserChanges,
    add_user,
    change_user,
    confirm,
    create_token,
    fingerprint,
    local_caller,
    use_session,
    use_token,
)
from tests.server.operations import LOCAL, Operations

Way = Callable[[Operations, RequestContext, Task], Awaitable[Any]]


async def unchanged(ops: Operations, task: Task) -> bool:
    return (await tasks.get_task(ops.services, LOCAL, task.id, GetTask())).version == task.version


async def delegated(ops: Operations, delegator: str, delegate: str) -> None:
    request = await fresh(ops, delegator, "create_delegation")
    await approvals_api.create_delegation(ops.services, request, NewDelegation(delegate=delegate, ends=3_600.0))


async def test_an_author_does_not_approve_by_session_token_or_link(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    link = await accounts_api.create_login_link(ops.services, LOCAL, "ada")
    linked = await api_sessions.use_login_link(
        ops.services, RequestContext(actor="http:x"), UseLoginLink(secret=link.secret)
    )
    unproven = as_caller(await use_session(ops.services.stores, linked.secret), "respond_to_approval")
    with pytest.raises(ReauthenticationNeeded, match="created the login link"):
        await answer(ops, unproven, task)
    await confirm(ops.services.stores, fingerprint(linked.secret), PASSWORD)
    for request in (
        await by(ops, "ada", "respond_to_approval", confirmed_at=ops.clock.now()),
        await through_token(ops, "ada", "respond_to_approval"),
        as_caller(await use_session(ops.services.stores, linked.secret), "respond_to_approval"),
        RequestContext(actor="cli:ada", author="ADA"),
    ):
        with pytest.raises(ConflictOfInterest):
            await answer(ops, request, task)
    assert await unchanged(ops, task)


async def test_an_author_does_not_approve_among_many(ops: Operations) -> None:
    await council(ops)
    own, other = await held(ops), await held(ops, author="zoe")
    items = [BatchItem(task_id=task.id, **shown(task)) for task in (own, other)]
    ada = await by(ops, "ada", "respond_to_approvals")
    done = await approvals_api.respond_to_approvals(ops.services, ada, AnswerApprovals(decision="approve", items=items))
    assert [one.code for one in done.items] == ["conflict_of_interest", ""]
    assert await unchanged(ops, own)


async def test_an_author_does_not_approve_in_the_place_of_somebody_else(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    await delegated(ops, "bob", "ada")
    ada = await by(ops, "ada", "respond_to_approval")
    for for_whom in (None, "bob"):
        with pytest.raises(ConflictOfInterest):
            await answer(ops, ada, task, for_whom=for_whom)
    cy = await fresh(ops, "cy", "delegate_approval")
    with pytest.raises(ConflictOfInterest):
        await approvals_api.delegate_approval(ops.services, cy, task.id, DelegateApproval(to="Ada"))
    assert await unchanged(ops, task)


async def test_an_author_does_not_approve_with_another_account_or_spelling(ops: Operations) -> None:
    await council(ops)
    await person(ops, "ada2", "reviewer", person="ada")
    for author in ("ada", "ADA", "Ada"):
        task = await held(ops, author=author)
        for name in ("ada", "ada2"):
            with pytest.raises(ConflictOfInterest):
                await answer(ops, await by(ops, name, "respond_to_approval"), task)
        assert await unchanged(ops, task)
    task = await held(ops, author="ada2")
    with pytest.raises(ConflictOfInterest):
        await answer(ops, await by(ops, "ada", "respond_to_approval"), task)


async def test_two_accounts_of_one_human_are_one_answer(ops: Operations) -> None:
    await council(ops, {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]})
    await person(ops, "bob2", "reviewer", person="bob")
    task = await held(ops)
    await answer(ops, await by(ops, "bob", "respond_to_approval"), task)
    second = await answer(ops, await by(ops, "bob2", "respond_to_approval"), task)
    assert (second.state, len(second.missing)) == (GateState.OPEN, 1)


async def test_whoever_answers_for_an_agent_does_not_approve_what_it_asks_for(ops: Operations) -> None:
    await council(ops)
    agent = await ops.account("helper", Role.AGENT, owner="bob")
    request = ops.request(agent, "create_task")
    task = await create.create_task(ops.services, request, NewTask(name="greet", args={"name": "Ada"}))
    with pytest.raises(ConflictOfInterest):
        await answer(ops, await by(ops, "bob", "respond_to_approval"), task)
    await answer(ops, await by(ops, "cy", "respond_to_approval"), task)


async def _respond(ops: Operations, request: RequestContext, task: Task) -> Any:
    form = AnswerApproval(decision=Decision.APPROVE, **shown(task))
    return await approvals_api.respond_to_approval(ops.services, request, task.id, form)


async def _batch(ops: Operations, request: RequestContext, task: Task) -> Any:
    form = AnswerApprovals(decision="approve", items=[BatchItem(task_id=task.id, **shown(task))])
    return await approvals_api.respond_to_approvals(ops.services, request, form)


async def _delegate(ops: Operations, request: RequestContext, task: Task) -> Any:
    return await approvals_api.delegate_approval(ops.services, request, task.id, DelegateApproval(to="cy"))


async def _amend(ops: Operations, request: RequestContext, task: Task) -> Any:
    form = AmendApproval(**shown(task), args={"name": "Eve"})
    return await approvals_api.amend_approval(ops.services, request, task.id, form)


async def _snooze(ops: Operations, request: RequestContext, task: Task) -> Any:
    return await approvals_api.snooze_approval(ops.services, request, task.id, SnoozeApproval())


async def _revoke(ops: Operations, request: RequestContext, task: Task) -> Any:
    return await approvals_api.revoke_approval(ops.services, request, task.id, RevokeApproval(reason="no"))


async def _create_delegation(ops: Operations, request: RequestContext, task: Task) -> Any:
    return await approvals_api.create_delegation(ops.services, request, NewDelegation(delegate="cy", ends=60.0))


WAYS: dict[str, Way] = {
    "respond_to_approval": _respond,
    "respond_to_approvals": _batch,
    "delegate_approval": _delegate,
    "amend_approval": _amend,
    "snooze_approval": _snooze,
    "revoke_approval": _revoke,
    "create_delegation": _create_delegation,
}


async def test_programs_never_vote_on_any_way(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, author="zoe")
    with pytest.raises(InvalidAccount):
        await add_user(ops.services.stores, User(id="bot", roles=frozenset({"reviewer"}), is_human=False, owner="root"))
    for role in (Role.AGENT, Role.WORKER):
        program = await ops.account(f"the-{role}", role)
        secret, _ = await create_token(ops.services.stores, program.id)
        caller = await use_token(ops.services.stores, secret)
        for operation, way in WAYS.items():
            with pytest.raises(NotPermitted):
                as_caller(caller, operation)
            past_the_table = RequestContext(
                actor=program.id, author=program.id, caller=caller, access=RouteAccess.ALLOWED
            )
            with pytest.raises(NotPermitted):
                await way(ops, past_the_table, task)
            disguised = replace(past_the_table, author="bob", actor="bob")
            with pytest.raises(NotPermitted):
                await way(ops, disguised, task)
    assert await unchanged(ops, task)


async def test_where_nobody_is_asked_who_he_is_nobody_votes(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, author="zoe")
    caller = await local_caller(ops.services.stores)
    for operation, way in WAYS.items():
        if operation == "revoke_approval":
            continue  # it is for operators too, and asks people again
        with pytest.raises(NotPermitted):
            as_caller(caller, operation)
        with pytest.raises(NotPermitted):
            await way(
                ops, RequestContext(actor="local", author="local", caller=caller, access=RouteAccess.ALLOWED), task
            )
    assert await unchanged(ops, task)


async def test_a_token_without_the_scope_does_not_vote(ops: Operations) -> None:
    await council(ops)
    task = await held(ops, author="zoe")
    secret, _ = await create_token(ops.services.stores, "bob", scopes=frozenset({Permission.READ}))
    caller = await use_token(ops.services.stores, secret)
    for operation, way in WAYS.items():
        with pytest.raises(NotPermitted):
            as_caller(caller, operation)
        with pytest.raises(NotPermitted):
            await way(ops, RequestContext(actor="bob", author="bob", caller=caller, access=RouteAccess.ALLOWED), task)
    assert await unchanged(ops, task)


async def test_a_role_that_was_taken_away_counts_from_the_next_request_on(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    signed = await api_sessions.sign_in(
        ops.services, RequestContext(actor="http:x"), SignIn(name="bob", password=PASSWORD)
    )
    before = as_caller(await use_session(ops.services.stores, signed.secret), "respond_to_approval")
    await change_user(ops.services.stores, "bob", UserChanges(fewer_roles=frozenset({"reviewer"})))

    with pytest.raises(NotPermitted):
        as_caller(await use_session(ops.services.stores, signed.secret), "respond_to_approval")
    with pytest.raises(NotEligible):  # and the request that is under way already counts no more
        await answer(ops, before, task)
    assert await unchanged(ops, task)


async def test_many_identical_votes_at_once_are_one(ops: Operations) -> None:
    await council(ops, {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]})
    task = await held(ops)
    bob = await by(ops, "bob", "respond_to_approval")
    answers = await asyncio.gather(*(answer(ops, bob, task) for _ in range(100)))
    assert {len(one.missing) for one in answers} == {1}
    [gate] = (await approvals_api.get_approval(ops.services, LOCAL, task.id)).review.gates
    assert [vote.voter for vote in gate.votes] == ["bob"]


async def test_out_of_order_is_a_conflict(ops: Operations) -> None:
    await council(ops)
    task = await held(ops)
    bob = await by(ops, "bob", "respond_to_approval")
    await answer(ops, bob, task)
    refused: list[AdeError] = []
    with pytest.raises(GateClosed) as late:
        await answer(ops, await by(ops, "cy", "respond_to_approval"), task)
    refused.append(late.value)
    plain = await create.create_task(ops.services, LOCAL, NewTask(name="other", allow_unknown=True))
    with pytest.raises(AdeError) as nothing:
        await answer(ops, bob, plain, digest="f" * 64)
    refused.append(nothing.value)
    assert [problem_of_error(error).status for error in refused] == [409, 404]  # the latter has no approval at all


def test_a_caller_of_a_program_has_no_say() -> None:
    bot = Caller(user=User(id="bot", roles=frozenset({Role.REVIEWER}), is_human=False))
    with pytest.raises(NotPermitted):
        as_caller(bot, "respond_to_approval")
