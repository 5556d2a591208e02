"""Who answers for whom: for a while, under conditions, and never in a ring."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from ade.core.accounts.errors import InvalidDelegation
from ade.core.approvals.risk import RiskLevel

LONGEST_MS = 90 * 86_400_000
DEEPEST = 3

DELEGATION_CREATED, DELEGATION_REVOKED = "delegation.created", "delegation.revoked"
RING_FOUND = "delegation.ring_found"
_WILD = re.compile(r"[*?\[]")

Chain = tuple[str, ...]  # from whose slot it is to whoever answers, both included


class Subject(Struct, frozen=True, kw_only=True):
    """What of a task the conditions of delegations and policies look at."""

    name: str
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    level: RiskLevel = RiskLevel.LOW
    task_id: str = ""


class Delegation(Struct, frozen=True, kw_only=True):
    """`delegator` lets `delegate` answer in his place. Empty conditions mean everything."""

    id: str
    delegator: str
    delegate: str
    starts_at: int
    ends_at: int
    cascades: bool = False  # whether the delegate may pass it on
    is_revoked: bool = False
    names: frozenset[str] = frozenset()  # `*`, `?` and `[...]` stand for others, as in names of files
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    task_id: str = ""  # for this one task alone

    def holds(self, subject: Subject, now: int) -> bool:
        """Judged when somebody votes, by the store's clock."""
        return (
            not self.is_revoked
            and self.starts_at <= now < self.ends_at
            and (not self.names or any(_fits(subject.name, pattern) for pattern in self.names))
            and (not self.tags or not self.tags.isdisjoint(subject.tags))
            and (not self.resource_types or not self.resource_types.isdisjoint(subject.resource_types))
            and self.from_level.rank <= subject.level.rank <= self.to_level.rank
            and self.task_id in ("", subject.task_id)
        )


def check_delegation(new: Delegation, others: Sequence[Delegation]) -> None:
    """Raise InvalidDelegation for one that nobody could ever use, or that would close a ring."""
    if new.delegator == new.delegate:
        raise InvalidDelegation("nobody delegates to himself")
    if not new.starts_at < new.ends_at <= new.starts_at + LONGEST_MS:
        raise InvalidDelegation("a delegation ends after it starts, and at most 90 days later")
    if new.from_level.rank > new.to_level.rank:
        raise InvalidDelegation(f"no risk is from {new.from_level} to {new.to_level}; from_level is the lower one")
    if closes_ring(new, others):
        raise InvalidDelegation(f"{new.delegate} has delegated to {new.delegator} already, directly or through others")
    for other in others:
        if _contradict(new, other):
            raise InvalidDelegation(
                f"{new.delegator} has delegated some of this to {other.delegate} already (delegation {other.id});"
                " revoke that one, or choose another time or other conditions"
            )


def closes_ring(new: Delegation, others: Sequence[Delegation]) -> bool:
    """Whether, with this one, somebody would answer for himself through others."""
    return new.delegator in _reachable(new.delegate, new, others)


def _contradict(one: Delegation, other: Delegation) -> bool:
    """Whether one person has handed the same thing to two others at once."""
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


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _may_meet(one: str, other: str) -> bool:
    """Whether some name may fit both. Of two patterns only their plain beginnings are compared: rather yes than no."""
    if _fits(one, other) or _fits(other, one):
        return True
    if not _WILD.search(one) or not _WILD.search(other):
        return False
    begin, beginning = _WILD.split(one)[0], _WILD.split(other)[0]
    return begin.startswith(beginning) or beginning.startswith(begin)


def _reachable(start: str, new: Delegation, others: Sequence[Delegation]) -> set[str]:
    """Everybody who may answer for `start` at some time when the new one holds, whatever the conditions."""
    found, frontier = set[str](), [start]
    while frontier:
        here = frontier.pop()
        for one in others:
            is_meant = one.delegator == here and not one.is_revoked and _at_once(one, new)
            if is_meant and one.delegate not in found:
                found.add(one.delegate)
                frontier.append(one.delegate)
    return found


def chains_to(voter: str, delegations: Iterable[Delegation], subject: Subject, now: int) -> Iterator[Chain]:
    """Every way in which this one answers for somebody, its own slot first, then the shortest.

    Two writes may have closed a ring that neither of them saw: nobody is in a chain twice.
    """
    usable = [one for one in delegations if one.holds(subject, now)]
    frontier: list[Chain] = [(voter,)]
    while frontier:
        following = []
        for chain in frontier:
            yield chain
            if len(chain) > DEEPEST:
                continue
            for one in usable:
                is_first_link = len(chain) == 1  # whoever stands before it must have said that it may be passed on
                if one.delegate == chain[0] and one.delegator not in chain and (is_first_link or one.cascades):
                    following.append((one.delegator, *chain))
        frontier = following
