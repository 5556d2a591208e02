"""One batch before its consumer: until it is done, has failed, its lease is lost, or there is no more time."""

import asyncio
from enum import Enum, auto
from typing import Any

from ade.agents.pumping.consuming import Consume, GiveUp
from ade.agents.pumping.holding import HeldBatch
from ade.core.errors import StaleLease, StaleWrite, StoreError
from ade.core.inbox.errors import InvalidInbox
from ade.core.inbox.notices import ClearReason, ReturnReason
from ade.logs import Log

_CANCEL_S = 10.0  # for a consumer that is told to stop
log = Log("ade.pumps")


class Ending(Enum):
    CONFIRMED = auto()
    GIVEN_UP = auto()  # by the consumer, for an error
    CALLED_OFF = auto()  # by people: that says nothing about the consumer
    FAILED = auto()
    RELEASED = auto()  # for another pump, because this one must end
    LOST = auto()  # somebody else has it by now, or soon


class Turn:
    def __init__(self, held: HeldBatch, consume: Consume, *, grace_s: float) -> None:
        self._held = held
        self._grace_s = grace_s
        self._was_stopped = False  # by us, before it was done
        self._consuming = asyncio.create_task(_call(consume, held), name="ade-turn")
        self._keeping = asyncio.create_task(held.keep(), name="ade-turn-lease")

    async def run(self, over: asyncio.Event) -> Ending:
        """`over`: the pump is to end, so from then on there is only the grace."""
        ending = asyncio.create_task(over.wait())
        try:
            await self._first_of(ending)
            if ending.done():
                await self._first_of(timeout=self._grace_s)
            return await self._settle()
        except asyncio.CancelledError:  # no grace either
            await self._settle()
            raise
        finally:
            ending.cancel()
            self._keeping.cancel()

    async def _first_of(self, *others: "asyncio.Task[Any]", timeout: float | None = None) -> None:
        waited_for = {self._consuming, self._keeping, *others}
        await asyncio.wait(waited_for, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _settle(self) -> Ending:
        """Write how it went. What cannot be written is settled by the end of the lease."""
        was_lost = self._keeping.done()
        if not self._consuming.done():
            self._was_stopped = True
            self._consuming.cancel()
            await asyncio.wait({self._consuming}, timeout=_CANCEL_S)
        if not self._consuming.done():
            log.error("pump.consumer_does_not_stop", conversation=self._held.inbox.id)
            return Ending.LOST
        try:
            return await self._write(was_lost=was_lost)
        except StaleLease:
            log.warning("pump.lease_lost", conversation=self._held.inbox.id, batch=self._held.batch.batch_id)
        except (StoreError, StaleWrite) as error:
            log.warning("pump.not_settled", conversation=self._held.inbox.id, error=str(error))
        return Ending.LOST

    async def _write(self, *, was_lost: bool) -> Ending:
        error = asyncio.CancelledError() if self._consuming.cancelled() else self._consuming.exception()
        if error is None:
            return await self._confirm(self._consuming.result())
        if self._was_stopped and was_lost:
            raise StaleLease
        if isinstance(error, GiveUp):
            return await self._give_up(error)
        if self._was_stopped:
            await self._held.give_back(ReturnReason.RELEASED)
            return Ending.RELEASED
        return await self._fail(error)

    async def _confirm(self, memory: dict[str, Any] | None) -> Ending:
        try:
            await self._held.confirm(memory)
        except InvalidInbox as error:  # what it wants to remember is not possible
            return await self._fail(error)
        return Ending.CONFIRMED

    async def _give_up(self, given_up: GiveUp) -> Ending:
        log.info("pump.given_up", conversation=self._held.inbox.id, reason=given_up.reason, why=given_up.why)
        try:
            await self._held.give_up(given_up.reason, given_up.memory)
        except InvalidInbox as error:  # as above
            return await self._fail(error)
        return Ending.GIVEN_UP if given_up.reason is ClearReason.ERROR else Ending.CALLED_OFF

    async def _fail(self, error: BaseException) -> Ending:
        text = f"{type(error).__name__}: {error}"[:500]
        log.warning("pump.batch_failed", conversation=self._held.inbox.id, error=text)
        await self._held.give_back(ReturnReason.FAILED)
        return Ending.FAILED


async def _call(consume: Consume, held: HeldBatch) -> dict[str, Any] | None:
    return await consume(held.batch, held.inbox)
