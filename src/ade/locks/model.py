"""Records and limits of resource locks: lock specs, lock requests, their state, and rate limits."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from ade.common.gcra import RateState, next_allowed_ms, possible, take
from ade.errors import InvalidLock, InvalidTask, LockRateLimited, TooManyLocks

# Lock specs: a resource and the mode in which to lock it.


MAX_LOCK_SPECS = 100
DEFAULT_PRIORITY = 5  # for lock requests and tasks: 0 is first, 9 is last
PriorityName = Literal["urgent", "high", "normal", "low"]
PRIORITIES: Mapping[str, int] = {"urgent": 1, "high": 3, "normal": DEFAULT_PRIORITY, "low": 7}
_MOST_BYTES = 512


class LockMode(StrEnum):
    """Whether a lock can be shared with other readers."""

    __hash__ = str.__hash__  # faster than Enum.__hash__, which is a Python function

    SHARED = auto()
    EXCLUSIVE = auto()


class LockSpec(Struct, frozen=True):
    """A resource and the mode in which to lock it."""

    resource: str
    mode: LockMode


def read(resource: str) -> LockSpec:
    """Request a shared lock: any number of concurrent readers, but no writer."""
    return LockSpec(resource, LockMode.SHARED)


def write(resource: str) -> LockSpec:
    """Request an exclusive lock: no other holder."""
    return LockSpec(resource, LockMode.EXCLUSIVE)


def lock_specs_of(wanted: Iterable[str | LockSpec]) -> list[LockSpec]:
    """Convert names and specs to specs; a bare name means an exclusive lock. Raises InvalidLock for other types."""
    return [_wish(one) for one in wanted]


def _wish(one: object) -> LockSpec:
    if isinstance(one, str):
        return write(lock_name("resource", one))
    if not isinstance(one, LockSpec):
        raise InvalidLock(f"name resources as text, by read(...) or by write(...), not as {one!r:.120}")
    name = lock_name("resource", one.resource)
    return one if name == one.resource else LockSpec(name, one.mode)


def merged(specs: Iterable[LockSpec]) -> tuple[LockSpec, ...]:
    """Sort the specs and keep one per resource; exclusive wins over shared. Raises InvalidLock."""
    modes: dict[str, LockMode] = {}
    for spec in specs:
        resource = lock_name("resource", spec.resource)
        if not isinstance(spec.mode, LockMode):
            raise InvalidLock(f"{resource} is to be read(...) or to be written with write(...), not {spec.mode!r}")
        if modes.get(resource) is not LockMode.EXCLUSIVE:
            modes[resource] = spec.mode
    if len(modes) > MAX_LOCK_SPECS:
        raise InvalidLock(f"one request may name at most {MAX_LOCK_SPECS} resources, not {len(modes)}")
    return tuple(LockSpec(resource, modes[resource]) for resource in sorted(modes))


def check_priority(priority: int) -> None:
    """Raise InvalidTask unless this is a valid priority of a task or lock request."""
    if type(priority) is not int or not 0 <= priority <= 9:
        names = ", ".join(f"{name} ({number})" for name, number in PRIORITIES.items())
        raise InvalidTask(
            f"priority {priority!r:.80} is not valid: use 0 (first) to 9 (last), or a name: {names}; the default is 5"
        )


def read_priority(value: object) -> int:
    """Return the number of a priority, which may be given by name. Raises InvalidTask."""
    priority: Any = PRIORITIES.get(value, value) if isinstance(value, str) else value
    check_priority(priority)
    return int(priority)


def lock_name(what: str, text: object) -> str:
    """Return a name in its normal form, the one that is stored and looked up. Raises InvalidLock.

    Names that look the same are the same: Unicode is composed (NFC), and blanks at either end are rejected. Names are
    parts of keys, so they are printable and have no braces.
    """
    if not isinstance(text, str):
        raise InvalidLock(f"{what} must be text, not {text!r:.120}")
    name = normal_name(text)
    if is_lock_name(name):
        return name
    if name != name.strip():
        raise InvalidLock(f"{what} {text[:120]!r} begins or ends with a blank; remove it")
    raise InvalidLock(
        f"{what} {text[:120]!r} is not valid: use 1 to {_MOST_BYTES} bytes of printable characters without braces"
    )


def normal_name(text: str) -> str:
    """Return a name with its Unicode composed (NFC), valid or not."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


