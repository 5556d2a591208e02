"""The conversation scheduler of a process: starts a consumer loop per conversation with items, up to a limit."""

import asyncio
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence

from ade.accounts.model import SYSTEM
from ade.agents.conversations import consumer_loop
from ade.agents.conversations.agent_consumer import Consume, WaitingConsumer
from ade.agents.conversations.consumer_loop import (
    ConsumerServices,
    ConversationConsumer,
    ConversationOptions,
    ConversationProbe,
    RestartBackoff,
)
from ade.common.calls import either
from ade.errors import AdeError, LockTimeout, StoreError
from ade.locks.client import StoreLockClient
from ade.locks.holder import HeldLock, LockHolder
from ade.locks.model import LockLimits, write
from ade.locks.requests import LEAST_TTL_MS, LONGEST_TTL_MS, validate_request
from ade.logs import Log
from ade.stores.ports import INBOX, Stores

# Conversation locks: one consumer loop per conversation across all processes. Other processes do not wait for the lock.


NAMESPACE = "ade.conversations"  # separate from users' locks
_LONGEST_NAME = 400  # bytes
_NO_LIMIT = 1_000_000_000


class ConversationLocks(LockHolder[StoreLockClient]):
    """The conversation locks that this process holds. Bound to one event loop."""

    def __init__(self, stores: Stores, *, holder: str, lease_ms: int) -> None:
        limits = LockLimits(requests_per_owner=_NO_LIMIT, waiters_per_resource=_NO_LIMIT)
        super().__init__(StoreLockClient(stores, limits=limits, finds_rings=False))
        self._holder = holder
        self._ttl_ms = max(LEAST_TTL_MS, min(lease_ms, LONGEST_TTL_MS))

    async def claim(self, inbox_id: str) -> HeldLock | None:
        """Acquire the lock of a conversation. None if another process holds it."""
        grant_id = os.urandom(16).hex()
        request = validate_request(
            id=grant_id,
            owner=self._holder,
            scope=grant_id,
            wanted=[write(resource_of(inbox_id))],
            namespace=NAMESPACE,
            purpose="pump",
            ttl_ms=self._ttl_ms,
            account=SYSTEM,
        )
        try:
            return await self.acquire(await self.client.capped(request), wait_ms=0)
        except LockTimeout:
            return None


def resource_of(inbox_id: str) -> str:
    """Return the lock name; a long inbox ID is replaced by its digest, because lock names are shorter."""
    name = f"conversation:{inbox_id}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"conversation:sha256:{hashlib.sha256(inbox_id.encode()).hexdigest()}"


_BETWEEN_SEARCHES_S = 1.0  # minimum interval of the search for turns that only wait
_BETWEEN_LOOKS_S = 0.02  # wake-ups within this interval are handled together
_AT_ONCE_S = 0.1  # starts that were due within this interval happen together
_END_S = 15.0  # beyond the grace period, for loops that do not stop
_MOST_ASKED_FOR = 10_000
_MOST_GUARDS = 10_000
log = Log("ade.pumps")


