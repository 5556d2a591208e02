"""What a lock book holds: requests, each for one resource or for several at once, that wait or are granted."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import lru_cache

from msgspec import Struct

from ade.common.rate_limit import RateState, next_allowed_ms, possible, take
from ade.errors import InvalidLock, InvalidTask, LockRateLimited, TooManyLocks

# What is wanted: a resource to read or to write.


MAX_LOCK_SPECS = 100
DEFAULT_PRIORITY = 5  # of lock requests and of tasks: 0 goes first, 9 last
_MOST_BYTES = 512


class LockMode(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    SHARED = auto()
    EXCLUSIVE = auto()


class LockSpec(Struct, frozen=True):
    resource: str
    mode: LockMode


def read(resource: str) -> LockSpec:
    """Shared: any number of readers at once, but no writer."""
    return LockSpec(resource, LockMode.SHARED)


def write(resource: str) -> LockSpec:
    """Exclusive: nobody else at all."""
    return LockSpec(resource, LockMode.EXCLUSIVE)


def lock_specs_of(wanted: Iterable[str | LockSpec]) -> list[LockSpec]:
    """A bare name is to be written. Raises InvalidLock for what is no name at all."""
    return [_wish(one) for one in wanted]


def _wish(one: object) -> LockSpec:
    if isinstance(one, str):
        return write(one)
    if not isinstance(one, LockSpec):
        raise InvalidLock(f"name resources as text, by read(...) or by write(...), not as {one!r:.120}")
    return one


def merged(specs: Iterable[LockSpec]) -> tuple[LockSpec, ...]:
    """Sorted, and each resource once: who wants it both shared and exclusive wants it exclusive. Raises InvalidLock."""
    modes: dict[str, LockMode] = {}
    for spec in specs:
        check_lock_name("resource", spec.resource)
        if not isinstance(spec.mode, LockMode):
            raise InvalidLock(f"{spec.resource} is to be read(...) or to be written with write(...), not {spec.mode!r}")
        if modes.get(spec.resource) is not LockMode.EXCLUSIVE:
            modes[spec.resource] = spec.mode
    if len(modes) > MAX_LOCK_SPECS:
        raise InvalidLock(f"one request may name at most {MAX_LOCK_SPECS} resources, not {len(modes)}")
    return tuple(LockSpec(resource, modes[resource]) for resource in sorted(modes))


def check_priority(priority: int) -> None:
    """Raise InvalidTask unless a task, or a lock request, may have this priority."""
    if type(priority) is not int or not 0 <= priority <= 9:
        raise InvalidTask(f"priority {priority!r} is not valid: use 0 (first) to 9 (last); the default is 5")


def check_lock_name(what: str, text: object) -> None:
    """Names become parts of keys, so they have neither braces nor anything that cannot be printed."""
    if not isinstance(text, str):
        raise InvalidLock(f"{what} must be text, not {text!r:.120}")
    if not is_lock_name(text):
        raise InvalidLock(
            f"{what} {text[:120]!r} is not valid: use 1 to {_MOST_BYTES} bytes of printable characters without braces"
        )


@lru_cache(4_096)
def is_lock_name(text: str) -> bool:
    is_short = 0 < len(text.encode(errors="replace")) <= _MOST_BYTES
    return is_short and text.isprintable() and not set(text) & {"{", "}"}


DEFAULT_NAMESPACE = "default"
OVERTAKING = 8  # how many places one step of priority is worth: nobody is overtaken more than 9 * 8 times
FRONT = -1.0  # the rank of those who hold a share and want the whole: nobody else could go before them


class LockState(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    WAITING = auto()
    GRANTED = auto()
    VICTIM = auto()  # gave way in a deadlock: in no line any more, kept for a while so that it hears of it


class LockItem(Struct, frozen=True, omit_defaults=True):
    """One resource of a request. The token rises with every grant of the namespace; 0: not granted."""

    resource: str
    mode: LockMode
    token: int = 0


class LockRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Granted as a whole or not at all. Times are milliseconds, over HTTP text; leases go by the store's own clock."""

    id: str  # the grant id: random, and known to its holder alone
    namespace: str = DEFAULT_NAMESPACE
    owner: str  # the agent or program
    scope: str  # what holds and waits in one go, such as a run: two of one owner do not wait for each other
    items: tuple[LockItem, ...]  # by the name of the resource
    priority: int = DEFAULT_PRIORITY
    purpose: str | None = None
    task_id: str | None = None
    upgrades: str | None = None  # the id of the grant whose share shall become exclusive
    unattended: bool = False  # nobody polls for it; whoever it is for is fetched when it was let in
    # state
    state: LockState = LockState.WAITING
    seq: int = 0  # age, given by the book
    rank: float = 0.0  # the place in line, lowest first
    ttl_ms: int = 30_000
    lease_until: int = 0
    wait_until: int | None = None  # a waiter that is not granted by then is let go
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
        """Let in, or told to give way, while nobody was there to hear of it."""
        return self.unattended and not self.is_waiting

    def stands_at(self, kind: str) -> bool:
        """Whether it holds or waits for a resource of this kind."""
        return self.state is not LockState.VICTIM and any(kind_of(item.resource) == kind for item in self.items)

    def mode_of(self, resource: str) -> LockMode | None:
        return next((item.mode for item in self.items if item.resource == resource), None)


