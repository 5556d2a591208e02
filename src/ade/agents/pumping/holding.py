"""A batch that is out: taken, kept alive, and settled in one way or another, all under its lease."""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Any

from ade.agents.pumping.known import KnownInbox
from ade.agents.pumping.pinned import pinned_count
from ade.core.errors import StaleLease, StaleWrite, StoreError
from ade.core.inbox import leasing
from ade.core.inbox.items import DequeuedBatch, ItemKind
from ade.core.inbox.leasing import Taker
from ade.core.inbox.notices import ClearReason, ReturnReason
from ade.core.inbox.state import Inbox, InboxChange, changed
from ade.core.inbox.turns import in_the_way
from ade.governance.locks.held import certain_for
from ade.logs import Log
from ade.ports import Clock

_IN_ONE_LEASE = 3
_AGAIN_S = 0.2  # after the store could not be reached
log = Log("ade.pumps")


def is_out(inbox: Inbox, clock: Clock) -> bool:
    """Whether somebody has a batch of it, and his lease lasts."""
    return inbox.lease is not None and inbox.lease.until > clock.steady()


async def take(
    known: KnownInbox, clock: Clock, *, consumer: str, waking: Collection[ItemKind], holder: str, lease_ms: int
) -> "HeldBatch | None":
    """The next batch, or the turn that somebody has begun; None if there is nothing, or it is somebody else's.

    What is of no kind that wakes its consumer is for somebody else: then it is told why all that comes later waits.
    """
    lease_id, asked_at = os.urandom(16).hex(), 0.0

    def decide(inbox: Inbox) -> InboxChange[DequeuedBatch | None]:
        nonlocal asked_at
        if inbox.consumer != consumer or is_out(inbox, clock):
            return changed(inbox, None)
        asked_at = asyncio.get_running_loop().time()
        taker = Taker(lease_id=lease_id, holder=holder, lease_ms=lease_ms, steady=clock.steady())
        count = pinned_count(inbox)
        if count:
            return leasing.take_items(inbox, taker, count)
        return leasing.take(inbox, taker, in_the_way(inbox.items, waking))

    change = await known.carry_out(decide)
    if change.answer is None:
        return None
    return HeldBatch(known, change.after, change.answer, clock=clock, lease_ms=lease_ms, asked_at=asked_at)


class HeldBatch:
    def __init__(
        self,
        known: KnownInbox,
        inbox: Inbox,
        batch: DequeuedBatch,
        *,
        clock: Clock,
        lease_ms: int,
        asked_at: float,
    ) -> None:
        assert inbox.lease is not None
        self.inbox = inbox  # as it was taken
        self.batch = batch
        self._known = known
        self._clock = clock
        self._lease_id = inbox.lease.id
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._sure_until = asked_at + certain_for(lease_ms)

    async def keep(self) -> None:
        """Renew the lease as long as that is possible. Returns when it is lost, or may be: nobody is asked then."""
        while (left := self._sure_until - self._loop.time()) > 0:
            await asyncio.sleep(min(self._lease_ms / 1000 / _IN_ONE_LEASE, left))
            asked_at = self._loop.time()
            try:
                async with asyncio.timeout_at(self._sure_until):
                    await self._known.carry_out(self._renewed)
            except StaleLease:
                return
            except TimeoutError:
                continue
            except (StoreError, StaleWrite) as error:
                log.warning("pump.lease_not_renewed", conversation=self.inbox.id, error=str(error))
            else:
                self._sure_until = asked_at + certain_for(self._lease_ms)

    def _renewed(self, inbox: Inbox) -> InboxChange[Any]:
        return leasing.renew(inbox, self._lease_id, lease_ms=self._lease_ms, steady=self._clock.steady())

    async def confirm(self, memory: dict[str, Any] | None) -> None:
        """Insists for as long as the lease is good, for all the work is done. Raises StaleLease, InvalidInbox."""
        await self._insist(lambda inbox: leasing.confirm(inbox, self._lease_id, memory))

    async def give_up(self, reason: ClearReason, memory: dict[str, Any] | None) -> None:
        """As `confirm`."""
        await self._insist(lambda inbox: leasing.give_up(inbox, self._lease_id, reason, memory))

    async def give_back(self, reason: ReturnReason) -> None:
        """Once: if that fails, the end of the lease does the same."""
        await self._known.carry_out(lambda inbox: leasing.give_back(inbox, self._lease_id, reason))

    async def _insist(self, decide: Callable[[Inbox], InboxChange[Any]]) -> None:
        while True:
            try:
                await self._known.carry_out(decide)
            except StaleLease:  # which is a StaleWrite too
                raise
            except (StoreError, StaleWrite) as error:
                log.warning("pump.not_written", conversation=self.inbox.id, error=str(error))
                if self._loop.time() + _AGAIN_S >= self._sure_until:
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                return
