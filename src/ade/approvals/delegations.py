"""Delegations in the store: create, revoke, and list who votes on behalf of whom. For the delegator or an admin."""

import re
from collections.abc import Sequence

from msgspec import structs

from ade.accounts.authorization import password_change_needed
from ade.accounts.model import InvalidDelegation, Permission, UnknownDelegation
from ade.accounts.users import find
from ade.approvals.model import (
    CYCLE_FOUND,
    DELEGATION_CREATED,
    DELEGATION_REVOKED,
    MAX_DELEGATION_MS,
    Delegation,
    name_fits,
)
from ade.approvals.risk import RiskLevel
from ade.errors import NotPermitted
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.stores.repository import Repository, decided
from ade.tasks.enqueue import fresh_id

RETENTION_MS = 90 * 86_400_000  # after its end, to explain why a vote counted
DELEGATIONS = Repository("delegation", Delegation, lambda delegation: delegation.ends_at + RETENTION_MS)


_WILD = re.compile(r"[*?\[]")


def check_delegation(new: Delegation, others: Sequence[Delegation]) -> None:
    """Raise InvalidDelegation if it could never apply, contradicts another one, or would close a cycle."""
    if new.delegator == new.delegate:
        raise InvalidDelegation("an account cannot delegate to itself")
    if not new.starts_at < new.ends_at <= new.starts_at + MAX_DELEGATION_MS:
        raise InvalidDelegation("a delegation ends after it starts, and at most 90 days later")
    if new.from_level.rank > new.to_level.rank:
        raise InvalidDelegation(
            f"there are no risk levels from {new.from_level} to {new.to_level}; from_level must be the lower one"
        )
    if closes_cycle(new, others):
        raise InvalidDelegation(f"{new.delegate} has delegated to {new.delegator} already, directly or through others")
    for other in others:
        if _contradict(new, other):
            raise InvalidDelegation(
                f"{new.delegator} has delegated some of this to {other.delegate} already (delegation {other.id});"
                " revoke that one, or choose another time or other conditions"
            )


def closes_cycle(new: Delegation, others: Sequence[Delegation]) -> bool:
    """Whether, with this delegation, an account would vote for itself through others."""
    return new.delegator in _reachable(new.delegate, new, others)


def _contradict(one: Delegation, other: Delegation) -> bool:
    """Whether one account has delegated the same thing to two others for overlapping times."""
    return (
        one.delegator == other.delegator
        and one.delegate != other.delegate
        and not other.is_revoked
        and _at_once(one, other)
        and (one.task_id == other.task_id or not one.task_id or not other.task_id)
        and _share_names(one.names, other.names)
        and _share(one.tags, other.tags)
        and _share(one.resource_types, other.resource_types)
        and one.from_level.rank <= other.to_level.rank
        and other.from_level.rank <= one.to_level.rank
    )


def _at_once(one: Delegation, other: Delegation) -> bool:
    return one.starts_at < other.ends_at and other.starts_at < one.ends_at


def _share(some: frozenset[str], others: frozenset[str]) -> bool:
    return not some or not others or not some.isdisjoint(others)


def _share_names(some: frozenset[str], others: frozenset[str]) -> bool:
    return not some or not others or any(_may_meet(one, other) for one in some for other in others)


def _may_meet(one: str, other: str) -> bool:
    """Whether some name could match both. Of two patterns only the literal prefixes are compared, so false positives
    are possible."""
    if name_fits(one, other) or name_fits(other, one):
        return True
    if not _WILD.search(one) or not _WILD.search(other):
        return False
    begin, beginning = _WILD.split(one)[0], _WILD.split(other)[0]
    return begin.startswith(beginning) or beginning.startswith(begin)


def _reachable(start: str, new: Delegation, others: Sequence[Delegation]) -> set[str]:
    """Return all accounts that could vote for `start` at some time while the new one applies, whatever the
    conditions."""
    found, frontier = set[str](), [start]
    while frontier:
        here = frontier.pop()
        for one in others:
            is_meant = one.delegator == here and not one.is_revoked and _at_once(one, new)
            if is_meant and one.delegate not in found:
                found.add(one.delegate)
                frontier.append(one.delegate)
    return found


