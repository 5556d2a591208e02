"""Keeps what one event loop holds: every lease is set anew three times in its length, and at every heartbeat."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar

from ade.errors import LockLost, StaleToken, StoreError
from ade.locks.model import LockRequest, by_namespace, covers
from ade.locks.modes import LockMode, LockSpec
from ade.logs import Log
from ade.settings.runtime import RuntimeSettings, RuntimeSettingsCache
from ade.stores.resource_ports import LockStore

# A lock that is held. It knows by its own clock when it can no longer be sure of that, whatever the store says.


_MARGIN, _LONGEST_MARGIN_S = 0.1, 1.0


def certain_for(ttl_ms: int) -> float:
    """Seconds after the start of a call that granted or renewed a lease in which it surely holds."""
    ttl_s = ttl_ms / 1000
    return ttl_s - max(ttl_s * _MARGIN, min(_LONGEST_MARGIN_S, ttl_s / 4))


class HeldLock:
    """Granted. Use it from the event loop that asked for it; `check` and the tokens from any thread."""

    def __init__(
        self, grant: LockRequest, asked_at: float, loop: asyncio.AbstractEventLoop, *, is_told: bool = True
    ) -> None:
        self.grant = grant
        self.loop = loop
        self._why_lost: str | None = None
        self._on_lost: list[Callable[[], object]] = []
        self._until = 0.0
        self._is_told = is_told  # whether somebody is to be told when it is lost, and does not look by himself
        self._alarm: asyncio.TimerHandle | None = None
        self.extend(grant, asked_at)

    @property
    def id(self) -> str:
        return self.grant.id

    @property
    def is_lost(self) -> bool:
        return self._why_lost is not None or self.loop.time() >= self._until

    def check(self) -> None:
        """Raise LockLost unless the lock is surely held at this moment. Nobody is asked."""
        if self.is_lost:
            raise LockLost(
                f"the lock on {', '.join(self.grant.resources)} is not held any more:"
                f" {self._why_lost or 'it was not renewed in time'}"
            )

    def token(self, resource: str | None = None) -> int:
        """The fencing token to give to the resource with every write: it refuses one that is lower than it has seen."""
        self.check()
        items = {item.resource: item.token for item in self.grant.items}
        if resource is None and len(items) == 1:
            return next(iter(items.values()))
        return items[resource or ""]

    def mode(self, resource: str) -> LockMode | None:
        return self.grant.mode_of(resource)

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Called on the event loop, once, as soon as the lock is lost."""
        self._on_lost.append(tell)

    # by whoever keeps it

    def extend(self, grant: LockRequest, asked_at: float) -> None:
        """It was granted or renewed by a call that began at this moment."""
        if self._why_lost is not None:
            return
        self.grant = grant
        self._until = asked_at + certain_for(grant.ttl_ms)
        if self._alarm is None and self._is_told:
            self._alarm = self.loop.call_at(self._until, self._look)

    def extend_from_thread(self, grant: LockRequest, asked_at: float) -> None:
        """The same by another thread: its own loop may be blocked. The alarm looks at the time when it goes off."""
        if self._why_lost is None:
            self.grant = grant
            self._until = max(self._until, asked_at + certain_for(grant.ttl_ms))

    @property
    def is_late(self) -> bool:
        """Whether it should have been renewed some time ago."""
        return self.loop.time() > self._until - certain_for(self.grant.ttl_ms) / 2

    def _look(self) -> None:
        self._alarm = None
        if self.loop.time() >= self._until:
            self.lose("it was not renewed in time")
        else:
            self._alarm = self.loop.call_at(self._until, self._look)

    def lose(self, why: str) -> None:
        if self._why_lost is None:
            self._why_lost = why
            self.forget()
            for tell in self._on_lost:
                tell()

    def forget(self) -> None:
        """Nobody needs to be told any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


_IN_ONE_LEASE = 3
log = Log("ade.locks")


class LockRenewer:
    def __init__(self, store: LockStore, runtime: RuntimeSettingsCache) -> None:
        self._store = store
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # one with a shorter lease than all others was added
        self._shortest_ms = 0
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
        """The same by another thread. Usually the job is there, and has nothing to do for a while."""
        self.held[held.id] = held
        job = self._job
        if job is None or job.done() or held.grant.ttl_ms < self._shortest_ms:
            self._loop.call_soon_threadsafe(self._look_after, held)

    def remove(self, held: HeldLock) -> None:
        self.held.pop(held.id, None)
        held.forget()

    def renew_late(self) -> None:
        """By another thread, for a loop that is blocked: those that should have been renewed by now."""
        late = [held for held in list(self.held.values()) if held.is_late and not held.is_lost]
        by_id = {held.id: held for held in late}
        for namespace, ids in by_namespace(held.grant for held in late).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, self._store.renew_blocking(namespace, ids), strict=True):
                if grant is not None:
                    by_id[request_id].extend_from_thread(grant, asked_at)
                else:
                    self._loop.call_soon_threadsafe(by_id[request_id].lose, "it ran out or was taken away")

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _work(self) -> None:
        """Locks come and go while this sleeps, and usually need nothing from it."""
        renewed_at = self._loop.time()
        while True:
            self._hurry.clear()
            self._shortest_ms = min((held.grant.ttl_ms for held in list(self.held.values())), default=self._shortest_ms)
            pause = renewed_at + self._interval_s() - self._loop.time()
            if pause > 0:
                await either(self._hurry, pause)
                continue
            if not self.held:
                self._job = None  # first: who comes now from another thread finds nobody at work
                if not self.held:
                    return
                self._job = asyncio.current_task()
            renewed_at = self._loop.time()
            try:
                await self._renew()
                await self._runtime.current()
            except StoreError as error:  # every lock has an alarm of its own
                log.warning("lock.not_renewed", locks=len(self.held), error=str(error))

    def _interval_s(self) -> float:
        heartbeat_s = (self._runtime.peek() or RuntimeSettings()).get("lock.heartbeat_interval_s")
        return min(self._shortest_ms / 1000 / _IN_ONE_LEASE, heartbeat_s)

    async def _renew(self) -> None:
        for namespace, ids in by_namespace(held.grant for held in list(self.held.values())).items():
            asked_at = self._loop.time()
            for request_id, grant in zip(ids, await self._store.renew(namespace, ids), strict=True):
                held = self.held.get(request_id)
                if held is not None and grant is not None:
                    held.extend(grant, asked_at)
                elif held is not None:
                    self.remove(held)
                    held.lose("it ran out or was taken away")


async def either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


# What runs in one go, such as a run of a task: what it holds, it may ask for again, and it never waits for itself.


Place = asyncio.Task[object] | int  # a task of an event loop, or a thread


class LockScope:
    def __init__(self, at: Place | None, scope_id: str) -> None:
        self.id = scope_id
        self.at = at
        self.held: list[HeldLock] = []

    def covering(self, namespace: str, wishes: Iterable[LockSpec]) -> HeldLock | None:
        """A lock held here that has all of this: the exclusive one includes the share."""
        for held in self.held:
            if held.grant.namespace == namespace and covers(held.grant.items, wishes):
                return held
        return None


current: ContextVar[LockScope | None] = ContextVar("ade_lock_scope", default=None)


def scope_at(at: Place | None) -> LockScope | None:
    """The scope of this very place: one that was inherited from another place is not its own."""
    known = current.get()
    return known if known is not None and known.at == at else None


# For what is protected by a lock: a sink that takes no write from who has lost it, however late the write comes.


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
                raise StaleToken(f"token {token} for {resource} is older than {newest}; the lock went to somebody else")
            self.seen[resource] = token
