"""Who answers for whom: for a while, under conditions, and never in a ring."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ade.core.approvals.risk import RiskLevel
from ade.core.errors import InvalidDelegation

LONGEST_MS = 90 * 86_400_000
DEEPEST = 3

Chain = tuple[str, ...]  # from whose slot it is to whoever answers, both included


class Subject(Struct, frozen=True, kw_only=True):
    """What of a task the conditions of delegations and policies look at."""

    name: str
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    level: RiskLevel = RiskLevel.LOW


class Delegation(Struct, frozen=True, kw_only=True):
    """`delegator` lets `delegate` answer in his place. Empty conditions mean everything."""

    id: str
    delegator: str
    delegate: str
    starts_at: int
    ends_at: int
    cascades: bool = False  # whether the delegate may pass it on
    is_revoked: bool = False
    names: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL

    def holds(self, subject: Subject, now: int) -> bool:
        """Judged when somebody votes, by the store's clock."""
        return (
            not self.is_revoked
            and self.starts_at <= now < self.ends_at
            and (not self.names or subject.name in self.names)
            and (not self.tags or not self.tags.isdisjoint(subject.tags))
            and (not self.resource_types or not self.resource_types.isdisjoint(subject.resource_types))
            and self.from_level.rank <= subject.level.rank <= self.to_level.rank
        )


def check_delegation(new: Delegation, others: Sequence[Delegation]) -> None:
    """Raise InvalidDelegation for one that nobody could ever use, or that would close a ring."""
    if new.delegator == new.delegate:
        raise InvalidDelegation("nobody delegates to himself")
    if not new.starts_at < new.ends_at <= new.starts_at + LONGEST_MS:
        raise InvalidDelegation("a delegation ends after it starts, and at most 90 days later")
    if new.from_level.rank > new.to_level.rank:
        raise InvalidDelegation(f"no risk is from {new.from_level} to {new.to_level}; from_level is the lower one")
    if new.delegator in _reachable(new.delegate, new, others):
        raise InvalidDelegation(f"{new.delegate} has delegated to {new.delegator} already, directly or through others")


def _reachable(start: str, new: Delegation, others: Sequence[Delegation]) -> set[str]:
    """Everybody who may answer for `start` at some time when the new one holds, whatever the conditions."""
    found, frontier = set[str](), [start]
    while frontier:
        here = frontier.pop()
        for one in others:
            overlaps = one.starts_at < new.ends_at and new.starts_at < one.ends_at
            if one.delegator == here and not one.is_revoked and overlaps and one.delegate not in found:
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
