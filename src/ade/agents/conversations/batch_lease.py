"""Leased batches of an inbox: resume an in-flight turn, claim a batch, renew its lease, and settle it."""

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

# An in-flight turn is claimed again with the same items: its mark in the inbox's memory stores their range.
#
# Without the mark, newer items would join the batch, and delivered items could not be told apart from new ones.


class InFlightTurn(Struct, frozen=True, kw_only=True):
    """The seqs of a turn's first and last item, and the ID of its task."""

    first: int
    last: int
    task: str
    is_reset: bool = False  # a reset was requested: start from scratch after this turn

    def covers(self, batch: ItemBatch) -> bool:
        """Return whether all items belong to this turn. Some of its items might have been removed."""
        return all(self.first <= item.seq <= self.last for item in batch.items)


def in_flight_turn_in(memory: dict[str, Any]) -> InFlightTurn | None:
    """Return the turn in flight; None if there is none, or the mark is not readable."""
    try:
        return msgspec.convert(memory.get(TURN), InFlightTurn)
    except msgspec.ValidationError:
        return None


def with_turn(memory: dict[str, Any], turn: InFlightTurn) -> dict[str, Any]:
    """Return the memory with the turn's mark."""
    return {**memory, TURN: msgspec.to_builtins(turn)}


def without_turn(memory: dict[str, Any]) -> dict[str, Any]:
    """Return the memory without the turn's mark."""
    return {name: value for name, value in memory.items() if name != TURN}


def in_flight_count(inbox: Inbox) -> int:
    """Return the number of items of the turn in flight; 0 if there is none, or all its items were removed."""
    turn = in_flight_turn_in(inbox.memory)
    return 0 if turn is None else sum(1 for item in inbox.items if item.seq <= turn.last)


# The inbox of one conversation as its consumer loop caches it.


T = TypeVar("T")


class CachedInbox:
    """Caches one inbox, so that a write usually needs no read first. Other writers cause a reload."""

    def __init__(self, stores: Stores, inbox_id: str) -> None:
        self.id = inbox_id
        self._stores = stores
        self._newest: Inbox | None = None

    async def newest(self) -> Inbox:
        """Return the inbox as last written or read."""
        if self._newest is None:
            self._newest = await self._stores.inboxes.load(self.id)
        return self._newest

    def forget(self) -> None:
        """Invalidate the cache, because others might have changed the inbox."""
        self._newest = None

    async def carry_out(self, decide: Callable[[Inbox], InboxChange[T]]) -> InboxChange[T]:
        """Write a decision; on a conflict, read and decide again. Raises what `decide` raises."""
        known = self._newest
        self.forget()  # unknown unless the write succeeds
        change = await apply_decision(self._stores, self.id, decide, known=known)
        self._newest = change.after
        return change


_IN_ONE_LEASE = 3
_AGAIN_S = 0.2  # retry delay after the store was unreachable
log = Log("ade.pumps")


def is_leased(inbox: Inbox, clock: Clock, lease_ms: int) -> bool:
    """Return whether a batch of the inbox has a live lease, or one that cannot be judged yet."""
    return inbox.lease is not None and inbox.lease.until > clock.judged(lease_ms)


async def take(
    known: CachedInbox, clock: Clock, *, consumer: str, waking: Collection[ItemKind], holder: str, lease_ms: int
) -> "BatchLeaseHolder | None":
    """Claim the next batch, or the turn in flight. None if there is nothing, or the batch belongs to another consumer.

    An item of a kind that does not wake the consumer blocks all later items; the reason is recorded as a notice.
    """
    lease_id, asked_at = os.urandom(16).hex(), 0.0

    def decide(inbox: Inbox) -> InboxChange[ItemBatch | None]:
        nonlocal asked_at
        if inbox.consumer != consumer or is_leased(inbox, clock, lease_ms):
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
    """Holds the lease of one batch: renews it, and settles the batch."""

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
        self.inbox = inbox  # at the time of the claim
        self.batch = batch
        self._known = known
        self._clock = clock
        self._lease_id = inbox.lease.id
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._sure_until = asked_at + certain_for(lease_ms)

    async def keep(self) -> None:
        """Renew the lease. Returns when it is lost or might be, judged by the local clock without asking the store."""
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
        """Confirm the batch; retries while the lease is valid, because the work is done. Raises StaleLease,
        InvalidInbox.
        """
        await self._insist(lambda inbox: conversations_rules.confirm(inbox, self._lease_id, memory))

    async def give_up(self, reason: ClearReason, memory: dict[str, Any] | None) -> None:
        """Discard the batch, with the retries and errors of `confirm`."""
        await self._insist(lambda inbox: conversations_rules.give_up(inbox, self._lease_id, reason, memory))

    async def give_back(self, reason: ReturnReason) -> None:
        """Return the batch, with a single attempt: if it fails, lease expiry has the same effect."""
        await self._known.carry_out(lambda inbox: conversations_rules.give_back(inbox, self._lease_id, reason))

    async def _insist(self, decide: Callable[[Inbox], InboxChange[Any]]) -> None:
        while True:
            try:
                await self._known.carry_out(decide)
            except StaleLease:  # a subclass of StaleWrite
                raise
            except (StoreError, StaleWrite) as error:
                log.warning("pump.not_written", conversation=self.inbox.id, error=str(error))
                if self._loop.time() + _AGAIN_S >= self._sure_until:
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                return