def kind_of(resource: str) -> str:
    """The part of its name before the first colon."""
    return resource.partition(":")[0]


def rank_of(seq: int, priority: int) -> float:
    """Fixed once and for all, so that nobody has to move a line: first come first served inside a priority."""
    return float(seq + OVERTAKING * priority)


def conflict(one: LockMode, other: LockMode) -> bool:
    return one is LockMode.EXCLUSIVE or other is LockMode.EXCLUSIVE


def place_in_line(request: LockRequest) -> tuple[float, int, str]:
    """No two are the same: one that takes up its old place may find a rank and seq that another one has too."""
    return (request.rank, request.seq, request.id)


def by_namespace(requests: Iterable[LockRequest]) -> dict[str, list[str]]:
    """The ids of the requests, for calls that are about one namespace."""
    ids = defaultdict[str, list[str]](list)
    for request in requests:
        ids[request.namespace].append(request.id)
    return ids


def covers(items: Iterable[LockItem], specs: Iterable[LockSpec]) -> bool:
    """Whether somebody who has these items has all of that: the exclusive lock includes the share."""
    modes = {item.resource: item.mode for item in items}
    return all(modes.get(one.resource) in (one.mode, LockMode.EXCLUSIVE) for one in specs)


# How much one may ask for: waiters of a resource, requests of an owner, and how often it may ask.


@dataclass(frozen=True, slots=True)
class LockLimits:
    """An owner may ask `acquires` times in `acquires_per_ms` milliseconds; None: as often as it likes."""

    waiters_per_resource: int = 1_000
    requests_per_owner: int = 1_000
    acquires: int | None = None
    acquires_per_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LockLoad:
    """What there is already: how many in the longest of the lines and of this owner, and how far its rate is used up.

    `full_at` is the moment, in microseconds of steady time, at which all of the rate is free again.
    """

    waiting: int = 0
    of_owner: int = 0
    full_at: int = 0


def rate_after(crowd: LockLoad, limits: LockLimits, owner: str, steady_ms: int) -> int | None:
    """`full_at` when the owner has asked once more; None where nothing is limited. Raises LockRateLimited."""
    if limits.acquires is None or limits.acquires_per_ms is None:
        return None
    rate = {"count": limits.acquires, "period_ms": limits.acquires_per_ms, "now_ms": steady_ms}
    state = possible(RateState(crowd.full_at), **rate)
    allowed_at = next_allowed_ms(state, **rate)
    if allowed_at > steady_ms:
        raise asks_too_often(owner, allowed_at - steady_ms)
    return take(state, 1, **rate).full_at


def asks_too_often(owner: str, retry_after_ms: int) -> LockRateLimited:
    return LockRateLimited(
        f"{owner} asks for locks more often than it may; try again after {retry_after_ms} ms",
        retry_after_ms=retry_after_ms,
    )


def has_too_many(owner: str, count: int) -> TooManyLocks:
    return TooManyLocks(f"{owner} has {count} locks already, as many as it may have")


def too_many_wait(resources: tuple[str, ...], count: int) -> TooManyLocks:
    return TooManyLocks(f"{count} requests wait for {', '.join(resources)} already; try again later")
