"""HTTP operations on approvals and delegations, with the forms of their requests.

Each vote names the gate and the whole digest that the reviewer saw. Service accounts cannot vote. Repeating a vote has
no further effect, so voting takes no Idempotency-Key: a stored request would contain a fast hash of the password.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from ade.accounts.api_sessions import confirmed_at
from ade.accounts.model import InvalidDelegation, Permission, normal_id
from ade.accounts.users import get_user
from ade.approvals import delegations
from ade.approvals import service as approvals_service
from ade.approvals import views as approvals_views
from ade.approvals.model import Decision, Delegation, Gate
from ade.approvals.repository import load, load_people, registered_definition
from ade.approvals.risk import RiskLevel
from ade.approvals.service import BatchVoteResult
from ade.approvals.stats import USUAL_WINDOW_MS, ApprovalStats, UserStats, approval_stats, user_stats
from ade.approvals.views import (
    ApprovalView,
    PendingApproval,
    Snoozed,
    Voted,
    view_approval,
    view_vote,
)
from ade.approvals.votes import LONGEST_RESPONSE, VoteRequest, gate_for, gate_to_answer, no_such_gate
from ade.errors import AdeError, InvalidTask, NotPermitted, PayloadTooLarge, StoreError
from ade.server.context import (
    RequestContext,
    Services,
    account_id,
    acting,
    check_own,
    cut,
    readable_ids,
    require_fresh_session,
    scope_of,
    sign_in_method,
    voter,
)
from ade.server.masking import refuse_masks
from ade.server.operation import ReadRule, RouteAccess, TrafficClass, operation
from ade.server.pagination import Page
from ade.server.request_types import Account, Form, PageSize, Password, SecretForm
from ade.tasks.api.tasks import check_id, readable_task
from ade.tasks.attempts import runs_of
from ade.tasks.definitions import arguments_by_name
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import Task
from ade.tasks.service import get

# Request forms.


SeenDigest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]  # the whole digest that the reviewer saw
_WHOLE = "send the whole digest and the ID of the approval that were reviewed: GET /approvals/{task_id} returns both"
Why = Annotated[str, Meta(max_length=2_000)]
NeededWhy = Annotated[str, Meta(min_length=1, max_length=2_000)]
ApprovalId = Annotated[str, Meta(min_length=1, max_length=60)]  # gate ID
Words = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=50)]
_YEAR_S = 366 * 86_400.0
FromNow = Annotated[float, Meta(ge=0, le=_YEAR_S)]  # seconds


class ListApprovals(Form):
    """Filter and page of the pending approvals."""

    mine: bool | None = None  # only what the caller can vote on; default: true if the caller has an account
    cursor: str | None = None
    limit: PageSize = 50


class GetApprovalStats(Form):
    """Time window of the approval statistics."""

    over: Annotated[float, Meta(ge=1, le=_YEAR_S)] | None = None  # how far to look back, in seconds; default: one week


class AnswerApproval(SecretForm, kw_only=True):
    """A vote. Approving a high risk requires a password given within the last 5 minutes, here or earlier in this
    session."""

    advice_if_invalid: ClassVar[str] = _WHOLE

    decision: Decision
    approval: ApprovalId  # what the reviewer saw: the gate
    digest: SeenDigest  # and its digest
    reason: Why = ""  # for a change request: what to change
    text: Annotated[str, Meta(max_length=LONGEST_RESPONSE)] = ""  # of a response, to a step of a run
    args: dict[str, Any] | None = None  # of a response: replaces what the step is about; others must approve it
    go_on: bool = False  # of a rejection: the run continues without the step
    for_whom: Account | None = None  # vote on behalf of this account, which has delegated to the caller
    password: Password | None = None


class BatchItem(Form, kw_only=True):
    """One task of a batch vote."""

    task_id: Annotated[str, Meta(max_length=60)]
    approval: ApprovalId
    digest: SeenDigest


class AnswerApprovals(SecretForm, kw_only=True):
    """The same vote on several tasks."""

    advice_if_invalid: ClassVar[str] = _WHOLE

    decision: Literal["approve", "reject"]
    items: Annotated[list[BatchItem], Meta(min_length=1, max_length=50)]
    reason: Why = ""
    password: Password | None = None


class DelegateApproval(Form, kw_only=True):
    """The account that can vote instead of the caller."""

    json_names: ClassVar[Mapping[str, str]] = {"to": "delegate"}

    to: Account
    approval: ApprovalId | None = None  # default: the newest undecided gate


class AmendApproval(Form, kw_only=True):
    """New arguments, a new description, or both."""

    advice_if_invalid: ClassVar[str] = _WHOLE

    approval: ApprovalId
    digest: SeenDigest
    args: dict[str, Any] | None = None  # replaces all arguments
    description: Annotated[str, Meta(max_length=10_000)] | None = None
    reason: Why = ""


class SnoozeApproval(Form):
    """How long to hide an approval from the caller's own list."""

    seconds: Annotated[float, Meta(ge=1, le=7 * 86_400)] = 3_600.0


