"""The pump of one conversation: one loop that takes a batch, puts it before the consumer, and settles it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ade.agents.pumping import probe
from ade.agents.pumping.consuming import Consume, waking_of
from ade.agents.pumping.guard import Guard
from ade.agents.pumping.holding import HeldBatch, is_out, take
from ade.agents.pumping.known import KnownInbox
from ade.agents.pumping.options import PumpOptions
from ade.agents.pumping.probe import Probe
from ade.agents.pumping.turn import Ending, Turn
from ade.core.inbox.turns import in_the_way
from ade.governance.locks.held import HeldLock
from ade.governance.locks.renewals import either
from ade.ports import Stores

_BAD = frozenset({Ending.FAILED, Ending.LOST, Ending.GIVEN_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all pumps of a process have in common."""

    stores: Stores
    holder: str
    options: PumpOptions = field(default_factory=PumpOptions)
    is_crowded: Callable[[], bool] = lambda: False  # whether other conversations wait for a pump
    probe: Probe = field(default_factory=Probe)


class Pump:
    """Runs while its conversation has items, and some time longer. Whoever starts it has the lock of the conversation.

    It is woken by `wake` when there may be something to take, and does not look by itself.
    """

    def __init__(
        self, inbox_id: str, consumer: str, consume: Consume, *, lock: HeldLock, guard: Guard, around: Surroundings
    ) -> None:
        self._inbox = KnownInbox(around.stores, inbox_id)
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
        self.is_blocked = False  # by an item that is for somebody else; it has ended then

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Take nothing more. A batch that is being consumed has the grace to finish."""
        self._over.set()
        self._woken.set()

    async def run(self) -> None:
        """Returns when there was nothing to do for a while, or it was stopped. Raises StoreError.

        To cancel it is to stop it; to cancel it once more leaves no grace.
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
        """What came back unfinished before, wherever that was; also the batch of somebody who went silent just now."""
        inbox = await self._inbox.newest()
        self._guard.inherit(inbox.returns + (0 if inbox.lease is None else 1))

    async def _rest(self) -> bool:
        """Wait until the guard allows the next try; whether to go on then."""
        pause_s = self._guard.pause_s
        if pause_s <= 0:
            return True
        self.is_resting = self._guard.is_resting
        if self.is_resting:
            await self._guard.alert(self._around.stores)
        await self._around.probe(probe.RESTING, self._inbox.id)
        await either(self._over, pause_s)
        has_no_place = self.is_resting and self._around.is_crowded()  # it was given to others
        self.is_resting = False
        return not (has_no_place or self._over.is_set())

    async def _take(self) -> HeldBatch | None:
        if not (await self._inbox.newest()).items:
            self._inbox.forget()  # what came since then was perhaps told before we began to listen
        return await take(
            self._inbox,
            self._clock,
            consumer=self._consumer,
            waking=self._waking,
            holder=self._around.holder,
            lease_ms=self._options.lease_ms,
        )

    async def _wait_for_items(self) -> bool:
        """Whether there may be some now."""
        inbox = await self._inbox.newest()
        self._inbox.forget()
        if inbox.consumer != self._consumer:
            return False
        if inbox.lease is not None and is_out(inbox, self._clock):  # of a pump that went silent
            await either(self._woken, (inbox.lease.until - self._clock.steady() + 1) / 1000)
            return True
        if in_the_way(inbox.items, self._waking):
            self.is_blocked = True
            return False
        self.is_idle = True
        await self._around.probe(probe.IDLE, self._inbox.id)
        await either(self._woken, self._options.idle_s)
        self.is_idle = False
        return self._woken.is_set()

    async def _serve(self, held: HeldBatch) -> bool:
        """Whether to go on with the next batch."""
        await self._around.probe(probe.TAKEN, self._inbox.id)
        ending = await Turn(held, self._consume, grace_s=self._options.grace_s).run(self._over)
        if ending is Ending.CONFIRMED:
            self._guard.succeeded()
        elif ending in _BAD:
            self._guard.failed()
            self._inbox.forget()
        await self._around.probe(probe.SETTLED, self._inbox.id)
        self._served += 1
        return self._served < self._options.batches_in_a_row or not self._around.is_crowded()
