"""The book of one namespace as a verb changes it: what a store holds, and over it what was decided so far.

A verb reads as far as it needs, under the store's write lock. What it has decided is in `changed`, `removed`, `rates`
and `events`, and is written together. Whoever is found dead on the way is removed, and those behind it are let in.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import structs

from ade.core.events import Event
from ade.core.locks.records import FRONT, LockItem, LockRequest, LockState, conflict, place_in_line
from ade.core.locks.wishes import LockMode

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
)  # they tell nothing of the status of a task

NEWS_FOR_OTHERS = frozenset({PROMOTED, UPGRADED, EXPIRED, LOST, DEADLOCK})  # the rest concerns those who asked


class View(Protocol):
    """What the store holds of one namespace."""

    def get(self, request_id: str) -> LockRequest | None: ...

    def holders(self, resource: str) -> Iterable[LockRequest]:
        """Granted ones, by the place they had."""

    def line(self, resource: str) -> Iterable[LockRequest]:
        """Those that wait, by their place; read only as far as somebody looks."""

    def newest(self) -> tuple[int, int]:
        """The highest seq and the highest token that were ever given."""


class Book:
    def __init__(self, view: View, *, now_us: int, steady_ms: int) -> None:
        self._view = view
        self._now_us = now_us
        self.now_ms = now_us // 1000
        self.steady_ms = steady_ms
        self.seq, self.token = view.newest()
        self.changed: dict[str, LockRequest] = {}
        self.removed: dict[str, LockRequest] = {}
        self.events: list[Event] = []
        self.rates: dict[str, int] = {}  # how far owners have used up how often they may ask
        self._freed: set[str] = set()  # resources behind whose line nobody has looked since somebody left them

    # what stands in it

    def get(self, request_id: str) -> LockRequest | None:
        """Alive or not: somebody must know that its own lease ran out."""
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
            # What was decided while somebody was reading counts.
            now = self.get(one.id)
            if now is not None and now.is_waiting and self._lives(now):
                yield now

    def is_dead(self, request: LockRequest) -> bool:
        out_of_time = request.wait_until is not None and request.wait_until <= self.steady_ms
        return request.lease_until <= self.steady_ms or (out_of_time and not request.is_granted)

    # what is decided

    def put(self, request: LockRequest) -> None:
        self.changed[request.id] = request

    def remove(self, request: LockRequest, event: str, **more: object) -> None:
        """It holds and wants nothing any more; those behind it are looked at when the verb has done its part."""
        self.changed.pop(request.id, None)
        self.removed[request.id] = request
        if request.state is LockState.VICTIM:  # it left the line when it gave way
            return
        self._freed.update(request.resources)
        self.tell(event, request, **more)
        if request.is_granted:
            for waiter in self._upgrades_of(request):
                self.remove(waiter, EXPIRED, reason="the share it wanted to widen is gone")

    def free(self, resources: Iterable[str]) -> None:
        """Somebody wants less of these than before."""
        self._freed.update(resources)

    def is_free_for(self, request: LockRequest) -> bool:
        """Whether nobody holds, or waited earlier for, what would conflict with it."""
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
        """Let in whoever can go now that others have left. Every verb ends with this."""
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
        """From the front of these lines, all together by their place; never past somebody one would conflict with."""
        ahead: dict[str, LockMode | None] = dict.fromkeys(resources)  # the strictest mode that was passed over
        seen: set[str] = set()
        for waiter in heapq.merge(*(self.line(resource) for resource in resources), key=place_in_line):
            if waiter.id in seen:
                continue
            seen.add(waiter.id)
            if self._may_pass(waiter, ahead) and self.is_free_for(waiter):
                if waiter.id not in self.removed:  # who looks at the holders may find its share dead, and it goes too
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
        """The share becomes exclusive, under a new token; the request for it is done."""
        grant = self.get(request.upgrades or "")
        assert grant is not None  # an upgrade goes with its share
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
