"""Validation of lock requests, the lock messages between handler and worker, and the lock requests of tasks."""

import re
from collections.abc import Iterable

from msgspec import Struct, structs

from ade.errors import InvalidLock
from ade.locks.model import (
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    LockItem,
    LockMode,
    LockRequest,
    LockSpec,
    lock_name,
    merged,
    read_priority,
)
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

DEFAULT_TTL_MS = 30_000
NO_TTL = 0  # of a request that does not specify one
LEAST_TTL_MS, LONGEST_TTL_MS = 1_000, 3_600_000
WAITER_LEASE_MS = 15_000
UNATTENDED_LEASE_MS = 900_000  # of a waiter that no client polls for; the sweep renews it periodically
_LONGEST_S = 1e9
_MOST_TEXT = 500
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def validate_request(
    *,
    id: str,
    owner: str,
    scope: str,
    wanted: Iterable[LockSpec | tuple[str, LockMode]],
    namespace: str = DEFAULT_NAMESPACE,
    priority: int | str = DEFAULT_PRIORITY,
    purpose: str | None = None,
    task_id: str | None = None,
    ttl_ms: int | None = DEFAULT_TTL_MS,
    unattended: bool = False,
    account: str | None = None,
) -> LockRequest:
    """Create a valid request: names, modes, and times are checked, duplicates merged, resources sorted.

    A request without a TTL must get one before it is stored. Raises InvalidLock.
    """
    check_namespace(namespace)
    owner, scope, id = (lock_name(*one) for one in (("owner", owner), ("scope", scope), ("id", id)))
    _check_purpose(purpose)
    if ttl_ms is not None:
        check_ttl(ttl_ms)
    return LockRequest(
        id=id,
        namespace=namespace,
        owner=owner,
        scope=scope,
        items=_items(wanted),
        priority=read_priority(priority),
        purpose=purpose,
        task_id=task_id,
        ttl_ms=ttl_ms or NO_TTL,
        unattended=unattended,
        account=account,
    )


def check_namespace(namespace: object) -> None:
    """Raise InvalidLock unless this is a valid namespace."""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidLock(f"namespace {namespace!r:.120} is not valid: use letters, digits, '.', '_' and '-'")


def _check_purpose(purpose: object) -> None:
    if purpose is not None and (not isinstance(purpose, str) or not 1 <= len(purpose) <= _MOST_TEXT):
        raise InvalidLock(f"the purpose must be text of 1 to {_MOST_TEXT} characters")


def ttl_ms_of(seconds: float | None) -> int | None:
    """Convert a lease duration from seconds; None is the store's default. Raises InvalidLock."""
    if seconds is None:
        return None
    if not _is_span(seconds):
        raise InvalidLock(f"a lock's ttl is a number of seconds, 1 to 3600, not {seconds!r:.120}")
    return round(seconds * 1000)


def wait_ms_of(seconds: float | None) -> int | None:
    """Convert a wait time from seconds: 0 means do not wait, None means no limit. Raises InvalidLock."""
    if seconds is None:
        return None
    if not _is_span(seconds):
        raise InvalidLock(f"wait is the number of seconds to wait, or None for no limit; not {seconds!r:.120}")
    return round(seconds * 1000)


def _is_span(seconds: object) -> bool:
    """Whether this is a valid number of seconds. NaN fails the comparison."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _LONGEST_S


def check_ttl(ttl_ms: int) -> None:
    """Raise InvalidLock unless the lease is 1 second to 1 hour long."""
    if not LEAST_TTL_MS <= ttl_ms <= LONGEST_TTL_MS:
        raise InvalidLock(
            f"a lock's ttl is 1 second to 1 hour, not {ttl_ms / 1000:g} s; it is renewed while it is held"
        )


def leased(request: LockRequest, *, usual_ms: int, longest_ms: int) -> LockRequest:
    """Return the request with the default lease if it has none. Raises InvalidLock if its lease is too long."""
    if request.ttl_ms > longest_ms:
        raise InvalidLock(
            f"a lock's ttl is at most {longest_ms / 1000:g} s here (lock.max_ttl_s), not {request.ttl_ms / 1000:g} s;"
            " it is renewed while it is held"
        )
    return structs.replace(request, ttl_ms=min(usual_ms, longest_ms)) if request.ttl_ms == NO_TTL else request


def _items(wanted: Iterable[LockSpec | tuple[str, LockMode]]) -> tuple[LockItem, ...]:
    specs = merged(LockSpec(*one) if isinstance(one, tuple) else one for one in wanted)
    if not specs:
        raise InvalidLock("name at least one resource, such as 'database:prod-db-01'")
    return tuple(LockItem(spec.resource, spec.mode) for spec in specs)


class TakeLock(Struct, frozen=True, tag=True, kw_only=True):
    """Message: a running handler requests a lock; answered by TakenLock when it is granted."""

    specs: list[LockSpec]
    scope: str
    namespace: str
    ttl_ms: int | None  # None: the store's default
    wait_ms: int | None = None
    purpose: str | None = None

    def request(
        self,
        *,
        id: str,
        owner: str,
        priority: int = DEFAULT_PRIORITY,
        purpose: str | None = None,
        task_id: str | None = None,
        account: str | None = None,
    ) -> LockRequest:
        """Create the request for a lock client. `purpose` is the default. Raises InvalidLock."""
        return validate_request(
            id=id,
            owner=owner,
            scope=self.scope,
            wanted=self.specs,
            namespace=self.namespace,
            priority=priority,
            purpose=self.purpose or purpose,
            task_id=task_id,
            ttl_ms=self.ttl_ms,
            account=account,
        )


class TakenLock(Struct, frozen=True):
    """A held lock: its ID, and the fencing token of each resource."""

    id: str
    namespace: str
    items: tuple[LockItem, ...]


class LeaveLock(Struct, frozen=True, tag=True):
    """Message: a handler releases a lock."""

    id: str


# Locks declared by tasks: the lock request that belongs to a run of a task.


RECHECK_MS = 300_000  # of a waiting task; normally it is requeued as soon as its locks are granted
STANDS_NOWHERE_MS = 15_000  # of a task whose request could not even be queued
_BEGUN = frozenset({Status.RUNNING, Status.STALLED})


def request_id(task: Task) -> str:
    """Return the lock request ID of the current run, or of the next one.

    A run that waits for its locks does not count as an attempt, so the next one uses the same ID and keeps its
    position in the wait queue. A run of a lost worker does count: the next run sends a new request and gets higher
    tokens. A rescheduled task sends a new request as well, so that a late grant of the earlier one does not start it.
    """
    attempt = task.attempt if task.status in _BEGUN else task.attempt + 1
    again = f".{task.reschedules}" if task.reschedules else ""
    return f"{task.id}.{task.generation}.{attempt}{again}"


def request_of(task: Task, *, ttl_ms: int = DEFAULT_TTL_MS) -> LockRequest:
    """Return the request that must be granted before a run of this task starts."""
    request = request_id(task)
    return validate_request(
        id=request,
        owner=f"task:{task.id}",
        scope=request,
        wanted=task.locks,
        priority=task.priority,
        purpose=task.name,
        task_id=task.id,
        ttl_ms=ttl_ms,
        unattended=True,
        account=task.author_id,
    )
