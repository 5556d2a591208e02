"""Which requests may come in: names, modes and times are checked, doubles are merged, resources are sorted."""

import re
from collections.abc import Iterable

from ade.core.admission import check_priority
from ade.core.errors import InvalidLock
from ade.core.locks.records import DEFAULT_NAMESPACE, LockItem, LockRequest
from ade.core.locks.wishes import LockMode, Wish, check_lock_name, merged
from ade.core.records import DEFAULT_PRIORITY

DEFAULT_TTL_MS = 30_000
LEAST_TTL_MS, LONGEST_TTL_MS = 1_000, 3_600_000
WAITER_LEASE_MS = 15_000
UNATTENDED_LEASE_MS = 900_000  # of a waiter that nobody polls for: somebody looks after it now and then
_MOST_TEXT = 500
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def ask(
    *,
    id: str,
    owner: str,
    scope: str,
    wanted: Iterable[Wish | tuple[str, LockMode]],
    namespace: str = DEFAULT_NAMESPACE,
    priority: int = DEFAULT_PRIORITY,
    purpose: str | None = None,
    task_id: str | None = None,
    ttl_ms: int = DEFAULT_TTL_MS,
    unattended: bool = False,
) -> LockRequest:
    """A request as a book takes it. Raises InvalidLock."""
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidLock(f"namespace {namespace[:120]!r} is not valid: use letters, digits, '.', '_' and '-'")
    for what, text in (("owner", owner), ("scope", scope), ("id", id)):
        check_lock_name(what, text)
    if purpose is not None and (not purpose or len(purpose) > _MOST_TEXT):
        raise InvalidLock(f"the purpose must have 1 to {_MOST_TEXT} characters")
    check_priority(priority)
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
        ttl_ms=ttl_ms,
        unattended=unattended,
    )


def check_ttl(ttl_ms: int) -> None:
    if not LEAST_TTL_MS <= ttl_ms <= LONGEST_TTL_MS:
        raise InvalidLock(
            f"a lock's ttl is 1 second to 1 hour, not {ttl_ms / 1000:g} s; it is renewed while it is held"
        )


def _items(wanted: Iterable[Wish | tuple[str, LockMode]]) -> tuple[LockItem, ...]:
    wishes = merged(Wish(*one) if isinstance(one, tuple) else one for one in wanted)
    if not wishes:
        raise InvalidLock("name at least one resource, such as 'database:prod-db-01'")
    return tuple(LockItem(wish.resource, wish.mode) for wish in wishes)
