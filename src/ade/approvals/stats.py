"""Approval statistics: what is pending and for how long, how approvals ended recently, and how long that took."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum, auto
from typing import Any

from msgspec import Struct

from ade.approvals.model import Decision, Gate, GateState
from ade.approvals.review_requests import review_of
from ade.approvals.risk import RiskLevel
from ade.approvals.views import PendingApproval, inbox, waiting
from ade.events.model import APPROVAL_APPROVED, APPROVAL_REJECTED, APPROVAL_RESPONDED, Event
from ade.stores.ports import Stores
from ade.tasks.changes import CHANGES_REQUESTED

USUAL_WINDOW_MS = 7 * 86_400_000
_SAMPLE = 50_000  # events read at most, the newest
_OWN_SAMPLE = 10_000  # and for one account
_PAGE = 500
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_MEDIAN, _SLOW = 0.5, 0.95
_VOTES = {
    APPROVAL_APPROVED: Decision.APPROVE,
    APPROVAL_REJECTED: Decision.REJECT,
    APPROVAL_RESPONDED: Decision.RESPOND,
    CHANGES_REQUESTED: Decision.REQUEST_CHANGES,
}


class ApprovalOutcome(StrEnum):
    """How an approval ended, as reviewers decided: what happened to the task later does not count."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    APPROVED = auto()
    REJECTED = auto()
    CHANGES_REQUESTED = auto()
    RESPONDED = auto()
    EXPIRED = auto()  # no decision in time, or approved and not used in time
    WITHDRAWN = auto()  # cancelled or edited before it was decided
    BYPASSED = auto()
    AUTOMATIC = auto()  # approved by its policy, without reviewers


ANSWERED = frozenset(
    {
        ApprovalOutcome.APPROVED,
        ApprovalOutcome.REJECTED,
        ApprovalOutcome.CHANGES_REQUESTED,
        ApprovalOutcome.RESPONDED,
    }
)  # decided by reviewers
_OUTCOMES: Mapping[GateState, ApprovalOutcome] = {
    GateState.REJECTED: ApprovalOutcome.REJECTED,
    GateState.RESPONDED: ApprovalOutcome.RESPONDED,
    GateState.EXPIRED: ApprovalOutcome.EXPIRED,
    GateState.CANCELLED: ApprovalOutcome.WITHDRAWN,
    GateState.SUPERSEDED: ApprovalOutcome.WITHDRAWN,
    GateState.CHANGES_REQUESTED: ApprovalOutcome.CHANGES_REQUESTED,
}


class WaitingApprovals(Struct, frozen=True, kw_only=True):
    """The pending approvals."""

    count: int = 0
    blocked: int = 0  # of these, the remaining accounts cannot meet the rules
    due_soon: int = 0  # of these, expiring within an hour
    by_level: dict[RiskLevel, int] = {}
    under_hour: int = 0  # waiting for less than an hour
    under_day: int = 0  # for less than a day, but not less than an hour
    over_day: int = 0
    oldest_ms: int | None = None


class EndedApprovals(Struct, frozen=True, kw_only=True):
    """How approvals ended. Times run from the opening to the decision, and cover only decisions by reviewers."""

    outcomes: dict[ApprovalOutcome, int] = {}
    median_ms: int | None = None
    p95_ms: int | None = None


class PolicyStats(Struct, frozen=True, kw_only=True):
    """The figures of one policy."""

    policy: str
    waiting: int
    ended: EndedApprovals


class ApprovalStats(Struct, frozen=True, kw_only=True):
    """The figures of all policies. `since` is the start of the window: later than requested if the log is too long."""

    at: int
    since: int
    waiting: WaitingApprovals
    ended: EndedApprovals
    policies: list[PolicyStats]


async def approval_stats(stores: Stores, window_ms: int = USUAL_WINDOW_MS) -> ApprovalStats:
    """Compute the figures from the gates of tasks in the newest 50,000 events, as far as these tasks are still
    stored."""
    now = stores.clock.now()
    items = await waiting(stores)
    events = await stores.events.newest(_SAMPLE)
    since = now - window_ms
    if len(events) >= _SAMPLE:
        since = max(since, events[0].at)
    ended = [gate for gate in await _gates(stores, events, since) if since <= _ended_at(gate) <= now]
    names = sorted({gate.policy.id for gate in ended} | {item.policy for item in items})
    return ApprovalStats(
        at=now,
        since=since,
        waiting=_waiting(items, now),
        ended=_ended(ended),
        policies=[
            PolicyStats(
                policy=name,
                waiting=sum(item.policy == name for item in items),
                ended=_ended([gate for gate in ended if gate.policy.id == name]),
            )
            for name in names
        ],
    )