class NewComment(Form, kw_only=True):
    """A comment on an approval."""

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]


class RevokeApproval(Form, kw_only=True):
    """Why an approval is revoked."""

    reason: NeededWhy


class DismissRequest(Form, kw_only=True):
    """Whose request for changes is dismissed, and why."""

    voter: Account  # the account that requested changes
    reason: NeededWhy


class BreakGlass(SecretForm, kw_only=True):
    """The reason for a bypass. It requires a password given within the last 5 minutes, here or earlier in this
    session."""

    reason: NeededWhy
    password: Password | None = None


class ListDelegations(Form):
    """Filter and page of the delegations."""

    account: Account | None = None  # as delegator or delegate
    cursor: str | None = None
    limit: PageSize = 50


class NewDelegation(Form, kw_only=True):
    """A delegation. Times are timestamps or seconds: `starts_at` from now, `ends_at` from the start. Empty conditions
    match everything."""

    json_names: ClassVar[Mapping[str, str]] = {"starts": "starts_at", "ends": "ends_at"}

    delegate: Account
    ends: FromNow | datetime
    starts: FromNow | datetime = 0.0
    delegator: Account | None = None  # default: the caller; an admin can name another account
    names: Words = field(default_factory=list)
    tags: Words = field(default_factory=list)
    resource_types: Words = field(default_factory=list)
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    cascades: bool = False  # the delegate can delegate further


