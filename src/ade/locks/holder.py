"""The lock holder: renews the locks of one event loop until they are released, and detects when one is lost."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ade.common.calls import either
from ade.errors import AdeError, InvalidLock, LockLost, LockTimeout, StaleToken
from ade.locks.model import LockMode, LockRequest, LockSpec, by_namespace, covers, normal_name
from ade.logs import Log

if TYPE_CHECKING:
    from ade.locks.client import StoreLockClient


# A held lock. It uses the local clock to decide when it is no longer certain to be held, whatever the store reports.


Granted = tuple[LockRequest, float]  # a grant, and the event loop time at or before which its lease began
_MARGIN, _LONGEST_MARGIN_S = 0.1, 1.0


def certain_for(ttl_ms: int) -> float:
    """Return how many seconds after the start of a granting or renewing call the lease is certain to hold."""
    ttl_s = ttl_ms / 1000
    return ttl_s - max(ttl_s * _MARGIN, min(_LONGEST_MARGIN_S, ttl_s / 4))


class Interruption:
    """Cancels the block that relies on a lock when the lock is lost, via the asyncio task that runs it, if any."""

    def __init__(self, task: "asyncio.Task[Any] | None") -> None:
        self._task = task
        self._cancelling = 0 if task is None else task.cancelling()
        self._is_left = self._has_come = False

    def __call__(self) -> None:
        if not self._is_left and self._task is not None:
            self._has_come = True
            self._task.cancel()

    def leave(self) -> None:
        """Disarm: the block has ended and must no longer be cancelled."""
        self._is_left = True

    def was_cause(self, kind: type[BaseException] | None) -> bool:
        """Whether the block was cancelled only because of the lock. Call it once."""
        if not self._has_come or self._task is None:
            return False
        return self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError


class HeldLock:
    """A granted lock. Use it from its event loop; `check` and `token` can be called from any thread."""

    def __init__(
        self, grant: LockRequest, asked_at: float, loop: asyncio.AbstractEventLoop, *, is_told: bool = True
    ) -> None:
        self.grant = grant
        self.loop = loop
        self._why_lost: str | None = None
        self._on_lost: list[Callable[[], object]] = []
        self._until = 0.0
        self._is_told = is_told  # whether a timer calls back when it is lost; otherwise its user polls `is_lost`
        self._alarm: asyncio.TimerHandle | None = None
        self.extend(grant, asked_at)

    @property
    def id(self) -> str:
        return self.grant.id

    @property
    def is_lost(self) -> bool:
        return self._why_lost is not None or self.loop.time() >= self._until

    def check(self) -> None:
        """Raise LockLost unless the lock is certainly held now, by the local clock."""
        if self.is_lost:
            raise LockLost(
                f"the lock on {', '.join(self.grant.resources)} is no longer held:"
                f" {self._why_lost or 'it was not renewed in time'}"
            )

    def token(self, resource: str | None = None) -> int:
        """Return the fencing token to send with every write: the resource rejects tokens lower than one it has seen."""
        self.check()
        items = {item.resource: item.token for item in self.grant.items}
        if resource is None and len(items) == 1:
            return next(iter(items.values()))
        return items[normal_name(resource or "")]

    def mode(self, resource: str) -> LockMode | None:
        return self.grant.mode_of(resource)

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Register a callback that runs once, on the event loop, as soon as the lock is lost."""
        self._on_lost.append(tell)

    # For the lock holder

    def extend(self, grant: LockRequest, asked_at: float) -> None:
        """Extend the lease after a grant or renewal by a call that began at `asked_at`."""
        if self._why_lost is not None:
            return
        self.grant = self._newer(grant)
        self._until = asked_at + certain_for(grant.ttl_ms)
        if self._alarm is None and self._is_told:
            self._alarm = self.loop.call_at(self._until, self._look)

    def extend_from_thread(self, grant: LockRequest, asked_at: float) -> None:
        """Extend the lease from another thread: the event loop may be blocked. The timer rechecks when it fires."""
        if self._why_lost is None:
            self.grant = self._newer(grant)
            self._until = max(self._until, asked_at + certain_for(grant.ttl_ms))

    def _newer(self, grant: LockRequest) -> LockRequest:
        """Return the newer one: a renewal may have begun before an upgrade and be answered after it."""
        newest = max(item.token for item in self.grant.items)
        return self.grant if max(item.token for item in grant.items) < newest else grant

    @property
    def is_late(self) -> bool:
        """Whether a renewal is overdue."""
        return self.loop.time() > self._until - certain_for(self.grant.ttl_ms) / 2

    def _look(self) -> None:
        self._alarm = None
        if self.loop.time() >= self._until:
            self.lose("it was not renewed in time")
        else:
            self._alarm = self.loop.call_at(self._until, self._look)

    def lose(self, why: str) -> None:
        """Mark the lock as lost and run the callbacks."""
        if self._why_lost is None:
            self._why_lost = why
            self.forget()
            for tell in self._on_lost:
                tell()

    def forget(self) -> None:
        """Cancel the timer: losing the lock no longer matters."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


_IN_ONE_LEASE = 3  # renewals
_RENEW_IN = 4  # of the lease: a renewal without a response can be repeated before the lease expires
_RETRY_S = 0.3
_GONE = "it expired or was taken away"
log = Log("ade.locks")


class LockClient(Protocol):
    """The source of locks: StoreLockClient or HttpLockClient. Belongs to one event loop."""

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, goes_on: Callable[[], bool]) -> Granted:
        """Wait until it is granted. A client retries only while `goes_on` returns true.

        Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock.
        """

    async def renew(
        self, namespace: str, request_ids: Sequence[str], *, within_s: float
    ) -> Sequence[LockRequest | None]:
        """Renew the leases of at most `renews_at_once` grants; None for those that are gone.

        Raises AdeError, TimeoutError.
        """

    async def release(self, request: LockRequest) -> None:
        """Release a grant, or leave the wait queue. A failure is logged; the lease then expires on its own."""

    @property
    def heartbeat_s(self) -> float:
        """The longest time between two renewals, regardless of lease length."""

    @property
    def renews_at_once(self) -> int:
        """How many IDs one call of `renew` takes."""

    def watch_losses(self, tell: Callable[[], None], held: Callable[[], Iterable[LockRequest]]) -> Callable[[], object]:
        """Call back on the running loop when a lock, perhaps one of those held, was released by force.

        Returns a function to stop. A call can be lost: the next renewal finds out.
        """

    async def refresh(self) -> None:
        """Reload settings that may have changed; called after each round of renewals. Raises AdeError."""

    async def close(self) -> None:
        """Fail all waiters and finish pending releases."""


ClientT = TypeVar("ClientT", bound=LockClient)


def _always() -> bool:
    return True


class LockHolder(Generic[ClientT]):
    """Acquires, renews, and releases the locks of one event loop.

    Methods with a typed `self` need a client with direct store access.
    """

    def __init__(self, client: ClientT) -> None:
        self.client = client
        self._loop = asyncio.get_running_loop()
        self._renewals = Renewals(client)

    async def acquire(
        self, request: LockRequest, *, wait_ms: int | None, goes_on: Callable[[], bool] = _always
    ) -> HeldLock:
        """Wait until it is granted; see LockClient.acquire for `goes_on`.

        Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock.
        """
        grant, since = await self.client.acquire(request, wait_ms=wait_ms, goes_on=goes_on)
        return self._hold(grant, since)

    def _hold(self, grant: LockRequest, since: float) -> HeldLock:
        held = HeldLock(grant, since, self._loop)
        self._renewals.add(held)
        return held

    async def release(self, held: HeldLock) -> None:
        """Release it. A lock that is already lost needs no more care."""
        self._renewals.remove(held)
        await self.client.release(held.grant)

    def stop_renewing(self, held: HeldLock) -> None:
        """Let a lock expire whose release may take long or fail."""
        self._renewals.remove(held)

    async def leave(self, request: LockRequest) -> None:
        """Release it, whether it is held here, waiting, or gone."""
        held = self._renewals.held.get(request.id)
        if held is not None:
            self._renewals.remove(held)
        await self.client.release(request)

    async def close(self) -> None:
        """Release everything. Pending waits fail."""
        await self.client.close()
        await self._renewals.close()
        for held in list(self._renewals.held.values()):
            await self.release(held)

    async def take(self: "LockHolder[StoreLockClient]", request: LockRequest) -> HeldLock | None:
        """Return the lock if granted immediately; otherwise None, and the request waits unattended."""
        asked_at = self._loop.time()
        grant = await self.client.grant(request)
        return None if grant is None else self._hold(grant, asked_at)

    async def upgrade(
        self: "LockHolder[StoreLockClient]", held: HeldLock, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> None:
        """Make a shared lock exclusive, ahead of all waiters. Raises LockTimeout, LockLost, UpgradeDeadlock."""
        self._check_is_here(held)
        held.check()
        grant, since = await self.client.upgrade(held.grant, resource, upgrade_id=upgrade_id, wait_ms=wait_ms)
        if grant is None:
            held.lose("it expired while it waited for its upgrade")
        held.check()
        if grant is None or grant.mode_of(resource) is not LockMode.EXCLUSIVE:
            raise LockTimeout(f"others share the lock on {resource}")
        held.extend(grant, since)

    async def downgrade(self: "LockHolder[StoreLockClient]", held: HeldLock, resource: str) -> None:
        """Make an exclusive lock shared, immediately. Raises LockLost."""
        self._check_is_here(held)
        held.check()
        held.extend(*await self.client.downgrade(held.grant, resource))

    def _check_is_here(self, held: HeldLock) -> None:
        if held.loop is not self._loop:
            raise InvalidLock("a lock of a task is widened or narrowed by naming it so; it is the worker's here")

    # For threads without an event loop

    def acquire_blocking(
        self: "LockHolder[StoreLockClient]", request: LockRequest, *, wait_ms: int | None
    ) -> HeldLock | LockRequest:
        """Return the held lock, or the waiting request to pass to `wait_in_line`. Raises the errors of `acquire`."""
        answer, asked_at = self.client.acquire_blocking(request, wait_ms=wait_ms)
        if not answer.is_granted:
            return answer
        held = HeldLock(answer, asked_at, self._loop, is_told=False)
        self._renewals.add_from_thread(held)
        return held

    async def wait_in_line(
        self: "LockHolder[StoreLockClient]", request: LockRequest, asked_at: float, wait_ms: int | None
    ) -> HeldLock:
        """Wait, on the event loop, for a request that a thread sent at `asked_at` and that was queued."""
        return self._hold(*await self.client.wait_in_line(request, asked_at, wait_ms))

    def release_blocking(self: "LockHolder[StoreLockClient]", held: HeldLock) -> None:
        self._renewals.remove(held)
        self.client.release_blocking(held.grant)

    def renew_late(self: "LockHolder[StoreLockClient]") -> None:
        """Renew overdue locks from another thread while this event loop is blocked. Raises StoreError."""
        late = [held for held in list(self._renewals.held.values()) if held.is_late and not held.is_lost]
        by_id = {held.id: held for held in late}
        for namespace, ids in by_namespace(held.grant for held in late).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, self.client.renew_blocking(namespace, ids), strict=True):
                if grant is not None:
                    by_id[request_id].extend_from_thread(grant, asked_at)
                else:
                    self._loop.call_soon_threadsafe(by_id[request_id].lose, _GONE)


class Renewals:
    """One asyncio task renews all locks of a holder: three times per lease, and at every heartbeat."""

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # a lock with a shorter lease than all others was added
        self._shortest_ms = 0
        self._is_lost = False  # some lock was released by force, perhaps one of these
        self.held: dict[str, HeldLock] = {}

    def add(self, held: HeldLock) -> None:
        self.held[held.id] = held
        self._look_after(held)

    def _look_after(self, held: HeldLock) -> None:
        if self._job is None or self._job.done():
            self._shortest_ms = held.grant.ttl_ms
            self._job = self._loop.create_task(self._work(), name="ade-lock-renewals")
        elif held.grant.ttl_ms < self._shortest_ms:
            self._hurry.set()

    def add_from_thread(self, held: HeldLock) -> None:
        """Like `add`, from another thread. Usually the asyncio task is already running and needs no wake-up."""
        self.held[held.id] = held
        job = self._job
        if job is None or job.done() or held.grant.ttl_ms < self._shortest_ms:
            self._loop.call_soon_threadsafe(self._look_after, held)

    def remove(self, held: HeldLock) -> None:
        self.held.pop(held.id, None)
        held.forget()

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _work(self) -> None:
        """Renew all locks periodically, and immediately when one was released by force."""
        self._is_lost = False
        unwatch = self._client.watch_losses(self._look_now, lambda: [held.grant for held in list(self.held.values())])
        try:
            await self._renew_for_ever()
        finally:
            unwatch()

    def _look_now(self) -> None:
        self._is_lost = True
        self._hurry.set()

    async def _renew_for_ever(self) -> None:
        """Return when no lock is held. Most locks are acquired and released between two rounds."""
        began, is_well = self._loop.time(), True
        while True:
            self._hurry.clear()
            self._shortest_ms = min((held.grant.ttl_ms for held in list(self.held.values())), default=self._shortest_ms)
            interval_s = min(self._shortest_ms / 1000 / _IN_ONE_LEASE, self._client.heartbeat_s)
            pause = began + (interval_s if is_well else min(interval_s, _RETRY_S)) - self._loop.time()
            if pause > 0 and not (self._is_lost and self.held):
                await either(self._hurry, pause)
                continue
            self._is_lost = False
            if not self.held:
                self._job = None  # first, so that a thread that adds a lock now starts a new job
                if not self.held:
                    return
                self._job = asyncio.current_task()
            began = self._loop.time()
            is_well = all(await asyncio.gather(*self._renew_all(min(interval_s, self._shortest_ms / 1000 / _RENEW_IN))))
            with suppress(AdeError):
                await self._client.refresh()

    def _renew_all(self, within_s: float) -> Iterator[Coroutine[Any, Any, bool]]:
        """Renew in calls beside each other, so that one without a response costs no other lock its lease."""
        most = self._client.renews_at_once
        for namespace, ids in by_namespace(held.grant for held in list(self.held.values())).items():
            for start in range(0, len(ids), most):
                yield self._renew(namespace, ids[start : start + most], within_s)

    async def _renew(self, namespace: str, ids: Sequence[str], within_s: float) -> bool:
        """Whether the renewal got a response. Without one, every lock still has its own timer."""
        asked_at = self._loop.time()
        try:
            standing = await self._client.renew(namespace, ids, within_s=within_s)
        except (AdeError, TimeoutError) as error:
            log.warning("lock.not_renewed", locks=len(ids), error=str(error) or f"no answer within {within_s:g} s")
            return False
        for request_id, grant in zip(ids, standing, strict=True):
            held = self.held.get(request_id)
            if held is not None and grant is not None:
                held.extend(grant, asked_at)
            elif held is not None:
                self.remove(held)
                held.lose(_GONE)
        return True


# Lock scopes: the unit that holds and waits, such as a run. It can lock what it holds again, and never waits for
# itself.


Place = asyncio.Task[object] | int  # an asyncio task, or a thread ID


class LockScope:
    """The locks held by one asyncio task or thread."""

    def __init__(self, at: Place | None, scope_id: str) -> None:
        self.id = scope_id
        self.at = at
        self.held: list[HeldLock] = []

    def covering(self, namespace: str, specs: Iterable[LockSpec]) -> HeldLock | None:
        """Return a lock held in this scope that covers all the specs; an exclusive lock includes the shared one."""
        for held in self.held:
            if held.grant.namespace == namespace and covers(held.grant.items, specs):
                return held
        return None


current: ContextVar[LockScope | None] = ContextVar("ade_lock_scope", default=None)


def scope_at(at: Place | None) -> LockScope | None:
    """Return the scope of exactly this task or thread; a scope inherited from another one does not count."""
    known = current.get()
    return known if known is not None and known.at == at else None


# For resources protected by a lock: reject writes from a client that has lost the lock, however late they arrive.


class Fence:
    """Remembers the highest token it has seen of each resource, and refuses lower ones. For any thread.

    It stands where the writes arrive: in the service that owns the resource, or beside the file that is written. Keep
    `seen` with the resource itself if that outlives the process.
    """

    def __init__(self, seen: dict[str, int] | None = None) -> None:
        self.seen = {} if seen is None else seen
        self._lock = threading.Lock()

    def check(self, resource: str, token: int) -> None:
        """Raise StaleToken if somebody with a higher token was here before."""
        with self._lock:
            newest = self.seen.get(resource, 0)
            if token < newest:
                raise StaleToken(
                    f"token {token} for {resource} is older than {newest}; the lock is held by another owner now"
                )
            self.seen[resource] = token
