"""Lock rules: the lock table of one namespace, and the operations that acquire, renew, and release locks in it.

An operation reads as much as it needs, under the store's write lock. Its decisions are in `changed`, `removed`,
`rates`, and `events`, and are written together. Requests found to be expired on the way are removed, and the waiters
behind them are granted.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import structs

from ade.errors import LockLost, UpgradeDeadlock
from ade.events.model import Event
from ade.locks.model import (
    FRONT,
    LockItem,
    LockLimits,
    LockLoad,
    LockMode,
    LockRequest,
    LockState,
    conflict,
    has_too_many,
    place_in_line,
    rank_of,
    rate_after,
    too_many_wait,
)
from ade.locks.requests import UNATTENDED_LEASE_MS, WAITER_LEASE_MS

ACQUIRED, QUEUED, PROMOTED, UPGRADED = "lock.acquired", "lock.queued", "lock.promoted", "lock.upgraded"
DOWNGRADED, RELEASED, EXPIRED, LOST, DEADLOCK = (
    "lock.downgraded",
    "lock.released",
    "lock.expired",
    "lock.lost",
    "lock.deadlock",
)
LOCK_EVENTS = frozenset(
    {ACQUIRED, QUEUED, PROMOTED, UPGRADED, DOWNGRADED, RELEASED, EXPIRED, LOST, DEADLOCK}
)  # they do not change the status of a task

NEWS_FOR_OTHERS = frozenset({PROMOTED, UPGRADED, EXPIRED, LOST, DEADLOCK})  # the others concern only the requester


class LockTableView(Protocol):
    """The stored lock requests of one namespace."""

    def get(self, request_id: str) -> LockRequest | None: ...

    def holders(self, resource: str) -> Iterable[LockRequest]:
        """Return granted requests, in queue order."""

    def line(self, resource: str) -> Iterable[LockRequest]:
        """Return waiting requests in queue order, read lazily."""

    def newest(self) -> tuple[int, int]:
        """Return the highest seq and the highest token ever assigned."""


class LockTable:
    """The lock table of one namespace during one operation: stored requests, overlaid with the changes so far."""

    def __init__(self, view: LockTableView, *, now_us: int, steady_ms: int) -> None:
        self._view = view
        self._now_us = now_us
        self.now_ms = now_us // 1000
        self.steady_ms = steady_ms
        self.seq, self.token = view.newest()
        self.changed: dict[str, LockRequest] = {}
        self.removed: dict[str, LockRequest] = {}
        self.events: list[Event] = []
        self.rates: dict[str, int] = {}  # used request rate, by owner
        self._freed: set[str] = set()  # resources that were freed and whose wait queue is not rechecked yet

    # Reading

    def get(self, request_id: str) -> LockRequest | None:
        """Return the request, even if its lease has expired: the owner must be able to find that out."""
        if request_id in self.removed:
            return None
        return self.changed.get(request_id) or self._view.get(request_id)

    def holders(self, resource: str) -> list[LockRequest]:
        changed = (one for one in self.changed.values() if one.is_granted and one.mode_of(resource) is not None)
        stored = (one for one in self._view.holders(resource) if self._is_untouched(one))
        return [one for one in (*changed, *stored) if self._lives(one)]

    def line(self, resource: str) -> Iterator[LockRequest]:
        changed = [one for one in self.changed.values() if one.is_waiting and one.mode_of(resource) is not None]
        stored = (one for one in self._view.line(resource) if self._is_untouched(one))
        for one in heapq.merge(sorted(changed, key=place_in_line), stored, key=place_in_line):
            # Decisions made while the caller iterates take effect.
            now = self.get(one.id)
            if now is not None and now.is_waiting and self._lives(now):
                yield now

    def is_dead(self, request: LockRequest) -> bool:
        out_of_time = request.wait_until is not None and request.wait_until <= self.steady_ms
        return request.lease_until <= self.steady_ms or (out_of_time and not request.is_granted)

    # Writing

    def put(self, request: LockRequest) -> None:
        self.changed[request.id] = request

    def remove(self, request: LockRequest, event: str, **more: object) -> None:
        """Remove a request. `settle` later grants the waiters behind it."""
        self.changed.pop(request.id, None)
        self.removed[request.id] = request
        if request.state is LockState.VICTIM:  # it left the wait queue when it became the victim
            return
        self._freed.update(request.resources)
        self.tell(event, request, **more)
        if request.is_granted:
            for waiter in self._upgrades_of(request):
                self.remove(waiter, EXPIRED, reason="the shared lock to upgrade is gone")

    def free(self, resources: Iterable[str]) -> None:
        """Mark resources of which a request now needs less than before."""
        self._freed.update(resources)

    def is_free_for(self, request: LockRequest) -> bool:
        """Whether no holder and no earlier waiter conflicts with the request."""
        return not any(self._is_held_against(request, item) or self._is_behind(request, item) for item in request.items)

    def grant(self, request: LockRequest, event: str) -> LockRequest:
        if request.upgrades is not None:
            return self._widen(request)
        items = tuple(LockItem(item.resource, item.mode, self._next_token()) for item in request.items)
        granted = structs.replace(
            request,
            items=items,
            state=LockState.GRANTED,
            lease_until=self.steady_ms + request.ttl_ms,
            granted_at=self.now_ms,
            wait_until=None,
        )
        self.put(granted)
        self.tell(event, granted)
        return granted

    def settle(self) -> None:
        """Grant every waiter that became eligible because others left. Every operation ends with this."""
        while self._freed:
            freed, self._freed = sorted(self._freed), set()
            self._promote(freed)

    def tell(self, event: str, request: LockRequest, **more: object) -> None:
        payload: dict[str, object] = {
            "namespace": request.namespace,
            "request_id": request.id,
            "state": request.state,
            "items": [{"resource": item.resource, "mode": item.mode, "token": item.token} for item in request.items],
            "scope": request.scope,
        }
        if request.purpose is not None:
            payload["purpose"] = request.purpose
        payload.update(more)
        self.events.append(
            Event(type=event, at=self.now_ms, task_id=request.task_id, actor=request.owner, payload=payload)
        )

    def _promote(self, resources: list[str]) -> None:
        """Grant waiters from the front of these queues, merged by position, never past a conflicting waiter."""
        ahead: dict[str, LockMode | None] = dict.fromkeys(resources)  # the strictest mode that was passed over
        seen: set[str] = set()
        for waiter in heapq.merge(*(self.line(resource) for resource in resources), key=place_in_line):
            if waiter.id in seen:
                continue
            seen.add(waiter.id)
            if self._may_pass(waiter, ahead) and self.is_free_for(waiter):
                if waiter.id not in self.removed:  # reading the holders may have removed an expired upgrade
                    self.grant(waiter, PROMOTED)
                continue
            for item in waiter.items:
                if item.resource in ahead and ahead[item.resource] is not LockMode.EXCLUSIVE:
                    ahead[item.resource] = item.mode
            if all(mode is LockMode.EXCLUSIVE for mode in ahead.values()):
                return

    def _may_pass(self, waiter: LockRequest, ahead: dict[str, LockMode | None]) -> bool:
        modes = ((ahead.get(item.resource), item.mode) for item in waiter.items)
        return all(passed is None or not conflict(passed, mode) for passed, mode in modes)

    def _is_held_against(self, request: LockRequest, item: LockItem) -> bool:
        own = (request.id, request.upgrades)
        others = (one.mode_of(item.resource) for one in self.holders(item.resource) if one.id not in own)
        return any(mode is not None and conflict(mode, item.mode) for mode in others)

    def _is_behind(self, request: LockRequest, item: LockItem) -> bool:
        for one in self.line(item.resource):
            if one.id == request.id or place_in_line(one) > place_in_line(request):
                return False
            mode = one.mode_of(item.resource)
            if mode is not None and conflict(mode, item.mode):
                return True
        return False

    def _widen(self, request: LockRequest) -> LockRequest:
        """Make the shared lock exclusive under a new token, and remove the upgrade request."""
        grant = self.get(request.upgrades or "")
        assert grant is not None  # an upgrade is removed together with its shared lock
        wanted = set(request.resources)
        items = tuple(
            LockItem(item.resource, LockMode.EXCLUSIVE, self._next_token()) if item.resource in wanted else item
            for item in grant.items
        )
        self.changed.pop(request.id, None)
        self.removed[request.id] = request
        widened = structs.replace(grant, items=items)
        self.put(widened)
        self.tell(UPGRADED, widened)
        return widened

    def _upgrades_of(self, grant: LockRequest) -> list[LockRequest]:
        found = []
        for resource in grant.resources:
            for waiter in self.line(resource):
                if waiter.rank > FRONT:
                    break
                if waiter.upgrades == grant.id:
                    found.append(waiter)
        return found

    def _next_token(self) -> int:
        self.token = max(self.token + 1, self._now_us)
        return self.token

    def _is_untouched(self, request: LockRequest) -> bool:
        return request.id not in self.changed and request.id not in self.removed

    def _lives(self, request: LockRequest) -> bool:
        if not self.is_dead(request):
            return True
        if request.id not in self.removed:
            self.remove(request, EXPIRED)
        return False


# Operations. Each one runs on a LockTable, which is then written as a whole.


def acquire(
    book: LockTable,
    request: LockRequest,
    *,
    wait_ms: int | None,
    first_seq: int = 0,
    crowd: LockLoad | None = None,
    limits: LockLimits | None = None,
) -> LockRequest | None:
    """Grant the request immediately or queue it for at most `wait_ms`; None if it would have to wait and `wait_ms` is
    0.

    Repeating a request returns its current state and costs nothing; repeating an unattended request marks it as
    attended. `first_seq` is the age of a request that was a deadlock victim: it takes its old position.
    """
    known = book.get(request.id)
    if known is not None and not book.is_dead(known):
        return _fetched(book, known)
    crowd, limits = crowd or LockLoad(), limits or LockLimits()
    full_at = rate_after(crowd, limits, request.owner, book.steady_ms)
    if crowd.of_owner >= limits.requests_per_owner:
        raise has_too_many(request.owner, crowd.of_owner)
    if full_at is not None:
        book.rates[request.owner] = full_at
    book.seq += 1
    seq = first_seq if 0 < first_seq < book.seq else book.seq
    asked = structs.replace(
        request,
        state=LockState.WAITING,
        seq=seq,
        rank=rank_of(seq, request.priority),
        asked_at=book.now_ms,
        lease_until=_waits_until(book, request),
        wait_until=None if wait_ms is None else book.steady_ms + wait_ms,
    )
    _look_after(book, asked)
    granted = book.grant(structs.replace(asked, unattended=False), ACQUIRED) if book.is_free_for(asked) else None
    book.settle()
    if granted is not None or wait_ms == 0:
        return granted
    if crowd.waiting >= limits.waiters_per_resource and not asked.unattended:
        raise too_many_wait(asked.resources, crowd.waiting)
    book.put(asked)
    book.tell(QUEUED, asked)
    return asked


def _fetched(book: LockTable, known: LockRequest) -> LockRequest:
    """Record that a client attends to the request: restart the lease of a grant, or of an unattended waiter."""
    if known.is_granted:
        lease_until = max(known.lease_until, book.steady_ms + known.ttl_ms)
        fetched = structs.replace(known, unattended=False, lease_until=lease_until)
    elif not known.unattended:
        return known
    elif known.is_waiting:
        fetched = structs.replace(known, lease_until=_waits_until(book, known))
    else:
        fetched = structs.replace(known, unattended=False)
    if fetched != known:
        book.put(fetched)
    return fetched


def _waits_until(book: LockTable, request: LockRequest) -> int:
    return book.steady_ms + (UNATTENDED_LEASE_MS if request.unattended else WAITER_LEASE_MS)


def poll(book: LockTable, request_id: str) -> LockRequest | None:
    """Renew a waiter's lease and return its state, including VICTIM; None if it does not exist."""
    request = _alive(book, request_id)
    if request is None:
        return None
    if request.is_waiting:
        book.put(structs.replace(request, lease_until=_waits_until(book, request)))
        _look_after(book, request)
    book.settle()
    return book.get(request_id)


