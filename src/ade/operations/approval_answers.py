"""Answers at a gate. Each is about the digest that was looked at; programs never give one, on none of these ways.

A vote is the same however often it is sent, so none of this takes an Idempotency-Key: what is kept of such a request
would be a quick hash of the password in it.
"""

from typing import Any

from msgspec import structs

from ade.core.accounts.permissions import Permission
from ade.core.accounts.users import normal_id
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.records import Decision, Gate
from ade.core.approvals.voting import Ballot, gate_for
from ade.core.errors import AdeError, InvalidTask, PayloadTooLarge, StoreError
from ade.core.records import Task
from ade.core.web.forms.approvals import (
    AmendApproval,
    AnswerApproval,
    AnswerApprovals,
    BatchItem,
    BreakGlass,
    DelegateApproval,
    DismissRequest,
    RevokeApproval,
)
from ade.governance.approvals import amending, delegating, voting
from ade.governance.approvals.situation import load_people
from ade.governance.approvals.voting import Answered
from ade.insight.approval_views import Voted, view_vote
from ade.operations.acting import acting, confirmed_at, voter, way
from ade.operations.approvals import asked_gate
from ade.operations.kit import Asked, Office, Page
from ade.operations.task_access import check_id
from ade.queue.names import arguments_by_name
from ade.queue.tasks import get


async def respond_to_approval(office: Office, asked: Asked, task_id: str, body: AnswerApproval) -> Voted:
    account = voter(asked)
    if body.decision is Decision.REQUEST_CHANGES and not body.reason.strip():
        raise InvalidTask("say which changes are asked for; the reason is what the author gets to read")
    task, gate = await asked_gate(office, task_id, body.approval)
    ballot = Ballot(
        voter=account,
        decision=body.decision,
        digest=_whole(gate, body.digest),
        reason=body.reason,
        on_behalf_of=None if body.for_whom is None else normal_id(body.for_whom),
        authenticated_at=await confirmed_at(office, asked, body.password),
        via=way(asked),
    )
    after = await voting.vote(office.stores, task.id, ballot, gate_id=gate.id)
    return view_vote(after, gate, await load_people(office.stores), now=office.stores.clock.now())


async def respond_to_approvals(office: Office, asked: Asked, body: AnswerApprovals) -> Page[Answered]:
    """Each is counted by itself, and has its own answer, in the order of the request."""
    account = voter(asked)
    await voting.check_batch(office.stores, len(body.items))
    ballot = Ballot(
        voter=account,
        decision=Decision(body.decision),
        digest="",
        reason=body.reason,
        authenticated_at=await confirmed_at(office, asked, body.password),
    )
    return Page(items=[await _answered(office, item, ballot) for item in body.items])


async def _answered(office: Office, item: BatchItem, ballot: Ballot) -> Answered:
    try:
        _, gate = await asked_gate(office, item.task_id, item.approval)
    except StoreError:
        raise
    except AdeError as error:
        return Answered(task_id=item.task_id, code=error.code, error=error.detail)
    answered = await voting.one_of_many(office.stores, gate.id, _whole(gate, item.digest), ballot)
    return structs.replace(answered, task_id=item.task_id)


def _whole(gate: Gate, given: str) -> str:
    """The digest of the gate if this is its beginning; any other one is left to be refused."""
    text = given.strip().lower()
    return gate.digest if text and gate.digest.startswith(text) else given


async def delegate_approval(office: Office, asked: Asked, task_id: str, body: DelegateApproval) -> Delegation:
    account = voter(asked)
    _, gate = await asked_gate(office, task_id, body.approval)
    return await delegating.delegate_approval(office.stores, task_id, body.to, actor=account, gate_id=gate.id)


async def amend_approval(office: Office, asked: Asked, task_id: str, body: AmendApproval) -> Task:
    """Whoever amends a task has a hand in it: others answer then."""
    account = voter(asked)
    task, gate = await asked_gate(office, task_id, None)
    fields: dict[str, Any] = {} if body.description is None else {"description": body.description}
    if body.args is not None:
        _, args = await arguments_by_name(office.stores, task.name, body.args, allow_unknown=True)
        if len(args) > office.payloads.hard_limit:  # before anything is counted
            raise PayloadTooLarge(f"the arguments take {len(args):,} bytes, more than {office.payloads.hard_limit:,}")
        fields["args"] = args
    ballot = Ballot(
        voter=account,
        decision=Decision.REQUEST_CHANGES,
        digest=_whole(gate, body.digest),
        reason=body.reason,
        via=way(asked),
    )
    return await amending.amend(office.stores, office.payloads, task_id, ballot, **fields)


async def revoke_approval(office: Office, asked: Asked, task_id: str, body: RevokeApproval) -> Task:
    """For those who gave it; an approval that others gave takes an admin."""
    account = voter(asked)
    check_id(task_id)
    gate = gate_for(await get(office.stores, task_id))
    if account not in {vote.voter for vote in gate.votes}:
        asked.require(Permission.ADMINISTER)  # of the token too, where it is one
    return await voting.revoke(office.stores, task_id, body.reason, actor=account)


async def dismiss_request(office: Office, asked: Asked, task_id: str, body: DismissRequest) -> Task:
    check_id(task_id)
    return await voting.dismiss(office.stores, task_id, normal_id(body.voter), body.reason, actor=acting(asked))


async def break_glass(office: Office, asked: Asked, task_id: str, body: BreakGlass) -> Task:
    """No approval: others are asked to look at it after the fact."""
    check_id(task_id)
    at = await confirmed_at(office, asked, body.password)
    return await voting.break_glass(office.stores, task_id, body.reason, actor=acting(asked), authenticated_at=at)
