"""Answers at a gate. Each is about the digest that was looked at; programs never give one, on none of these ways.

A vote is the same however often it is sent, so none of this takes an Idempotency-Key: what is kept of such a request
would be a quick hash of the password in it.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field, structs

from ade.accounts.model import InvalidDelegation, Permission, UnknownDelegation, normal_id
from ade.accounts.users import get_user
from ade.approvals import delegations
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.approvals import views as approvals_views
from ade.approvals.errors import UnknownRulebook
from ade.approvals.model import Decision, Delegation, Gate
from ade.approvals.repository import RulebookVersion, load_people
from ade.approvals.risk import RiskLevel
from ade.approvals.rulebook_document import read_rulebook
from ade.approvals.service import BatchVoteResult
from ade.approvals.stats import USUAL_WINDOW_MS, ApprovalStats, approval_stats
from ade.approvals.submission import Findings, PolicyCheckRequest, check
from ade.approvals.views import (
    ApprovalView,
    PendingApproval,
    Snoozed,
    UserStats,
    Voted,
    gate_to_answer,
    view_approval,
    view_vote,
)
from ade.approvals.votes import VoteRequest, gate_for, no_such_gate
from ade.errors import AdeError, InvalidTask, NotPermitted, PayloadTooLarge, StoreError
from ade.server.operations import (
    RequestContext,
    Services,
    account_id,
    acting,
    check_own,
    confirmed_at,
    cut,
    expected_version,
    sign_in_method,
    voter,
)
from ade.server.pagination import Page
from ade.server.request_types import AccountName, Form, PageSize, Password, SecretForm
from ade.server.routing import RouteAccess
from ade.tasks.api.tasks import check_id
from ade.tasks.definitions import arguments_by_name
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import Task
from ade.tasks.service import get

# What is said about approvals and delegations.


# The whole digest of what was looked at, or at least this much of its beginning.
SeenDigest = Annotated[str, Meta(min_length=8, max_length=64)]
Why = Annotated[str, Meta(max_length=2_000)]
NeededWhy = Annotated[str, Meta(min_length=1, max_length=2_000)]
Account = Annotated[AccountName, Meta(min_length=1, max_length=100)]
ApprovalId = Annotated[str, Meta(max_length=60)]  # of a gate; without it the newest that waits for an answer
Words = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=50)]
_YEAR_S = 366 * 86_400.0
FromNow = Annotated[float, Meta(ge=0, le=_YEAR_S)]  # seconds


class ListApprovals(Form):
    mine: bool | None = None  # what one may answer oneself; otherwise what anybody may. Usual for who has an account
    cursor: str | None = None
    limit: PageSize = 50


class GetApprovalStats(Form):
    over: Annotated[float, Meta(ge=1, le=_YEAR_S)] | None = None  # how far to look back, in seconds; a week


class AnswerApproval(SecretForm, kw_only=True):
    """A high risk takes a password given within the last five minutes: here, or before in this session."""

    decision: Decision
    digest: SeenDigest
    reason: Why = ""  # for changes it says which
    for_whom: Account | None = None  # in the place of somebody who delegated to oneself
    approval: ApprovalId | None = None
    password: Password | None = None


class BatchItem(Form, kw_only=True):
    task_id: Annotated[str, Meta(max_length=60)]
    digest: SeenDigest
    approval: ApprovalId | None = None


class AnswerApprovals(SecretForm, kw_only=True):
    decision: Literal["approve", "reject"]
    items: Annotated[list[BatchItem], Meta(min_length=1, max_length=50)]
    reason: Why = ""
    password: Password | None = None


class DelegateApproval(Form, kw_only=True):
    to: Account
    approval: ApprovalId | None = None


class AmendApproval(Form, kw_only=True):
    """What shall be different; at least one of the two."""

    digest: SeenDigest
    args: dict[str, Any] | None = None  # all of them
    description: Annotated[str, Meta(max_length=10_000)] | None = None
    reason: Why = ""


class SnoozeApproval(Form):
    seconds: Annotated[float, Meta(ge=1, le=7 * 86_400)] = 3_600.0


class NewComment(Form, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=4_000)]


class RevokeApproval(Form, kw_only=True):
    reason: NeededWhy


class DismissRequest(Form, kw_only=True):
    voter: Account  # who has asked for changes
    reason: NeededWhy


class BreakGlass(SecretForm, kw_only=True):
    """It takes a password given within the last five minutes: here, or before in this session."""

    reason: NeededWhy
    password: Password | None = None


class ListDelegations(Form):
    account: Account | None = None  # those that it has given or was given
    cursor: str | None = None
    limit: PageSize = 50


class NewDelegation(Form, kw_only=True):
    """Times are moments, or seconds: of `starts` from now, of `ends` from the start. Empty conditions: everything."""

    delegate: Account
    ends: FromNow | datetime
    starts: FromNow | datetime = 0.0
    delegator: Account | None = None  # otherwise oneself; an admin may name others
    names: Words = field(default_factory=list)
    tags: Words = field(default_factory=list)
    resource_types: Words = field(default_factory=list)
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    cascades: bool = False  # whoever gets it may pass it on


# Approvals: what waits for people, all about one of them, and what people say and put off.


async def list_approvals(office: Services, asked: RequestContext, query: ListApprovals) -> Page[PendingApproval]:
    """The most urgent first. What somebody has put off is left out of what he may answer."""
    account, mine = acting(asked), query.mine
    if mine is None:
        mine = (await load_people(office.stores)).directory.get(account) is not None
    items = (
        await approvals_views.inbox(office.stores, account) if mine else await approvals_views.waiting(office.stores)
    )
    return cut("approvals", query, items)


async def get_approval_stats(office: Services, asked: RequestContext, query: GetApprovalStats) -> ApprovalStats:
    window_ms = USUAL_WINDOW_MS if query.over is None else round(query.over * 1000)
    return await approval_stats(office.stores, window_ms)


async def get_account_approval_stats(office: Services, asked: RequestContext, account: str) -> UserStats:
    """Raises UnknownAccount: that somebody who never was has answered nothing is no answer."""
    return await approvals_views.user_stats(office.stores, (await get_user(office.stores, account_id(account))).id)


async def get_approval(office: Services, asked: RequestContext, task_id: str) -> ApprovalView:
    """Large arguments are shown whole: nobody approves a reference."""
    check_id(task_id)
    task = await get(office.stores, task_id)
    people, now = await load_people(office.stores), office.stores.clock.now()
    found = view_approval(task, await office.payloads.load(task.args), people, now=now)
    if found is None:
        raise no_such_gate(task)
    return found


async def comment_on_approval(office: Services, asked: RequestContext, task_id: str, body: NewComment) -> Task:
    """No vote, so that programs may do it too."""
    check_id(task_id)
    return await approvals_service.comment(office.stores, task_id, body.text, actor=acting(asked))


async def snooze_approval(office: Services, asked: RequestContext, task_id: str, body: SnoozeApproval) -> Snoozed:
    """It can be answered all the same."""
    account = voter(asked)
    check_id(task_id)
    until = office.stores.clock.now() + round(body.seconds * 1000)
    await approvals_service.snooze(office.stores, task_id, account, until)
    return Snoozed(task_id=task_id, account=account, until=until)


async def gate_to_vote(office: Services, task_id: str, approval: str | None) -> tuple[Task, Gate]:
    """The task, and the gate of this id; without one the newest that waits. Raises UnknownTask,
    UnknownApproval and NoGate."""
    check_id(task_id)
    task = await get(office.stores, task_id)
    if approval is None:
        gate = gate_to_answer(task)
    else:
        named, _, number = approval.rpartition(".")
        gate = gate_to_answer(task, number) if named == task_id and number else None
    if gate is None:
        raise no_such_gate(task, approval)
    return task, gate


async def respond_to_approval(office: Services, asked: RequestContext, task_id: str, body: AnswerApproval) -> Voted:
    account = voter(asked)
    if body.decision is Decision.REQUEST_CHANGES and not body.reason.strip():
        raise InvalidTask("say which changes are asked for; the reason is what the author gets to read")
    task, gate = await gate_to_vote(office, task_id, body.approval)
    ballot = VoteRequest(
        voter=account,
        decision=body.decision,
        digest=_whole(gate, body.digest),
        reason=body.reason,
        on_behalf_of=None if body.for_whom is None else normal_id(body.for_whom),
        authenticated_at=await confirmed_at(office, asked, body.password),
        via=sign_in_method(asked),
    )
    after = await approvals_service.vote(office.stores, task.id, ballot, gate_id=gate.id)
    return view_vote(after, gate, await load_people(office.stores), now=office.stores.clock.now())


async def respond_to_approvals(office: Services, asked: RequestContext, body: AnswerApprovals) -> Page[BatchVoteResult]:
    """Each is counted by itself, and has its own answer, in the order of the request."""
    account = voter(asked)
    await approvals_service.check_batch(office.stores, len(body.items))
    ballot = VoteRequest(
        voter=account,
        decision=Decision(body.decision),
        digest="",
        reason=body.reason,
        authenticated_at=await confirmed_at(office, asked, body.password),
    )
    return Page(items=[await _answered(office, item, ballot) for item in body.items])


async def _answered(office: Services, item: BatchItem, ballot: VoteRequest) -> BatchVoteResult:
    try:
        _, gate = await gate_to_vote(office, item.task_id, item.approval)
    except StoreError:
        raise
    except AdeError as error:
        return BatchVoteResult(task_id=item.task_id, code=error.code, error=error.detail)
    answered = await approvals_service.one_of_many(office.stores, gate.id, _whole(gate, item.digest), ballot)
    return structs.replace(answered, task_id=item.task_id)


def _whole(gate: Gate, given: str) -> str:
    """The digest of the gate if this is its beginning; any other one is left to be refused."""
    text = given.strip().lower()
    return gate.digest if text and gate.digest.startswith(text) else given


async def delegate_approval(
    office: Services, asked: RequestContext, task_id: str, body: DelegateApproval
) -> Delegation:
    account = voter(asked)
    _, gate = await gate_to_vote(office, task_id, body.approval)
    return await approvals_service.delegate_approval(office.stores, task_id, body.to, actor=account, gate_id=gate.id)


async def amend_approval(office: Services, asked: RequestContext, task_id: str, body: AmendApproval) -> Task:
    """Whoever amends a task has a hand in it: others answer then."""
    account = voter(asked)
    task, gate = await gate_to_vote(office, task_id, None)
    fields: dict[str, Any] = {} if body.description is None else {"description": body.description}
    if body.args is not None:
        _, args = await arguments_by_name(office.stores, task.name, body.args, allow_unknown=True)
        if len(args) > office.payloads.hard_limit:  # before anything is counted
            raise PayloadTooLarge(f"the arguments take {len(args):,} bytes, more than {office.payloads.hard_limit:,}")
        fields["args"] = args
    ballot = VoteRequest(
        voter=account,
        decision=Decision.REQUEST_CHANGES,
        digest=_whole(gate, body.digest),
        reason=body.reason,
        via=sign_in_method(asked),
    )
    return await approvals_service.amend(office.stores, office.payloads, task_id, ballot, **fields)


async def revoke_approval(office: Services, asked: RequestContext, task_id: str, body: RevokeApproval) -> Task:
    """For those who gave it; an approval that others gave takes an admin."""
    account = voter(asked)
    check_id(task_id)
    gate = gate_for(await get(office.stores, task_id))
    if account not in {vote.voter for vote in gate.votes}:
        asked.require(Permission.ADMINISTER)  # of the token too, where it is one
    return await approvals_service.revoke(office.stores, task_id, body.reason, actor=account)


async def dismiss_request(office: Services, asked: RequestContext, task_id: str, body: DismissRequest) -> Task:
    check_id(task_id)
    return await approvals_service.dismiss(
        office.stores, task_id, normal_id(body.voter), body.reason, actor=acting(asked)
    )


async def break_glass(office: Services, asked: RequestContext, task_id: str, body: BreakGlass) -> Task:
    """No approval: others are asked to look at it after the fact."""
    check_id(task_id)
    at = await confirmed_at(office, asked, body.password)
    return await approvals_service.break_glass(
        office.stores, task_id, body.reason, actor=acting(asked), authenticated_at=at
    )


# Delegations: who answers for whom.


_FURTHEST_MS = 366 * 86_400_000


async def list_delegations(office: Services, asked: RequestContext, query: ListDelegations) -> Page[Delegation]:
    """The oldest first; those that are over are shown for 90 days."""
    account = None if query.account is None else account_id(query.account)
    return cut("delegations", query, await delegations.list_delegations(office.stores, account))


async def get_delegation(office: Services, asked: RequestContext, delegation_id: str) -> Delegation:
    kept = await delegations.DELEGATIONS.get(office.stores, delegation_id) if is_task_id(delegation_id) else None
    if kept is None:
        raise _unknown(delegation_id)
    return kept.record


async def create_delegation(office: Services, asked: RequestContext, body: NewDelegation) -> Delegation:
    """Of one's own place; an admin may decide on that of others."""
    account = voter(asked)
    delegator = account if body.delegator is None else normal_id(body.delegator)
    if asked.access is RouteAccess.OWN and delegator != account:
        raise NotPermitted(f"{account} cannot decide on a delegation of {delegator}: only {delegator} or an admin can")
    now = office.stores.clock.now()
    starts_at = max(_at(body.starts, now), now)
    if starts_at > now + _FURTHEST_MS:
        raise InvalidDelegation("a delegation starts at most 366 days from now")
    wanted = Delegation(
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
    return await delegations.create(office.stores, wanted, actor=account)


def _at(given: float | datetime, since: int) -> int:
    return round(given.timestamp() * 1000) if isinstance(given, datetime) else since + round(given * 1000)


async def revoke_delegation(office: Services, asked: RequestContext, delegation_id: str) -> Delegation:
    """It is over at once; votes that were given under it stay as they are."""
    kept = await get_delegation(office, asked, delegation_id)
    if asked.access is RouteAccess.OWN:
        await check_own(office, asked, kept.delegator, _unknown(delegation_id))
    return await delegations.revoke(office.stores, delegation_id, actor=acting(asked))


def _unknown(delegation_id: str) -> UnknownDelegation:
    return UnknownDelegation(f"no delegation {delegation_id[:60]!r} exists", advice=UnknownDelegation.usual_advice)


# What is said about the rulebook.


Rules = dict[str, Any]  # as people write them, and as a version of the rulebook has them
_Word = Annotated[str, Meta(min_length=1, max_length=500)]


class ApplyRulebook(Form, kw_only=True):
    rules: Rules


class ListRulebookVersions(Form):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20  # each with all it says


class CheckPolicies(Form, kw_only=True):
    """Something to do, as far as it is known. Without a score it is assessed from what the store knows."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: Annotated[str, Meta(max_length=200)] | None = None  # that an agent would call
    args: dict[str, Any] = field(default_factory=dict)
    resources: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    tags: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    score: Annotated[float, Meta(ge=0, le=100)] | None = None
    rules: Rules | None = None  # to be tried instead of those in force, by who may operate


# The rulebook: read, applied as a whole, and asked what it would say.


_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


async def get_rulebook(office: Services, asked: RequestContext) -> RulebookVersion:
    """Version 0 says nothing: nobody has applied one yet."""
    return await approvals_repository.newest(office.stores)


async def apply_rulebook(office: Services, asked: RequestContext, body: ApplyRulebook) -> RulebookVersion:
    """If-Match names the version that this one was made from; `*` replaces whichever there is.

    One that says the same as the newest makes no new version. Raises InvalidRulebook and StaleWrite.
    """
    rulebook = read_rulebook(body.rules)
    seen = expected_version(asked, (await approvals_repository.newest(office.stores)).version)
    applied = await approvals_repository.apply(office.stores, rulebook, actor=acting(asked), seen=seen)
    return await approvals_repository.edition(office.stores, applied.version)


async def list_rulebook_versions(
    office: Services, asked: RequestContext, query: ListRulebookVersions
) -> Page[RulebookVersion]:
    """The newest first."""
    return cut("rulebook versions", query, await approvals_repository.history(office.stores))


async def get_rulebook_version(office: Services, asked: RequestContext, version: str) -> RulebookVersion:
    if not _VERSION.fullmatch(version):
        raise UnknownRulebook(f"{version[:60]!r} is no version of the rulebook; they are counted from 1")
    return await approvals_repository.edition(office.stores, int(version))


async def check_policies(office: Services, asked: RequestContext, body: CheckPolicies) -> Findings:
    """Nothing is stored. To try other rules than those in force takes an operator: what rules cost is theirs to say,
    and the server has to follow them to the end. Raises InvalidRulebook, InvalidPolicy and NotPermitted."""
    if body.rules is not None:
        asked.require(Permission.OPERATE)
    question = PolicyCheckRequest(
        name=body.name,
        tool=body.tool,
        arguments=body.args,
        resources=body.resources,
        tags=body.tags,
        score=body.score,
    )
    return await check(office.stores, question, None if body.rules is None else read_rulebook(body.rules))