def renew(book: LockTable, request_id: str, ttl_ms: int | None = None) -> LockRequest | None:
    """Renew the lease of a grant; None if it is gone. A renewal never revives an expired lock."""
    grant = _alive(book, request_id)
    book.settle()
    if grant is None or not grant.is_granted:
        return None
    ttl = grant.ttl_ms if ttl_ms is None else ttl_ms
    lease_until = max(grant.lease_until, book.steady_ms + ttl)
    renewed = structs.replace(grant, ttl_ms=ttl, lease_until=lease_until, heartbeats=grant.heartbeats + 1)
    book.put(renewed)
    return renewed


def release(book: LockTable, request_id: str) -> LockRequest | None:
    """Release a grant or leave the wait queue; None if it is already gone."""
    request = _alive(book, request_id)
    if request is not None:
        book.remove(request, RELEASED)
    book.settle()
    return request


def force_release(book: LockTable, request_id: str, *, reason: str, by: str) -> LockRequest | None:
    """Remove a grant or waiter on behalf of an operator."""
    request = _alive(book, request_id)
    if request is not None:
        book.remove(request, LOST, reason=reason, by=by)
    book.settle()
    return request


def upgrade(
    book: LockTable, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None
) -> LockRequest | None:
    """Make a shared lock exclusive: immediately if it has no other holder, else ahead of all waiters.

    Returns the grant once it is exclusive, or the waiting upgrade; None if it would have to wait and `wait_ms` is 0.
    Raises LockLost, UpgradeDeadlock.
    """
    grant = _alive(book, grant_id)
    mode = None if grant is None else grant.mode_of(resource)
    if grant is None or not grant.is_granted or mode is None:
        raise LockLost(f"the lock on {resource} is no longer held")
    if mode is LockMode.EXCLUSIVE:
        return grant
    other = _first_upgrade(book, resource)
    if other is not None and other.upgrades == grant_id:
        return other
    if other is not None:
        raise UpgradeDeadlock(f"{other.owner} also shares the lock on {resource} and waits for you to release it")
    book.seq += 1
    asked = structs.replace(
        grant,
        id=upgrade_id,
        items=(LockItem(resource, LockMode.EXCLUSIVE),),
        upgrades=grant_id,
        state=LockState.WAITING,
        seq=book.seq,
        rank=FRONT,
        asked_at=book.now_ms,
        granted_at=None,
        lease_until=book.steady_ms + WAITER_LEASE_MS,
        wait_until=None if wait_ms is None else book.steady_ms + wait_ms,
        heartbeats=0,
    )
    widened = book.grant(asked, ACQUIRED) if book.is_free_for(asked) else None
    book.settle()
    if widened is not None or wait_ms == 0:
        return widened
    book.put(asked)
    book.tell(QUEUED, asked)
    return asked


