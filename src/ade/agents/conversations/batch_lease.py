"""A batch that is out: taken, kept alive, and settled in one way or another, all under its lease."""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.durable_inbox import apply_decision
from ade.agents.conversations.inbox import TURN, ClearReason, Inbox, InboxChange, ReturnReason, changed
from ade.agents.conversations.model import ItemBatch, ItemKind
from ade.agents.conversations.rules import BatchClaimant, blocking_item
from ade.errors import StaleLease, StaleWrite, StoreError
from ade.locks.holder import certain_for
from ade.logs import Log
from ade.stores.ports import Clock, Stores

# A turn that was begun is taken again as it was: its mark in the memory of the inbox says how far it goes.
#
# Without that, items which came meanwhile would join the batch, and nobody could tell which of them were told before.


MARK = TURN  # where it is in the memory


class InFlightTurn(Struct, frozen=True, kw_only=True):
    """The seqs of its first and last item, and the task that it is."""

    first: int
    last: int
    task: str
    is_reset: bool = False  # somebody wants the conversation to begin anew after it

    def covers(self, batch: ItemBatch) -> bool:
        """Items of it may be gone, but none of another turn may be among them."""
        return all(self.first <= item.seq <= self.last for item in batch.items)


def in_flight_turn_in(memory: dict[str, Any]) -> InFlightTurn | None:
    """None if no turn was begun, or what is there was written by something else."""
    try:
        return msgspec.convert(memory.get(MARK), InFlightTurn)
    except msgspec.ValidationError:
        return None


def with_turn(memory: dict[str, Any], turn: InFlightTurn) -> dict[str, Any]:
    return {**memory, MARK: msgspec.to_builtins(turn)}


def without_turn(memory: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in memory.items() if name != MARK}


def in_flight_count(inbox: Inbox) -> int:
    """How many items make the turn that was begun; 0 when none was, or all of it is gone."""
    turn = in_flight_turn_in(inbox.memory)
    return 0 if turn is None else sum(1 for item in inbox.items if item.seq <= turn.last)


# The inbox of one conversation as its pump knows it.


T = TypeVar("T")


class CachedInbox:
    """Written without a look first, as long as nobody else has written: mostly that is so."""

    def __init__(self, stores: Stores, inbox_id: str) -> None:
        self.id = inbox_id
        self._stores = stores
        self._newest: Inbox | None = None

    async def newest(self) -> Inbox:
        """As it was written or read last."""
        if self._newest is None:
            self._newest = await self._stores.inboxes.load(self.id)
        return self._newest

    def forget(self) -> None:
        """Others may have changed it: read it before it is used again."""
        self._newest = None

    async def carry_out(self, decide: Callable[[Inbox], InboxChange[T]]) -> InboxChange[T]:
        """Write a decision; when somebody was faster, read again and decide again. Raises what `decide` raises."""
        known = self._newest
        self.forget()  # unless the write succeeds, nobody knows
        change = await apply_decision(self._stores, self.id, decide, known=known)
        self._newest = change.after
        return change


_IN_ONE_LEASE = 3
_AGAIN_S = 0.2  # after the store could not be reached
log = Log("ade.pumps")


def is_leased(inbox: Inbox, clock: Clock) -> bool:
    """Whether somebody has a batch of it, and his lease lasts."""
    return inbox.lease is not None and inbox.lease.until > clock.steady()


async def take(
    known: CachedInbox, clock: Clock, *, consumer: str, waking: Collection[ItemKind], holder: str, lease_ms: int
) -> "BatchLeaseHolder | None":
    """The next batch, or the turn that somebody has begun; None if there is nothing, or it is somebody else's.

    What is of no kind that wakes its consumer is for somebody else: then it is told why all that comes later waits.
    """
    lease_id, asked_at = os.urandom(16).hex(), 0.0

    def decide(inbox: Inbox) -> InboxChange[ItemBatch | None]:
        nonlocal asked_at
        if inbox.consumer != consumer or is_leased(inbox, clock):
            return changed(inbox, None)
        asked_at = asyncio.get_running_loop().time()
        taker = BatchClaimant(lease_id=lease_id, holder=holder, lease_ms=lease_ms, steady=clock.steady())
        count = in_flight_count(inbox)
        if count:
            return conversations_rules.take_items(inbox, taker, count)
        return conversations_rules.take(inbox, taker, blocking_item(inbox.items, waking))

    change = await known.carry_out(decide)
    if change.answer is None:
        return None
    return BatchLeaseHolder(known, change.after, change.answer, clock=clock, lease_ms=lease_ms, asked_at=asked_at)


class BatchLeaseHolder:
    def __init__(
        self,
        known: CachedInbox,
        inbox: Inbox,
        batch: ItemBatch,
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
        return conversations_rules.renew(inbox, self._lease_id, lease_ms=self._lease_ms, steady=self._clock.steady())

    async def confirm(self, memory: dict[str, Any] | None) -> None:
        """Insists for as long as the lease is good, for all the work is done. Raises StaleLease, InvalidInbox."""
        await self._insist(lambda inbox: conversations_rules.confirm(inbox, self._lease_id, memory))

    async def give_up(self, reason: ClearReason, memory: dict[str, Any] | None) -> None:
        """As `confirm`."""
        await self._insist(lambda inbox: conversations_rules.give_up(inbox, self._lease_id, reason, memory))

    async def give_back(self, reason: ReturnReason) -> None:
        """Once: if that fails, the end of the lease does the same."""
        await self._known.carry_out(lambda inbox: conversations_rules.give_back(inbox, self._lease_id, reason))

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
