"""What somebody may do: permissions come from roles, and from nowhere else."""

from collections.abc import Iterable, Mapping
from enum import StrEnum, auto
from functools import lru_cache


class Permission(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    READ = auto()  # look at tasks, events, locks, people
    ENQUEUE = auto()
    OPERATE = auto()  # cancel, replay, pause, limit, take locks away
    VOTE = auto()
    ADMINISTER = auto()  # people, rules, settings
    BREAK_GLASS = auto()  # let something run in an emergency, without the votes it needs
    WORK = auto()  # claim tasks and finish them


class Role(StrEnum):
    """The roles that give permissions. Any other name is a mark that the rules of reviews can ask for."""

    __hash__ = str.__hash__

    VIEWER = auto()
    OPERATOR = auto()
    REVIEWER = auto()
    ADMIN = auto()
    AGENT = auto()
    WORKER = auto()


PERMISSIONS_OF: Mapping[str, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.OPERATOR: frozenset({Permission.READ, Permission.ENQUEUE, Permission.OPERATE}),
    Role.REVIEWER: frozenset({Permission.READ, Permission.VOTE}),
    Role.ADMIN: frozenset(Permission),
    Role.AGENT: frozenset({Permission.READ, Permission.ENQUEUE}),
    Role.WORKER: frozenset({Permission.READ, Permission.ENQUEUE, Permission.WORK}),
}
FOR_PEOPLE = frozenset({Permission.VOTE, Permission.ADMINISTER, Permission.BREAK_GLASS})  # programs never have these
ROLES_FOR_PEOPLE = frozenset(role for role, given in PERMISSIONS_OF.items() if given & FOR_PEOPLE)


def permissions_of(roles: Iterable[str], *, is_human: bool) -> frozenset[Permission]:
    """All that these roles give together."""
    return _given(frozenset(roles), is_human)


@lru_cache(maxsize=1_000)  # of every request, and few combinations
def _given(roles: frozenset[str], is_human: bool) -> frozenset[Permission]:
    given = frozenset[Permission]().union(*(PERMISSIONS_OF.get(role, frozenset()) for role in roles))
    return given if is_human else given - FOR_PEOPLE