class ConversationScheduler:
    """Polls the store for conversations with items, and runs a consumer loop for each. Bound to one event loop.

    `consumers` maps the names that inboxes are bound to onto functions.
    """

    def __init__(
        self,
        stores: Stores,
        consumers: Mapping[str, Consume],
        options: ConversationOptions | None = None,
        *,
        probe: ConversationProbe | None = None,
    ) -> None:
        self._stores = stores
        self._consumers = dict(consumers)
        self._options = options or ConversationOptions()
        self._probe = probe or ConversationProbe()
        self._around = ConsumerServices(
            stores=stores,
            holder=f"pump:{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}",
            options=self._options,
            is_crowded=lambda: self._is_crowded,
            probe=self._probe,
        )
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._pumps: dict[str, ConversationConsumer] = {}  # jobs that have acquired their conversation's lock
        self._guards: dict[str, RestartBackoff] = {}
        self._waiting: set[str] = set()  # turns that only waited at the last search for free slots
        self._refused: dict[str, float] = {}  # inbox -> retry time, for those held by another process or blocked
        self._rung = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_crowded = False  # more conversations wait than there are slots
        self._is_recovering = True  # a backlog from before the start might be too large to start immediately
        self._next_start = 0.0
        self._look_for_places_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then every loop gets its grace period."""
        self._loop = asyncio.get_running_loop()
        self._claims = ConversationLocks(self._stores, holder=self._around.holder, lease_ms=self._options.lease_ms)
        unfollow = self._stores.wakeups.follow(INBOX, self._rung.set)
        waiting = asyncio.create_task(self._wait_for(stop))
        try:
            while not self._stopping.is_set():
                await self._round()
        finally:
            waiting.cancel()
            unfollow()
            await self._end_all()
            await self._claims.close()

    async def _wait_for(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping.set()
        self._rung.set()

    async def _round(self) -> None:
        """Poll once, then wait for a wake-up, the end of a loop, or the poll interval."""
        self._rung.clear()
        wait_s = self._options.poll_s
        try:
            ready = await self._stores.inboxes.ready(frozenset(self._consumers), self._most_to_ask_for())
            is_kept_back = self._begin(ready)
            if self._is_crowded and self._may_look_for_places() and await self._find_places():
                is_kept_back = self._begin(ready)
            if is_kept_back:
                wait_s = min(wait_s, max(self._next_start - self._loop.time(), 0.0))
        except StoreError as error:
            log.warning("pumps.not_looked", error=str(error))
        await self._probe(consumer_loop.LOOKED, "")
        await either(self._stopping, min(_BETWEEN_LOOKS_S, wait_s))
        await either(self._rung, wait_s)

    def _most_to_ask_for(self) -> int:
        """Return the query limit. It includes listed inboxes that cannot start, which could fill the whole page."""
        cannot = len(self._jobs) + len(self._refused) + len(self._guards)
        return min(self._options.most_pumps + cannot, _MOST_ASKED_FOR)

    def _begin(self, ready: Sequence[str]) -> bool:
        """Start loops. Returns whether some were delayed by the start rate."""
        self._forget_old()
        waiting = []
        for inbox_id in ready:
            if inbox_id in self._pumps:
                self._pumps[inbox_id].wake()
            elif self._may_begin(inbox_id):
                waiting.append(inbox_id)
        begun = 0
        while begun < len(waiting) and self._places() > 0 and self._is_time():
            self._start(waiting[begun])
            begun += 1
        are_left = begun < len(waiting)
        self._is_recovering = self._is_recovering and are_left
        self._is_crowded = are_left and self._places() <= 0
        if self._is_crowded:
            self._make_room()
        return are_left and not self._is_crowded

    def _may_begin(self, inbox_id: str) -> bool:
        guard = self._guards.get(inbox_id)
        is_free = inbox_id not in self._jobs and inbox_id not in self._refused
        return is_free and (guard is None or guard.pause_s <= 0)

    def _is_time(self) -> bool:
        """Return whether one more loop can start now; rate-limited while the initial backlog lasts."""
        now = self._loop.time()
        if self._is_recovering and now < self._next_start:
            return False
        self._next_start = max(self._next_start, now - _AT_ONCE_S) + 1 / self._options.starts_per_s
        return True

    def _places(self) -> int:
        """Return the number of free slots. Resting loops do not count, so that a few failing conversations cannot block
        others.

        Turns that wait for reviewers do not count either, because that can take days.
        """
        resting = {inbox_id for inbox_id, pump in self._pumps.items() if pump.is_resting}
        waiting = min(len(self._waiting - resting), self._options.most_waiting)
        return self._options.most_pumps - len(self._jobs) + len(resting) + waiting

    def _may_look_for_places(self) -> bool:
        """Limit the search to once per second, however frequent the wake-ups."""
        now = self._loop.time()
        if now < self._look_for_places_at:
            return False
        self._look_for_places_at = now + _BETWEEN_SEARCHES_S
        return True

    async def _find_places(self) -> bool:
        """Find turns that only wait. Returns whether a slot is free now. Raises StoreError."""
        consumers: list[object] = list(self._consumers.values())
        patient = [consume for consume in consumers if isinstance(consume, WaitingConsumer)]
        found = [inbox_id for consume in patient for inbox_id in await consume.only_waiting()]
        self._waiting = {inbox_id for inbox_id in found if inbox_id in self._pumps}
        return self._places() > 0

    def _make_room(self) -> None:
        for pump in self._pumps.values():
            if pump.is_idle:
                pump.stop()

    def _start(self, inbox_id: str) -> None:
        job = asyncio.create_task(self._keep_pumping(inbox_id), name=f"ade-pump-{inbox_id}")
        self._jobs[inbox_id] = job
        job.add_done_callback(lambda _: self._ended(inbox_id))

    def _ended(self, inbox_id: str) -> None:
        """Free the slot, and poll again, because items might have arrived while the loop stopped."""
        self._jobs.pop(inbox_id, None)
        self._pumps.pop(inbox_id, None)
        self._waiting.discard(inbox_id)
        self._rung.set()

    async def _keep_pumping(self, inbox_id: str) -> None:
        try:
            await self._pump(inbox_id)
        except AdeError as error:
            log.warning("pump.ended", conversation=inbox_id, code=error.code, error=error.detail)
            await self._restart_later(inbox_id)
        except Exception:
            log.exception("pump.ended", conversation=inbox_id)
            await self._restart_later(inbox_id)

    async def _restart_later(self, inbox_id: str) -> None:
        guard = self._guard_of(inbox_id)
        guard.failed()
        if guard.is_resting:
            await guard.alert(self._stores)

    async def _pump(self, inbox_id: str) -> None:
        lock = await self._claims.claim(inbox_id)
        if lock is None:
            self._refused[inbox_id] = self._loop.time() + self._options.refused_s
            await self._probe(consumer_loop.REFUSED, inbox_id)
            return
        try:
            name = (await self._stores.inboxes.load(inbox_id)).consumer
            if name is None or name not in self._consumers or self._stopping.is_set():
                return
            guard = self._guard_of(inbox_id)
            pump = ConversationConsumer(
                inbox_id, name, self._consumers[name], lock=lock, guard=guard, around=self._around
            )
            self._pumps[inbox_id] = pump
            await pump.run()
            if pump.is_blocked:
                self._refused[inbox_id] = self._loop.time() + self._options.blocked_s
        finally:
            await self._claims.release(lock)
            await self._probe(consumer_loop.ENDED, inbox_id)

    def _guard_of(self, inbox_id: str) -> RestartBackoff:
        return self._guards.setdefault(inbox_id, RestartBackoff(inbox_id, self._options.restarts))

    def _forget_old(self) -> None:
        now = self._loop.time()
        self._refused = {inbox_id: until for inbox_id, until in self._refused.items() if until > now}
        for inbox_id, guard in list(self._guards.items()):
            if inbox_id not in self._jobs and (guard.is_forgotten or len(self._guards) > _MOST_GUARDS):
                del self._guards[inbox_id]

    async def _end_all(self) -> None:
        for pump in self._pumps.values():
            pump.stop()
        if not self._jobs:
            return
        _, late = await asyncio.wait(list(self._jobs.values()), timeout=self._options.grace_s + _END_S)
        for job in late:
            job.cancel()
        if late:
            await asyncio.wait(late, timeout=_END_S)
