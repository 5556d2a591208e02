"""What waits for people, and how people have dealt with it. Derived from records and log; nothing is counted up."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from ade.core.approvals.gates import admitting_chain, seats
from ade.core.approvals.opening import People, review_of
from ade.core.approvals.records import AFTER_THE_FACT, UNDECIDED, Decision, Gate, GateState
from ade.core.approvals.risk import RiskLevel
from ade.core.events import APPROVAL_APPROVED, APPROVAL_REJECTED, BYPASSED, CHANGES_REQUESTED, Event
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance.approvals.amending import snoozed
from ade.governance.approvals.situation import load_people
from ade.ports import Stores, TaskQuery

_PAGE = 200
_SAMPLE = 10_000  # events read at most, the newest
_VOTES = {
    APPROVAL_APPROVED: Decision.APPROVE,
    APPROVAL_REJECTED: Decision.REJECT,
    CHANGES_REQUESTED: Decision.REQUEST_CHANGES,
}


class InboxItem(Struct, frozen=True, kw_only=True):
    """A gate at which somebody must answer."""

    task_id: str
    name: str
    description: str | None = None
    author: str | None = None
    priority: int
    approval: str  # the id of the gate
    state: GateState
    digest: str
    step: str  # of a run; "after the fact" once the approval was bypassed
    reason: str
    policy: str
    level: RiskLevel
    score: float | None = None
    opened_at: int
    due_at: int  # until when an answer is of use
    in_batch: bool
    for_whom: str  # whose place it would be answered in; empty: one's own
    may_answer: list[str]
    missing: list[str]


class UserStats(Struct, frozen=True, kw_only=True):
    """`approved`, `rejected` and the response time are those of today, in UTC."""

    account: str
    pending: int
    approved: int
    rejected: int
    response_ms: int | None = None  # on average, from the opening of a gate to the answer
    last_at: int | None = None
    last_action: str | None = None  # the type of its event


class TaskStats(Struct, frozen=True, kw_only=True):
    required: int
    approved: int
    rejected: int
    pending: int  # approvals that are still missing
    quorum_reached: bool


async def inbox(stores: Stores, account: str) -> list[InboxItem]:
    """What this account may still answer, in its own place or for somebody else, and has not put off; the most urgent
    first."""
    people = await load_people(stores)
    return _ordered([item async for item in _items(stores, people, account)])


async def waiting(stores: Stores) -> list[InboxItem]:
    """The same for everybody, also where nobody may answer."""
    people = await load_people(stores)
    return _ordered([item async for item in _items(stores, people, None)])


async def _items(stores: Stores, people: People, account: str | None) -> AsyncIterator[InboxItem]:
    now = stores.clock.now()
    put_off = await snoozed(stores, account) if account is not None else frozenset()
    async for task, gate in _undecided(stores):
        item = _item(task, gate, people, account, now=now)
        if item is not None and gate.id not in put_off:
            yield item


async def _undecided(stores: Stores) -> AsyncIterator[tuple[Task, Gate]]:
    after = None
    while True:
        query = TaskQuery(statuses=frozenset({Status.REVIEWING}), oldest_first=True, after=after, limit=_PAGE)
        page = await stores.tasks.find(query)
        for task in page.tasks:
            gate = review_of(task).gate
            if gate is not None and gate.is_undecided:
                yield task, gate
        if page.next is None:
            break
        after = page.next
    async for task, gate in _after_the_fact(stores):
        yield task, gate


async def _after_the_fact(stores: Stores) -> AsyncIterator[tuple[Task, Gate]]:
    """Of tasks whose approval was bypassed, as far as the newest events tell: such a task may have any status."""
    newest = await stores.events.newest(_SAMPLE)
    bypassed = dict.fromkeys(event.task_id for event in newest if event.type == BYPASSED and event.task_id)
    for task in await stores.tasks.get(list(bypassed)):
        for gate in () if task is None else review_of(task).gates:
            if task is not None and gate.step == AFTER_THE_FACT and gate.is_undecided:
                yield task, gate


def _item(task: Task, gate: Gate, people: People, account: str | None, *, now: int) -> InboxItem | None:
    standing = people.standing(gate, now)
    if standing.state not in UNDECIDED or (account is not None and account not in standing.may_vote):
        return None
    chain = None
    if account is not None:
        chain = admitting_chain(gate, account, None, people.directory, people.delegations, now)
    return InboxItem(
        task_id=task.id,
        name=task.name,
        description=task.description,
        author=task.author_id,
        priority=task.priority,
        approval=gate.id,
        state=standing.state,
        digest=gate.digest,
        step=gate.step,
        reason=gate.reason,
        policy=gate.policy.id,
        level=gate.subject.level,
        score=(task.risk or {}).get("score"),
        opened_at=gate.opened_at,
        due_at=gate.expires_at if task.deadline is None else min(gate.expires_at, task.deadline),
        in_batch=gate.in_batch,
        for_whom=chain[0] if chain else "",
        may_answer=list(standing.may_vote),
        missing=list(standing.missing),
    )


def _ordered(items: list[InboxItem]) -> list[InboxItem]:
    return sorted(items, key=lambda item: (item.priority, item.due_at, -item.level.rank, -(item.score or 0)))


def task_stats(task: Task, people: People, *, now: int) -> TaskStats | None:
    """How far the newest gate is; None where there is none."""
    gate = review_of(task).gate
    if gate is None:
        return None
    required = sum(rule.needed for rule in gate.policy.rules)
    approved = sum(len(filled) for filled in seats(gate, people.directory))
    standing = people.standing(gate, now)
    rejecting = {vote.voter for vote in gate.votes if vote.decision is Decision.REJECT and not vote.is_dismissed}
    return TaskStats(
        required=required,
        approved=approved,
        rejected=len(standing.rejected_by if gate.is_undecided else rejecting),
        pending=required - approved if gate.is_undecided else 0,
        quorum_reached=gate.is_automatic or approved >= required,
    )


async def user_stats(stores: Stores, account: str) -> UserStats:
    """From the newest 10,000 events, as far as they are of today: where more happens in a day, of its last part."""
    own = [event for event in await stores.events.newest(_SAMPLE) if event.actor == account]
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
    """Of votes whose task is still on record."""
    tasks = await stores.tasks.get(list(dict.fromkeys(vote.task_id for vote in votes if vote.task_id)))
    opened: dict[Any, int] = {
        gate.id: gate.opened_at for task in tasks if task is not None for gate in review_of(task).gates
    }
    return [vote.at - opened[key] for vote in votes if (key := vote.payload.get("approval")) in opened]