def downgrade(book: LockTable, grant_id: str, resource: str) -> LockRequest:
    """Make an exclusive lock shared, immediately. It keeps its token; a later writer's token is higher. Raises
    LockLost.
    """
    grant = _alive(book, grant_id)
    if grant is None or not grant.is_granted or grant.mode_of(resource) is None:
        raise LockLost(f"the lock on {resource} is no longer held")
    items = tuple(
        LockItem(resource, LockMode.SHARED, item.token) if item.resource == resource else item for item in grant.items
    )
    shared = structs.replace(grant, items=items)
    book.put(shared)
    book.tell(DOWNGRADED, shared)
    book.free([resource])
    book.settle()
    return shared


def abort_victim(book: LockTable, request_id: str, *, cycle: tuple[str, ...]) -> LockRequest | None:
    """Abort a waiter to end a deadlock: its wait fails, and its owner releases the locks it holds."""
    request = _alive(book, request_id)
    if request is None or not request.is_waiting:
        return None
    lease_until = book.steady_ms + WAITER_LEASE_MS
    victim = structs.replace(request, state=LockState.VICTIM, lease_until=lease_until, wait_until=None)
    book.put(victim)
    book.tell(DEADLOCK, victim, cycle=list(cycle))
    book.free(request.resources)
    book.settle()
    return victim