async def _gates(stores: Stores, events: Iterable[Event], since: int) -> list[Gate]:
    """Return all ended gates of the tasks in these events."""
    affected = dict.fromkeys(
        event.task_id for event in events if event.task_id and event.at >= since and _is_about_approval(event)
    )
    ids, found = list(affected), list[Gate]()
    for start in range(0, len(ids), _PAGE):
        for task in await stores.tasks.get(ids[start : start + _PAGE]):
            gates = () if task is None else review_of(task).gates
            found += [gate for gate in gates if outcome_of(gate) is not None]
    return found


def _is_about_approval(event: Event) -> bool:
    return "approval" in event.payload or event.type in ("task.cancelled", "task.edited")


def outcome_of(gate: Gate) -> ApprovalOutcome | None:
    """Return the outcome of a gate, or None while it is pending."""
    if gate.is_automatic:
        return ApprovalOutcome.AUTOMATIC
    if gate.is_bypassed:
        return ApprovalOutcome.BYPASSED
    if gate.state is GateState.SUPERSEDED and _asks_for_changes(gate):
        return ApprovalOutcome.CHANGES_REQUESTED
    if gate.state in (GateState.OPEN, GateState.BLOCKED):
        return None
    return _OUTCOMES.get(gate.state, ApprovalOutcome.APPROVED)  # consumed, stale or revoked: it was approved before


def _asks_for_changes(gate: Gate) -> bool:
    return any(vote.decision is Decision.REQUEST_CHANGES and not vote.is_dismissed for vote in gate.votes)


def _ended_at(gate: Gate) -> int:
    if outcome_of(gate) is ApprovalOutcome.CHANGES_REQUESTED and gate.votes:
        return gate.votes[-1].at  # when changes were requested; the edit that followed might have taken days
    return gate.opened_at if gate.decided_at is None else gate.decided_at


def _ended(gates: Sequence[Gate]) -> EndedApprovals:
    outcomes = dict.fromkeys(ApprovalOutcome, 0)
    for gate in gates:
        outcomes[outcome_of(gate) or ApprovalOutcome.APPROVED] += 1
    times = sorted(_ended_at(gate) - gate.opened_at for gate in gates if outcome_of(gate) in ANSWERED)
    return EndedApprovals(outcomes=outcomes, median_ms=percentile(times, _MEDIAN), p95_ms=percentile(times, _SLOW))


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """Return the smallest value that this share of all values does not exceed, or None."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _waiting(items: Sequence[PendingApproval], now: int) -> WaitingApprovals:
    ages = [now - item.opened_at for item in items]
    return WaitingApprovals(
        count=len(items),
        blocked=sum(item.state is GateState.BLOCKED for item in items),
        due_soon=sum(item.due_at - now < _HOUR_MS for item in items),
        by_level={level: sum(item.level is level for item in items) for level in RiskLevel},
        under_hour=sum(age < _HOUR_MS for age in ages),
        under_day=sum(_HOUR_MS <= age < _DAY_MS for age in ages),
        over_day=sum(age >= _DAY_MS for age in ages),
        oldest_ms=max(ages, default=None),
    )


# The figures of one account.


class UserStats(Struct, frozen=True, kw_only=True):
    """The figures of one account. `approved`, `rejected`, and `response_ms` cover today, in UTC."""

    account: str
    pending: int
    approved: int
    rejected: int
    response_ms: int | None = None  # on average, from the opening of a gate to the vote
    last_at: int | None = None
    last_action: str | None = None  # the type of its event


async def user_stats(stores: Stores, account: str) -> UserStats:
    """Compute today's figures from the newest 10,000 events; on a busier day, only from its last part."""
    own = [event for event in await stores.events.newest(_OWN_SAMPLE) if event.actor == account]
    acts = [event for event in own if event.type.startswith("approval.")]
    midnight = _midnight(stores.clock.now())
    votes = [event for event in acts if event.type in _VOTES and event.at >= midnight]
    decisions = [_VOTES[event.type] for event in votes]
    times = await _response_times(stores, votes)
    return UserStats(
        account=account,
        pending=len(await inbox(stores, account)),
        approved=decisions.count(Decision.APPROVE),
        rejected=decisions.count(Decision.REJECT),
        response_ms=round(sum(times) / len(times)) if times else None,
        last_at=acts[-1].at if acts else None,
        last_action=acts[-1].type if acts else None,
    )


def _midnight(now: int) -> int:
    day = datetime.fromtimestamp(now / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return round(day.timestamp() * 1000)


async def _response_times(stores: Stores, votes: list[Event]) -> list[int]:
    """Return the times of votes whose task is still stored."""
    tasks = await stores.tasks.get(list(dict.fromkeys(vote.task_id for vote in votes if vote.task_id)))
    opened: dict[Any, int] = {
        gate.id: gate.opened_at for task in tasks if task is not None for gate in review_of(task).gates
    }
    return [vote.at - opened[key] for vote in votes if (key := vote.payload.get("approval")) in opened]