@operation("GET /approvals", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_approvals(services: Services, request: RequestContext, query: ListApprovals) -> Page[PendingApproval]:
    """What waits for people, for oneself or for all. The most urgent come first. Snoozed approvals are left out of the
    caller's own list."""
    account, mine = acting(request), query.mine
    if mine is None:
        mine = (await load_people(services.stores)).directory.get(account) is not None
    stores = services.stores
    items = await (approvals_views.inbox(stores, account) if mine else approvals_views.waiting(stores))
    if (scope := scope_of(request.caller)) is not None:
        shown = await readable_ids(services, scope, (item.task_id for item in items))
        items = [item for item in items if item.task_id in shown]
    return cut("approvals", query, items)


@operation("GET /approvals/stats", reads=ReadRule.ALL, permission=Permission.READ)
async def get_approval_stats(services: Services, request: RequestContext, query: GetApprovalStats) -> ApprovalStats:
    """How many wait, how long, and how they end."""
    window_ms = USUAL_WINDOW_MS if query.over is None else round(query.over * 1000)
    return await approval_stats(services.stores, window_ms)


@operation("GET /approvals/stats/{account}", reads=ReadRule.ALL, permission=Permission.READ)
async def get_account_approval_stats(services: Services, request: RequestContext, account: str) -> UserStats:
    """What waits for one account, and its answers. Raises UnknownAccount: zero responses of an account that never
    existed would be misleading."""
    return await user_stats(services.stores, (await get_user(services.stores, account_id(account))).id)


@operation("GET /approvals/{task_id}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_approval(services: Services, request: RequestContext, task_id: str) -> ApprovalView:
    """Show the request, the eligible voters, and the votes. Includes every field that the digest covers, the
    differences from the previous gate, the resources behind the risk, and the earlier runs. Large arguments are
    shown in full: a reference cannot be reviewed."""
    task = await readable_task(services, request.caller, task_id)
    people, now = await load_people(services.stores), services.stores.clock.now()
    args, runs = await services.payloads.load(task.args), await runs_of(services.stores, task)
    definition, rulebook = await registered_definition(services.stores, task), await load(services.stores)
    found = view_approval(task, args, people, rulebook, runs, definition=definition, now=now)
    if found is None:
        raise no_such_gate(task)
    return found


@operation("POST /approvals/{task_id}/respond", permission=Permission.VOTE, traffic=TrafficClass.VOTE, takes_key=False)
async def respond_to_approval(services: Services, request: RequestContext, task_id: str, body: AnswerApproval) -> Voted:
    """Approve, reject, request changes, or respond. A response denies a step of a run, which continues with the text
    or, once others have approved them, with the edited arguments."""
    account = voter(request)
    if body.decision is Decision.REQUEST_CHANGES and not body.reason.strip():
        raise InvalidTask("describe the requested changes in the reason, which the author reads")
    task, gate = await gate_to_vote(services, task_id, body.approval)
    if body.args is not None:
        await refuse_masks(services, request.caller, body.args)
    ballot = VoteRequest(
        voter=account,
        decision=body.decision,
        approval=gate.id,
        digest=body.digest,
        reason=body.reason,
        on_behalf_of=None if body.for_whom is None else normal_id(body.for_whom),
        authenticated_at=await confirmed_at(services, request, body.password),
        via=sign_in_method(request),
        text=body.text,
        args=body.args,
        go_on=body.go_on,
    )
    after = await approvals_service.vote(services.stores, task.id, ballot)
    return view_vote(after, gate, await load_people(services.stores), now=services.stores.clock.now())


@operation("POST /approvals/batch", permission=Permission.VOTE, traffic=TrafficClass.VOTE, takes_key=False)
async def respond_to_approvals(
    services: Services, request: RequestContext, body: AnswerApprovals
) -> Page[BatchVoteResult]:
    """Answer many in the same way. Each item has its own result, in the order of the request."""
    account = voter(request)
    await approvals_service.check_batch(services.stores)
    ballot = VoteRequest(
        voter=account,
        decision=Decision(body.decision),
        approval="",  # this and the digest are those of each item
        digest="",
        reason=body.reason,
        authenticated_at=await confirmed_at(services, request, body.password),
    )
    return Page(items=[await _answered(services, item, ballot) for item in body.items])


async def _answered(services: Services, item: BatchItem, ballot: VoteRequest) -> BatchVoteResult:
    try:
        _, gate = await gate_to_vote(services, item.task_id, item.approval)
        task = await approvals_service.vote_in_batch(services.stores, gate, item.digest, ballot)
    except StoreError:
        raise
    except AdeError as error:
        return BatchVoteResult(task_id=item.task_id, code=error.code, error=error.detail)
    return BatchVoteResult(task_id=item.task_id, status=task.status)


@operation("POST /approvals/{task_id}/delegate", permission=Permission.VOTE, traffic=TrafficClass.VOTE)
async def delegate_approval(
    services: Services, request: RequestContext, task_id: str, body: DelegateApproval
) -> Delegation:
    """Delegate your vote on this approval, in a session with a recent password check."""
    account = voter(request)
    require_fresh_session(services, request)
    _, gate = await gate_to_vote(services, task_id, body.approval)
    return await approvals_service.delegate_approval(services.stores, task_id, body.to, actor=account, gate_id=gate.id)


@operation("POST /approvals/{task_id}/amend", permission=Permission.VOTE, traffic=TrafficClass.VOTE)
async def amend_approval(services: Services, request: RequestContext, task_id: str, body: AmendApproval) -> Task:
    """Edit what waits, and put it before people again. An account that amends a task becomes one of its authors, so
    others must approve it."""
    account = voter(request)
    task, gate = await gate_to_vote(services, task_id, body.approval)
    fields: dict[str, Any] = {} if body.description is None else {"description": body.description}
    if body.args is not None:
        await refuse_masks(services, request.caller, body.args)
        _, args = await arguments_by_name(services.stores, task.name, body.args, allow_unknown=True)
        if len(args) > services.payloads.hard_limit:  # before the vote is recorded
            raise PayloadTooLarge(f"the arguments take {len(args):,} bytes, more than {services.payloads.hard_limit:,}")
        fields["args"] = args
    ballot = VoteRequest(
        voter=account,
        decision=Decision.REQUEST_CHANGES,
        approval=gate.id,
        digest=body.digest,
        reason=body.reason,
        via=sign_in_method(request),
    )
    return await approvals_service.amend(services.stores, services.payloads, task_id, ballot, **fields)


@operation("POST /approvals/{task_id}/snooze", permission=Permission.VOTE, traffic=TrafficClass.VOTE)
async def snooze_approval(services: Services, request: RequestContext, task_id: str, body: SnoozeApproval) -> Snoozed:
    """Leave it out of one's list for a while. It can still be answered."""
    account = voter(request)
    check_id(task_id)
    until = services.stores.clock.now() + round(body.seconds * 1000)
    await approvals_service.snooze(services.stores, task_id, account, until)
    return Snoozed(task_id=task_id, account=account, until=until)


async def gate_to_vote(services: Services, task_id: str, approval: str | None) -> tuple[Task, Gate]:
    """Return the task, and the gate with this ID or by default the newest undecided one. Raises UnknownTask,
    UnknownApproval, and NoGate."""
    check_id(task_id)
    task = await get(services.stores, task_id)
    return task, gate_to_answer(task, approval)


@operation("POST /approvals/{task_id}/comment", permission=(Permission.ENQUEUE, Permission.VOTE))
async def comment_on_approval(services: Services, request: RequestContext, task_id: str, body: NewComment) -> Task:
    """Add a comment, which is not a vote. For the author, also a program, reviewers, and operators."""
    if scope_of(request.caller) is None:
        check_id(task_id)
    else:
        await readable_task(services, request.caller, task_id)
    return await approvals_service.comment(services.stores, task_id, body.text, actor=acting(request))


@operation("POST /approvals/{task_id}/revoke", permission=(Permission.VOTE, Permission.OPERATE))
async def revoke_approval(services: Services, request: RequestContext, task_id: str, body: RevokeApproval) -> Task:
    """Take an approval back. Those whose approval counts can revoke it; otherwise it takes an operator."""
    account = acting(request)
    check_id(task_id)
    gate, people = gate_for(await get(services.stores, task_id)), await load_people(services.stores)
    has_approved = account in approvals_service.approvers(gate, people.directory)
    request.require(Permission.VOTE if has_approved else Permission.OPERATE)  # also of the token, if there is one
    return await approvals_service.revoke(services.stores, task_id, body.reason, actor=account)


@operation("POST /approvals/{task_id}/dismiss", permission=Permission.ADMINISTER)
async def dismiss_request(services: Services, request: RequestContext, task_id: str, body: DismissRequest) -> Task:
    """Set a request for changes aside."""
    check_id(task_id)
    return await approvals_service.dismiss(
        services.stores, task_id, normal_id(body.voter), body.reason, actor=acting(request)
    )


@operation("POST /approvals/{task_id}/break-glass", permission=Permission.BREAK_GLASS, takes_key=False)
async def break_glass(services: Services, request: RequestContext, task_id: str, body: BreakGlass) -> Task:
    """Let it run in an emergency. This is not an approval: others are asked to review the task afterwards."""
    check_id(task_id)
    at = await confirmed_at(services, request, body.password)
    return await approvals_service.break_glass(
        services.stores, task_id, body.reason, actor=acting(request), authenticated_at=at
    )


# Delegations.


_FURTHEST_MS = 366 * 86_400_000


@operation("GET /delegations", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_delegations(services: Services, request: RequestContext, query: ListDelegations) -> Page[Delegation]:
    """Who answers for whom. The oldest first; ended ones are shown for 90 days."""
    account = None if query.account is None else account_id(query.account)
    found = await delegations.list_delegations(services.stores, account)
    return cut("delegations", query, [each for each in found if _is_shown(request, each)])


def _is_shown(request: RequestContext, delegation: Delegation) -> bool:
    """Whether the caller reads a delegation; a limited account reads its own."""
    scope = scope_of(request.caller)
    return scope is None or scope.account in (delegation.delegator, delegation.delegate)


@operation("POST /delegations", permission=Permission.VOTE, others=Permission.ADMINISTER)
async def create_delegation(services: Services, request: RequestContext, body: NewDelegation) -> Delegation:
    """Delegate your votes, in a session with a recent password check. An admin can create a delegation for another
    account."""
    account = voter(request)
    delegator = account if body.delegator is None else normal_id(body.delegator)
    if request.access is RouteAccess.OWN and delegator != account:
        raise NotPermitted(f"{account} cannot decide on a delegation of {delegator}: only {delegator} or an admin can")
    require_fresh_session(services, request)
    now = services.stores.clock.now()
    starts_at = max(_at(body.starts, now), now)
    if starts_at > now + _FURTHEST_MS:
        raise InvalidDelegation("a delegation starts at most 366 days from now")
    new = Delegation(
        id="",
        delegator=delegator,
        delegate=body.delegate,
        starts_at=starts_at,
        ends_at=_at(body.ends, starts_at),
        cascades=body.cascades,
        names=frozenset(body.names),
        tags=frozenset(body.tags),
        resource_types=frozenset(body.resource_types),
        from_level=body.from_level,
        to_level=body.to_level,
    )
    return await delegations.create(services.stores, new, actor=account)


def _at(value: float | datetime, since: int) -> int:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else since + round(value * 1000)


@operation("GET /delegations/{delegation_id}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_delegation(services: Services, request: RequestContext, delegation_id: str) -> Delegation:
    """One delegation."""
    found = await delegations.DELEGATIONS.get(services.stores, delegation_id) if is_task_id(delegation_id) else None
    if found is None or not _is_shown(request, found.record):
        raise delegations.unknown(delegation_id)
    return found.record


@operation("DELETE /delegations/{delegation_id}", permission=Permission.VOTE, others=Permission.ADMINISTER)
async def revoke_delegation(services: Services, request: RequestContext, delegation_id: str) -> Delegation:
    """End a delegation. It ends immediately; votes that were given under it stay valid."""
    delegation = await get_delegation(services, request, delegation_id)
    if request.access is RouteAccess.OWN:
        await check_own(services, request, delegation.delegator, delegations.unknown(delegation_id))
    return await delegations.revoke(services.stores, delegation_id, actor=acting(request))