@lru_cache(4_096)
def is_lock_name(text: str) -> bool:
    """Whether the name is printable, has no braces and no blanks around it, and is at most 512 bytes long."""
    is_short = 0 < len(text.encode(errors="replace")) <= _MOST_BYTES
    return is_short and text.isprintable() and not set(text) & {"{", "}"} and text == text.strip()


DEFAULT_NAMESPACE = "default"
OVERTAKING = 8  # how many positions one step of priority is worth: no request is overtaken more than 9 * 8 times
FRONT = -1.0  # the rank of an upgrade from shared to exclusive: no other waiter could go before it


class LockState(StrEnum):
    """The state of a lock request."""

    __hash__ = str.__hash__  # faster than Enum.__hash__, which is a Python function

    WAITING = auto()
    GRANTED = auto()
    VICTIM = auto()  # aborted to end a deadlock: in no wait queue, kept for a while so that the owner can read it


class LockItem(Struct, frozen=True, omit_defaults=True):
    """One resource of a request. The token rises with every grant of the namespace; 0: not granted."""

    resource: str
    mode: LockMode
    token: int = 0


class LockRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Granted as a whole or not at all. Times are milliseconds, over HTTP text; leases go by the store's own clock."""

    id: str  # the grant ID: random, and known only to its owner
    namespace: str = DEFAULT_NAMESPACE
    owner: str  # the agent or program
    scope: str  # the unit that holds and waits, such as a run; only cycles between scopes are deadlocks
    account: str | None = None  # on whose behalf, for the rulebook: of a token, or the author of a task; None: unknown
    items: tuple[LockItem, ...]  # sorted by resource name
    priority: int = DEFAULT_PRIORITY
    purpose: str | None = None
    task_id: str | None = None
    upgrades: str | None = None  # the ID of the grant whose shared lock should become exclusive
    unattended: bool = False  # no client polls for it; its task is requeued when the request is granted
    state: LockState = LockState.WAITING
    seq: int = 0  # age, assigned by the lock table
    rank: float = 0.0  # the position in the wait queue, lowest first
    ttl_ms: int = 30_000
    lease_until: int = 0
    wait_until: int | None = None  # a waiter that is not granted by then is removed
    asked_at: int = 0
    granted_at: int | None = None
    heartbeats: int = 0

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(item.resource for item in self.items)

    @property
    def is_granted(self) -> bool:
        return self.state is LockState.GRANTED

    @property
    def is_waiting(self) -> bool:
        return self.state is LockState.WAITING

    @property
    def is_called(self) -> bool:
        """Whether an unattended request was granted or chosen as a deadlock victim."""
        return self.unattended and not self.is_waiting

    def stands_at(self, kind: str) -> bool:
        """Whether it holds or waits for a resource of this kind."""
        return self.state is not LockState.VICTIM and any(kind_of(item.resource) == kind for item in self.items)

    def mode_of(self, resource: str) -> LockMode | None:
        return next((item.mode for item in self.items if item.resource == resource), None)


def kind_of(resource: str) -> str:
    """Return the part of a resource name before the first colon."""
    return resource.partition(":")[0]


def rank_of(seq: int, priority: int) -> float:
    """Return the rank: FIFO within a priority. It is fixed at request time, so queues need no reordering."""
    return float(seq + OVERTAKING * priority)


def conflict(one: LockMode, other: LockMode) -> bool:
    """Whether two modes exclude each other."""
    return one is LockMode.EXCLUSIVE or other is LockMode.EXCLUSIVE


