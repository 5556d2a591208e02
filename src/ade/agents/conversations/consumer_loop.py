"""The consumer loop of one conversation: claim a batch, call the consumer, settle the batch, and back off after
failures.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.agent_consumer import Consume, DiscardBatch, waking_of
from ade.agents.conversations.batch_lease import BatchLeaseHolder, CachedInbox, is_leased, take
from ade.agents.conversations.inbox import ClearReason, ReturnReason
from ade.agents.conversations.rules import FRESH, RestartLimits, Restarts, blocking_item
from ade.common.calls import either
from ade.errors import InvalidInbox, StaleLease, StaleWrite, StoreError
from ade.events.model import ALERT, Event
from ade.locks.holder import HeldLock
from ade.logs import Log
from ade.stores.ports import Stores

# One batch: until it is done, has failed, its lease is lost, or the grace period is over.


_CANCEL_S = 10.0  # for a consumer to react to its cancellation
log = Log("ade.pumps")


class TurnEnding(Enum):
    """How a batch was settled."""

    CONFIRMED = auto()
    GIVEN_UP = auto()  # by the consumer, after an error
    CALLED_OFF = auto()  # cancelled by a person: not a failure of the consumer
    FAILED = auto()
    RELEASED = auto()  # for another loop, because this one must stop
    LOST = auto()  # the lease has expired or is about to


class ConversationTurn:
    """Runs the consumer on one batch while renewing the lease, and settles the batch."""

    def __init__(self, held: BatchLeaseHolder, consume: Consume, *, grace_s: float) -> None:
        self._held = held
        self._grace_s = grace_s
        self._was_stopped = False  # cancelled by this turn before it was done
        self._consuming = asyncio.create_task(_call(consume, held), name="ade-turn")
        self._keeping = asyncio.create_task(held.keep(), name="ade-turn-lease")

    async def run(self, over: asyncio.Event) -> TurnEnding:
        """Run and settle the turn. Once `over` is set, only the grace period remains."""
        ending = asyncio.create_task(over.wait())
        try:
            await self._first_of(ending)
            if ending.done():
                await self._first_of(timeout=self._grace_s)
            return await self._settle()
        except asyncio.CancelledError:  # no grace period either
            await self._settle()
            raise
        finally:
            ending.cancel()
            self._keeping.cancel()

    async def _first_of(self, *others: "asyncio.Task[Any]", timeout: float | None = None) -> None:
        waited_for = {self._consuming, self._keeping, *others}
        await asyncio.wait(waited_for, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _settle(self) -> TurnEnding:
        """Write the outcome. If that fails, lease expiry settles the batch."""
        was_lost = self._keeping.done()
        if not self._consuming.done():
            self._was_stopped = True
            self._consuming.cancel()
            await asyncio.wait({self._consuming}, timeout=_CANCEL_S)
        if not self._consuming.done():
            log.error("pump.consumer_does_not_stop", conversation=self._held.inbox.id)
            return TurnEnding.LOST
        try:
            return await self._write(was_lost=was_lost)
        except StaleLease:
            log.warning("pump.lease_lost", conversation=self._held.inbox.id, batch=self._held.batch.batch_id)
        except (StoreError, StaleWrite) as error:
            log.warning("pump.not_settled", conversation=self._held.inbox.id, error=str(error))
        return TurnEnding.LOST

    async def _write(self, *, was_lost: bool) -> TurnEnding:
        error = asyncio.CancelledError() if self._consuming.cancelled() else self._consuming.exception()
        if error is None:
            return await self._confirm(self._consuming.result())
        if self._was_stopped and was_lost:
            raise StaleLease
        if isinstance(error, DiscardBatch):
            return await self._give_up(error)
        if self._was_stopped:
            await self._held.give_back(ReturnReason.RELEASED)
            return TurnEnding.RELEASED
        return await self._fail(error)

    async def _confirm(self, memory: dict[str, Any] | None) -> TurnEnding:
        try:
            await self._held.confirm(memory)
        except InvalidInbox as error:  # the consumer's memory is invalid
            return await self._fail(error)
        return TurnEnding.CONFIRMED

    async def _give_up(self, given_up: DiscardBatch) -> TurnEnding:
        log.info("pump.given_up", conversation=self._held.inbox.id, reason=given_up.reason, why=given_up.why)
        try:
            await self._held.give_up(given_up.reason, given_up.memory)
        except InvalidInbox as error:
            return await self._fail(error)
        return TurnEnding.GIVEN_UP if given_up.reason is ClearReason.ERROR else TurnEnding.CALLED_OFF

    async def _fail(self, error: BaseException) -> TurnEnding:
        text = f"{type(error).__name__}: {error}"[:500]
        log.warning("pump.batch_failed", conversation=self._held.inbox.id, error=text)
        await self._held.give_back(ReturnReason.FAILED)
        return TurnEnding.FAILED


async def _call(consume: Consume, held: BatchLeaseHolder) -> dict[str, Any] | None:
    return await consume(held.batch, held.inbox)


# Failure backoff of one conversation, per process.


class RestartBackoff:
    """Tracks failures of one conversation, and decides when to try again."""

    def __init__(self, inbox_id: str, limits: RestartLimits) -> None:
        self.inbox_id = inbox_id
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._known: Restarts = FRESH
        self._next_try = 0

    @property
    def pause_s(self) -> float:
        """Seconds until the next attempt; 0 or less: no wait."""
        return (self._next_try - self._now()) / 1000

    @property
    def is_resting(self) -> bool:
        """Whether a failure limit is reached, not only the pause after a single failure."""
        return conversations_rules.is_resting(self._known, self._limits, self._now())

    @property
    def is_forgotten(self) -> bool:
        """Whether no failure counts any longer."""
        return conversations_rules.is_forgotten(self._known, self._limits, self._now())

    def failed(self) -> None:
        self._learn(conversations_rules.failed(self._known, self._limits, self._now()))

    def succeeded(self) -> None:
        self._learn(conversations_rules.succeeded(self._known))

    def inherit(self, returns: int) -> None:
        """Count failures that other processes recorded in the inbox."""
        self._learn(conversations_rules.inherited(self._known, returns, self._limits, self._now()))

    async def alert(self, stores: Stores) -> None:
        """Record an event that the conversation is paused. A failed write is only logged."""
        seconds = round(self.pause_s, 1)
        log.warning("pump.resting", conversation=self.inbox_id, in_a_row=self._known.in_a_row, seconds=seconds)
        payload: dict[str, object] = {
            "what": "conversation_rests",
            "inbox_id": self.inbox_id,
            "failures": len(self._known.failed_at),
            "in_a_row": self._known.in_a_row,
            "seconds": seconds,
        }
        try:
            await stores.documents.write([], [Event(type=ALERT, at=stores.clock.now(), payload=payload)])
        except StoreError as error:
            log.warning("pump.alert_not_written", conversation=self.inbox_id, error=str(error))

    def _learn(self, known: Restarts) -> None:
        self._known = known
        self._next_try = conversations_rules.next_try(known, self._limits, random.random())

    def _now(self) -> int:
        return round(self._loop.time() * 1000)


# Options.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """Options of consumer loops and their scheduler. Times are in seconds."""

    # each loop
    lease_s: float = 30.0  # of a batch, and of the conversation; renewed three times per period
    idle_s: float = 30.0  # without items, before a loop stops
    grace_s: float = 10.0  # for a batch in progress when the loop must stop
    batches_in_a_row: int = 20  # before a loop yields, if other conversations wait for one
    restarts: RestartLimits = field(default_factory=RestartLimits)
    # all loops of a process
    most_pumps: int = 200  # resting loops and turns that only wait do not count
    most_waiting: int = 1_000  # above this, turns that only wait count too
    starts_per_s: float = 20.0  # during recovery, until no backlog is left
    poll_s: float = 5.0  # between polls without a wake-up
    refused_s: float = 1.0  # before a conversation held by another process is tried again
    blocked_s: float = 5.0  # before a conversation is checked again whose next item is for another consumer

    def __post_init__(self) -> None:
        if self.lease_s < 1:
            raise ValueError(f"lease_s ({self.lease_s:g}) must be at least 1 second")
        if self.most_pumps < 1 or self.starts_per_s <= 0 or self.poll_s <= 0:
            raise ValueError("most_pumps, starts_per_s and poll_s must be more than 0")

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)


# Named points in a loop at which a test can pause it, inspect it, or kill it.


TAKEN, SETTLED, IDLE, RESTING, ENDED = "taken", "settled", "idle", "resting", "ended"
REFUSED, LOOKED = "refused", "looked"  # of the scheduler: another process has the conversation; the store was polled

Hook = Callable[[str], Awaitable[None]]


class ConversationProbe:
    """Test hooks, called with the inbox ID. Production registers none."""

    __slots__ = ("_hooks",)

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def on(self, point: str, hook: Hook) -> None:
        """Call the hook whenever a loop reaches this point."""
        self._hooks[point] = hook

    async def __call__(self, point: str, inbox_id: str) -> None:
        hook = self._hooks.get(point)
        if hook is not None:
            await hook(inbox_id)


_BAD = frozenset({TurnEnding.FAILED, TurnEnding.LOST, TurnEnding.GIVEN_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerServices:
    """What all loops of a process share."""

    stores: Stores
    holder: str
    options: ConversationOptions = field(default_factory=ConversationOptions)
    is_crowded: Callable[[], bool] = lambda: False  # whether other conversations wait for a slot
    probe: ConversationProbe = field(default_factory=ConversationProbe)


class ConversationConsumer:
    """The consumer loop of one conversation. It runs while there are items, and for some idle time.

    The caller must hold the conversation's lock. The loop does not poll: `wake` signals that there might be items.
    """

    def __init__(
        self,
        inbox_id: str,
        consumer: str,
        consume: Consume,
        *,
        lock: HeldLock,
        guard: RestartBackoff,
        around: ConsumerServices,
    ) -> None:
        self._inbox = CachedInbox(around.stores, inbox_id)
        self._consumer = consumer
        self._consume = consume
        self._waking = waking_of(consume)
        self._lock = lock
        self._guard = guard
        self._around = around
        self._clock, self._options = around.stores.clock, around.options
        self._woken = asyncio.Event()
        self._over = asyncio.Event()
        self._served = 0
        self.is_idle = False
        self.is_resting = False
        self.is_blocked = False  # by an item for another consumer; the loop has then stopped

    def wake(self) -> None:
        """Signal that there might be items."""
        self._woken.set()

    def stop(self) -> None:
        """Claim nothing more. A batch in progress gets the grace period to finish."""
        self._over.set()
        self._woken.set()

    async def run(self) -> None:
        """Return after an idle period, or when stopped. Raises StoreError.

        Cancellation stops the loop gracefully; a second one skips the grace period.
        """
        self._lock.when_lost(self.stop)
        work = asyncio.create_task(self._work())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            await work
            raise

    async def _work(self) -> None:
        await self._inherit()
        while not (self._over.is_set() or self._lock.is_lost):
            if not await self._rest():
                return
            self._woken.clear()
            held = await self._take()
            is_to_go_on = await (self._wait_for_items() if held is None else self._serve(held))
            if not is_to_go_on:
                return

    async def _inherit(self) -> None:
        """Count earlier returned batches, wherever they ran, and one whose holder has just been lost."""
        inbox = await self._inbox.newest()
        self._guard.inherit(inbox.returns + (0 if inbox.lease is None else 1))

    async def _rest(self) -> bool:
        """Wait until the backoff allows the next attempt. Returns whether to continue."""
        pause_s = self._guard.pause_s
        if pause_s <= 0:
            return True
        self.is_resting = self._guard.is_resting
        if self.is_resting:
            await self._guard.alert(self._around.stores)
        await self._around.probe(RESTING, self._inbox.id)
        await either(self._over, pause_s)
        has_no_place = self.is_resting and self._around.is_crowded()  # its slot went to another conversation
        self.is_resting = False
        return not (has_no_place or self._over.is_set())

    async def _take(self) -> BatchLeaseHolder | None:
        if not (await self._inbox.newest()).items:
            self._inbox.forget()  # items might have arrived before we subscribed to wake-ups
        return await take(
            self._inbox,
            self._clock,
            consumer=self._consumer,
            waking=self._waking,
            holder=self._around.holder,
            lease_ms=self._options.lease_ms,
        )

    async def _wait_for_items(self) -> bool:
        """Return whether there might be items now."""
        inbox = await self._inbox.newest()
        self._inbox.forget()
        if inbox.consumer != self._consumer:
            return False
        if inbox.lease is not None and is_leased(inbox, self._clock, self._options.lease_ms):
            left_s = (inbox.lease.until - self._clock.steady() + 1) / 1000  # of a lost loop
            await either(self._woken, left_s if left_s > 0 else self._options.refused_s)
            return True
        if blocking_item(inbox.items, self._waking):
            self.is_blocked = True
            return False
        self.is_idle = True
        await self._around.probe(IDLE, self._inbox.id)
        await either(self._woken, self._options.idle_s)
        self.is_idle = False
        return self._woken.is_set()

    async def _serve(self, held: BatchLeaseHolder) -> bool:
        """Process one batch. Returns whether to continue with the next."""
        await self._around.probe(TAKEN, self._inbox.id)
        ending = await ConversationTurn(held, self._consume, grace_s=self._options.grace_s).run(self._over)
        if ending is TurnEnding.CONFIRMED:
            self._guard.succeeded()
        elif ending in _BAD:
            self._guard.failed()
            self._inbox.forget()
        await self._around.probe(SETTLED, self._inbox.id)
        self._served += 1
        return self._served < self._options.batches_in_a_row or not self._around.is_crowded()