async def create(stores: Stores, request: Delegation, *, actor: str) -> Delegation:
    """Store a delegation under a new ID. A start in the past becomes now.

    Raises InvalidDelegation, UnknownAccount, NotPermitted if the actor is neither the delegator nor an admin, and
    PasswordChangeNeeded for a delegator whose password another account has set.
    """
    delegator = (await find(stores, request.delegator)).record
    await _check_actor(stores, actor, delegator.id)
    if actor == delegator.id and delegator.must_change_password:
        raise password_change_needed(delegator.id, delegator.password_set_by)
    if not delegator.is_active or not delegator.is_human:
        raise InvalidDelegation(f"{delegator.id} has nothing to delegate: only active people can vote")
    delegate = await _able_delegate(stores, request.delegate)
    now = stores.clock.now()
    new = structs.replace(
        request,
        id=fresh_id(now),
        delegator=delegator.id,
        delegate=delegate,
        starts_at=max(request.starts_at, now),
        is_revoked=False,
    )
    check_delegation(new, await load_delegations(stores))
    put = DELEGATIONS.put(new.id, new, seen=0)
    await stores.documents.write([put], [_event(DELEGATION_CREATED, new, now, actor)])
    await report_cycle(stores, new, actor)
    return new


async def _able_delegate(stores: Stores, account: str) -> str:
    user = (await find(stores, account)).record
    if not user.is_human:
        raise InvalidDelegation(f"{user.id} is a service account, which cannot vote")
    if not user.is_active:
        raise InvalidDelegation(f"{user.id} is deactivated and cannot vote")
    if Permission.VOTE not in user.permissions:
        raise InvalidDelegation(f"{user.id} may not vote; make it a reviewer first")
    return user.id


async def report_cycle(stores: Stores, new: Delegation, actor: str) -> None:
    """Log an event if a new delegation closes a cycle.

    Two concurrent creates do not see each other. Votes are safe, because no account appears twice in a chain.
    """
    others = [other for other in await load_delegations(stores) if other.id != new.id]
    if closes_cycle(new, others):
        await stores.documents.write([], [_event(CYCLE_FOUND, new, stores.clock.now(), actor)])


async def revoke(stores: Stores, delegation_id: str, *, actor: str) -> Delegation:
    """End a delegation immediately; repeating it has no effect. Raises UnknownDelegation and NotPermitted."""

    async def step() -> Delegation:
        found = await DELEGATIONS.get(stores, delegation_id)
        if found is None:
            raise unknown(delegation_id)
        await _check_actor(stores, actor, found.record.delegator)
        if found.record.is_revoked:
            return found.record
        after = structs.replace(found.record, is_revoked=True)
        event = _event(DELEGATION_REVOKED, after, stores.clock.now(), actor)
        await stores.documents.write([DELEGATIONS.put(after.id, after, seen=found.version)], [event])
        return after

    return await decided(step)


def unknown(delegation_id: str) -> UnknownDelegation:
    """Return the error for a delegation that does not exist."""
    return UnknownDelegation(f"no delegation {delegation_id[:60]!r} exists", advice=UnknownDelegation.usual_advice)


async def load_delegations(stores: Stores) -> Sequence[Delegation]:
    """Load all stored delegations, including ended ones, in one read."""
    return [stored.record for stored in (await DELEGATIONS.all(stores)).values()]


async def list_delegations(stores: Stores, account: str | None = None) -> list[Delegation]:
    """List delegations, oldest first; with an account, those where it is the delegator or the delegate."""
    stored = await load_delegations(stores)
    return [each for each in stored if account is None or account in (each.delegator, each.delegate)]


async def _check_actor(stores: Stores, actor: str, delegator: str) -> None:
    if actor == delegator:
        return
    user = (await find(stores, actor)).record
    if Permission.ADMINISTER not in user.permissions:
        raise NotPermitted(f"{user.id} cannot decide on a delegation of {delegator}: only {delegator} or an admin can")


def conditions_of(delegation: Delegation) -> dict[str, object]:
    """Return the conditions of a delegation for display, without those that match everything."""
    sets = {"names": delegation.names, "tags": delegation.tags, "resource_types": delegation.resource_types}
    shown: dict[str, object] = {name: sorted(values) for name, values in sets.items() if values}
    if delegation.from_level is not RiskLevel.LOW:
        shown["from_level"] = str(delegation.from_level)
    if delegation.to_level is not RiskLevel.CRITICAL:
        shown["to_level"] = str(delegation.to_level)
    if delegation.task_id:
        shown["task_id"] = delegation.task_id
    return shown


def _event(kind: str, delegation: Delegation, now: int, actor: str) -> Event:
    payload: dict[str, object] = {
        "delegation": delegation.id,
        "delegator": delegation.delegator,
        "delegate": delegation.delegate,
        "starts_at": delegation.starts_at,
        "ends_at": delegation.ends_at,
        "cascades": delegation.cascades,
        "conditions": conditions_of(delegation),
    }
    return Event(type=kind, at=now, actor=actor, payload=payload)