def let_pass(book: LockTable, request_id: str, *, before: str) -> LockRequest | None:
    """Move a waiter ahead of another one, to end a deadlock that exists only because of the queue order."""
    request, other = _alive(book, request_id), _alive(book, before)
    if request is None or other is None or not request.is_waiting or not other.is_waiting:
        return None
    book.put(structs.replace(request, rank=min(request.rank, other.rank - 0.5)))
    book.free(request.resources)
    book.settle()
    return book.get(request_id)


def return_grant(book: LockTable, request_id: str) -> LockRequest | None:
    """Take granted locks back from a task that is not claimed yet, to end a deadlock. It requests them again."""
    request = _alive(book, request_id)
    if request is None or not (request.is_granted and request.unattended):
        return None
    book.remove(request, RELEASED)
    book.settle()
    return request


def reap(book: LockTable, request_ids: list[str]) -> None:
    """Remove requests whose lease has expired, where no operation has looked; called by the sweep."""
    for request_id in request_ids:
        _alive(book, request_id)
    book.settle()


def _alive(book: LockTable, request_id: str) -> LockRequest | None:
    request = book.get(request_id)
    if request is not None and book.is_dead(request):
        book.remove(request, EXPIRED)
        return None
    return request


def _first_upgrade(book: LockTable, resource: str) -> LockRequest | None:
    for waiter in book.line(resource):
        if waiter.rank > FRONT:
            return None
        if waiter.upgrades is not None:
            return waiter
    return None


def _look_after(book: LockTable, request: LockRequest) -> None:
    """Remove expired holders of the requested resources, and grant the waiters that come first."""
    for resource in request.resources:
        book.holders(resource)
    book.settle()