def place_in_line(request: LockRequest) -> tuple[float, int, str]:
    """Sort key of a wait queue. The ID makes it unique: a request that reuses an old seq can tie on rank and seq."""
    return (request.rank, request.seq, request.id)


def by_namespace(requests: Iterable[LockRequest]) -> dict[str, list[str]]:
    """Group request IDs by namespace, for calls that concern one namespace."""
    ids = defaultdict[str, list[str]](list)
    for request in requests:
        ids[request.namespace].append(request.id)
    return ids


def covers(items: Iterable[LockItem], specs: Iterable[LockSpec]) -> bool:
    """Whether a holder of these items already has all the specs; an exclusive lock includes the shared one."""
    modes = {item.resource: item.mode for item in items}
    return all(modes.get(one.resource) in (one.mode, LockMode.EXCLUSIVE) for one in specs)


# Permissions: who may lock what, by the rulebook. A resource that no rule names is open to everyone.


class LockRule(Struct, frozen=True, kw_only=True):
    """Resources whose names match one of the patterns can be locked by these accounts and roles, and by no one else."""

    names: tuple[str, ...]
    roles: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()


def rules_for(rules: Iterable[LockRule], resources: Iterable[str]) -> list[tuple[str, LockRule]]:
    """Return the rules that name these resources, each with the resource. All of them must admit the account."""
    from ade.common.patterns import matches_any  # costs 1.5 ms, which programs without such rules avoid

    named = list(resources)
    return [(name, rule) for rule in rules for name in named if matches_any(rule.names, name)]


def not_admitted(found: Iterable[tuple[str, LockRule]], account: str | None, roles: frozenset[str]) -> str | None:
    """Return the first resource that its rule does not let the account lock; None if it may lock all of them."""
    return next((name for name, rule in found if account not in rule.accounts and not roles & rule.roles), None)


# Limits: waiters per resource, requests per owner, and the request rate of an owner.


class LockLimits(Struct, frozen=True):
    """Limits of lock requests.

    An owner can send `acquires` requests in `acquires_per_ms` milliseconds (None: no limit).
    """

    waiters_per_resource: int = 1_000
    requests_per_owner: int = 1_000
    acquires: int | None = None
    acquires_per_ms: int | None = None


class LockLoad(Struct, frozen=True):
    """Current load: the length of the longest wait queue, the owner's requests, and its used rate.

    `full_at` is the time, in microseconds of steady time, at which the whole rate is available again.
    """

    waiting: int = 0
    of_owner: int = 0
    full_at: int = 0


def rate_after(crowd: LockLoad, limits: LockLimits, owner: str, steady_ms: int) -> int | None:
    """Return `full_at` after one more request of the owner; None without a limit. Raises LockRateLimited."""
    if limits.acquires is None or limits.acquires_per_ms is None:
        return None
    rate = {"count": limits.acquires, "period_ms": limits.acquires_per_ms, "now_ms": steady_ms}
    state = possible(RateState(crowd.full_at), **rate)
    allowed_at = next_allowed_ms(state, **rate)
    if allowed_at > steady_ms:
        raise asks_too_often(owner, allowed_at - steady_ms)
    return take(state, 1, **rate).full_at


def asks_too_often(owner: str, retry_after_ms: int) -> LockRateLimited:
    """Create the error for an owner that exceeds its request rate."""
    return LockRateLimited(
        f"{owner} has exceeded its rate limit for locks; try again after {retry_after_ms} ms",
        retry_after_ms=retry_after_ms,
    )


def has_too_many(owner: str, count: int) -> TooManyLocks:
    """Create the error for an owner that has too many requests."""
    return TooManyLocks(f"{owner} has {count} locks already, as many as it may have")


def too_many_wait(resources: tuple[str, ...], count: int) -> TooManyLocks:
    """Create the error for resources with too many waiters."""
    return TooManyLocks(f"{count} requests wait for {', '.join(resources)} already; try again later")
