"""Which requests may come in: names, modes and times are checked, doubles are merged, resources are sorted."""

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
    check_lock_name,
    check_priority,
    merged,
)
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

DEFAULT_TTL_MS = 30_000
NO_TTL = 0  # of a request that names none
LEAST_TTL_MS, LONGEST_TTL_MS = 1_000, 3_600_000
WAITER_LEASE_MS = 15_000
UNATTENDED_LEASE_MS = 900_000  # of a waiter that nobody polls for: somebody looks after it now and then
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
    priority: int = DEFAULT_PRIORITY,
    purpose: str | None = None,
    task_id: str | None = None,
    ttl_ms: int | None = DEFAULT_TTL_MS,
    unattended: bool = False,
) -> LockRequest:
    """A request as a book takes it; but without a ttl it must be given one first. Raises InvalidLock."""
    check_namespace(namespace)
    for what, text in (("owner", owner), ("scope", scope), ("id", id)):
        check_lock_name(what, text)
    _check_purpose(purpose)
    check_priority(priority)
    if ttl_ms is not None:
        check_ttl(ttl_ms)
    return LockRequest(
        id=id,
        namespace=namespace,
        owner=owner,
        scope=scope,
        items=_items(wanted),
        priority=priority,
        purpose=purpose,
        task_id=task_id,
        ttl_ms=ttl_ms or NO_TTL,
        unattended=unattended,
    )


def check_namespace(namespace: object) -> None:
    """Raise InvalidLock unless there may be such a namespace."""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidLock(f"namespace {namespace!r:.120} is not valid: use letters, digits, '.', '_' and '-'")


def _check_purpose(purpose: object) -> None:
    if purpose is not None and (not isinstance(purpose, str) or not 1 <= len(purpose) <= _MOST_TEXT):
        raise InvalidLock(f"the purpose must be text of 1 to {_MOST_TEXT} characters")


def ttl_ms_of(seconds: float | None) -> int | None:
    """The lease as callers write it; None is the store's default. Raises InvalidLock."""
    if seconds is None:
        return None
    if not _is_span(seconds):
        raise InvalidLock(f"a lock's ttl is a number of seconds, 1 to 3600, not {seconds!r:.120}")
    return round(seconds * 1000)


def wait_ms_of(seconds: float | None) -> int | None:
    """How long to wait as callers write it: 0 is not at all, None for ever. Raises InvalidLock."""
    if seconds is None:
        return None
    if not _is_span(seconds):
        raise InvalidLock(f"wait is the number of seconds to wait, or None for ever; not {seconds!r:.120}")
    return round(seconds * 1000)


def _is_span(seconds: object) -> bool:
    """Nothing compares to what is not a number."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _LONGEST_S


def check_ttl(ttl_ms: int) -> None:
    if not LEAST_TTL_MS <= ttl_ms <= LONGEST_TTL_MS:
        raise InvalidLock(
            f"a lock's ttl is 1 second to 1 hour, not {ttl_ms / 1000:g} s; it is renewed while it is held"
        )


def leased(request: LockRequest, *, usual_ms: int, longest_ms: int) -> LockRequest:
    """With the usual lease if it names none. Raises InvalidLock if it names one that is too long."""
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
    """A handler asks for a lock while it runs; answered by TakenLock when it is granted."""

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
    ) -> LockRequest:
        """The request as a lock client takes it. `purpose` is the default. Raises InvalidLock."""
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
        )


class TakenLock(Struct, frozen=True):
    """A lock that is held: its id, and the token of each resource."""

    id: str
    namespace: str
    items: tuple[LockItem, ...]


class LeaveLock(Struct, frozen=True, tag=True):
    """A handler releases a lock."""

    id: str


# The locks that tasks name: which request stands for a run of a task.


RECHECK_MS = 300_000  # of a task that waits: normally it is recalled as soon as it is let in
STANDS_NOWHERE_MS = 15_000  # one that could not even get into the line
_BEGUN = frozenset({Status.RUNNING, Status.STALLED})


def request_id(task: Task) -> str:
    """Of the run that is under way, or of the next one.

    A run that waits for its locks does not count, so the next one asks under the same id and has its place in line. One
    that went silent does count: whoever takes over asks anew, and gets tokens that are higher.
    """
    attempt = task.attempt if task.status in _BEGUN else task.attempt + 1
    return f"{task.id}.{task.generation}.{attempt}"


def request_of(task: Task, *, ttl_ms: int = DEFAULT_TTL_MS) -> LockRequest:
    """What a run of this task must be granted before it begins."""
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
    )
