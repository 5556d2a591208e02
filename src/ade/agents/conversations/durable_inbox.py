"""A conversation's inbox in a store, with the methods of QueueRuntime, safe for concurrent use by several processes.

Every method reads the inbox, decides by the rules of `rules`, and writes with optimistic concurrency control: on a
conflict, it starts over.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BatchLease,
    BlockedReason,
    ClearReason,
    Inbox,
    InboxChange,
    ReturnReason,
    changed,
    joined,
)
from ade.agents.conversations.memory_inbox import QueueCallbacks, notify
from ade.agents.conversations.model import InboxLimits, ItemBatch, NewItem, StoredItem
from ade.agents.conversations.rules import BatchClaimant
from ade.errors import StaleWrite, StoreCorrupt
from ade.logs import Log
from ade.stores.ports import Stores
from ade.stores.resource_ports import InboxStore
from ade.tasks.identifiers import check_inbox_id

# Optimistic writes to an inbox under contention.
#
# Writers of one process queue on a lock per inbox, because of concurrent readers only one could write. Conflicts with
# other processes are retried with growing pauses, for some seconds.


DecisionResult = TypeVar("DecisionResult")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.1
_PATIENCE_S = 10.0
_LEASE_MS = 30_000  # the usual length, where the holder is not asked

_Lines = WeakValueDictionary[str, asyncio.Lock]
_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[InboxStore, _Lines]] = WeakKeyDictionary()


async def apply_decision(
    stores: Stores,
    inbox_id: str,
    decide: Callable[[Inbox], InboxChange[DecisionResult]],
    *,
    known: Inbox | None = None,
    load: Callable[[str], Awaitable[Inbox]] | None = None,
) -> InboxChange[DecisionResult]:
    """Write a decision; on a conflict, read and decide again. Raises what `decide` raises, and StaleWrite.

    `known` is a cached inbox, which saves a read if it is still current.
    """
    loop, line, tries = asyncio.get_running_loop(), _line_for(stores.inboxes, inbox_id), 0
    async with line:
        give_up_at = loop.time() + _PATIENCE_S
        while True:
            change = decide(known or await (load or stores.inboxes.load)(inbox_id))
            try:
                await stores.inboxes.write(change)
            except StaleWrite:
                if loop.time() >= give_up_at:
                    raise
            else:
                return change
            known = None
            await asyncio.sleep(_pause(tries))
            tries += 1


def _line_for(store: InboxStore, inbox_id: str) -> asyncio.Lock:
    """Return the lock of an inbox. It exists while it is in use."""
    of_store = _lines.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    lines = of_store.setdefault(store, WeakValueDictionary())
    return lines.setdefault(inbox_id, asyncio.Lock())


def _pause(tries: int) -> float:
    """Return the retry delay; none at first, because the other writer has already finished."""
    return 0 if tries == 0 else random.random() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 20))


Check = Callable[[Inbox], None]
log = Log(__name__)


class DurableInbox:
    """One inbox of a store. A batch claimed by `take` is leased and stays until it is confirmed.

    `try_dequeue` and `consume_items` return batches that are removed immediately, as QueueRuntime does. Callbacks run
    after the write, in order; their errors are logged and not raised. They cover only changes made through this object;
    the event log covers all.

    `limits` apply from the next item on, to all writers; without them, the stored limits apply.

    Raises InvalidInbox if the ID is invalid. Every method can raise StoreUnavailable, and StaleWrite under constant
    contention. An item that might be sent twice, because a response was lost, needs a key.
    """

    def __init__(
        self,
        stores: Stores,
        inbox_id: str,
        *,
        limits: InboxLimits | None = None,
        callbacks: QueueCallbacks | None = None,
    ) -> None:
        check_inbox_id(inbox_id)
        self.id = inbox_id
        self.limits = limits
        self._stores = stores
        self._callbacks = callbacks or QueueCallbacks()

    # methods of QueueRuntime

    async def enqueue(self, new: NewItem, *, consumer: str | None = None) -> conversations_rules.Put:
        """Return the stored item; None at the hard limit; DuplicateItem if its key is known.

        With a consumer, the inbox is bound to it in the same write. Raises InvalidInboxItem.
        """

        def decide(inbox: Inbox) -> InboxChange[conversations_rules.Put]:
            bound = conversations_rules.bind(inbox, inbox.consumer if consumer is None else consumer)
            return joined(
                bound, conversations_rules.enqueue(bound.after, new, limits=self.limits, now=self._stores.clock.now())
            )

        return await self._do(decide)

    async def enqueue_all(
        self, news: Sequence[NewItem], *, consumer: str | None = None, check: Check | None = None
    ) -> list[StoredItem | conversations_rules.DuplicateItem] | None:
        """As `enqueue`, for several items in one write; None, with no item stored, if not all fit.

        An error raised by `check` prevents the write.
        """

        def decide(inbox: Inbox) -> InboxChange[list[StoredItem | conversations_rules.DuplicateItem] | None]:
            if check is not None:
                check(inbox)
            put: list[StoredItem | conversations_rules.DuplicateItem] = []
            change: InboxChange[object] = conversations_rules.bind(
                inbox, inbox.consumer if consumer is None else consumer
            )
            for new in news:
                step = conversations_rules.enqueue(change.after, new, limits=self.limits, now=self._stores.clock.now())
                if step.answer is None:
                    return changed(inbox, None)
                put.append(step.answer)
                change = joined(change, step)
            return joined(change, changed(change.after, put))

        return await self._do(decide)

    async def try_dequeue(self, blocked_reason: BlockedReason | None) -> ItemBatch | None:
        """Return the next batch; None if there is none, a reason blocks it, or a batch is leased."""
        return await self._do_freed(lambda inbox: conversations_rules.try_dequeue(inbox, blocked_reason))

    async def consume_items(self, n: int) -> ItemBatch | None:
        """Return the first `n` items, of any kind."""
        return await self._do_freed(lambda inbox: conversations_rules.consume_items(inbox, n))

    async def reset_blocked_state(self) -> None:
        """Report the next blocking reason even if it is the same."""
        await self._do(conversations_rules.reset_blocked_state)

    async def remove(self, item_id: str) -> StoredItem | None:
        """Return the removed item; None if it is not waiting."""
        return await self._do_freed(lambda inbox: conversations_rules.remove(inbox, item_id))

    async def clear(self, reason: ClearReason, *, check: Check | None = None) -> tuple[StoredItem, ...]:
        """Remove all waiting items. If the inbox is unreadable, remove everything, including a leased batch.

        An error raised by `check` prevents the write.
        """

        def discard(inbox: Inbox) -> InboxChange[tuple[StoredItem, ...]]:
            if check is not None:
                check(inbox)
            return conversations_rules.discard(inbox, reason)

        try:
            return await self._do_freed(lambda inbox: conversations_rules.clear(inbox, reason), check)
        except StoreCorrupt:
            return await self._do(discard, load=partial(self._stores.inboxes.load, outline=True))

    async def peek(self) -> tuple[StoredItem, ...]:
        """Return all waiting items, oldest first, without taking them."""
        return (await self.state()).waiting

    async def length(self) -> int:
        return (await self.state()).length

    # leased batches

    async def take(
        self, *, lease_id: str, holder: str, lease_ms: int, reason: BlockedReason | None = None
    ) -> ItemBatch | None:
        """As `try_dequeue`, with a lease. `lease_id` must be random and used for one batch only."""
        return await self._do(
            lambda inbox: conversations_rules.take(inbox, self._taker(lease_id, holder, lease_ms), reason)
        )

    async def take_items(self, count: int, *, lease_id: str, holder: str, lease_ms: int) -> ItemBatch | None:
        """As `consume_items`, with a lease."""
        return await self._do(
            lambda inbox: conversations_rules.take_items(inbox, self._taker(lease_id, holder, lease_ms), count)
        )

    def _taker(self, lease_id: str, holder: str, lease_ms: int) -> BatchClaimant:
        clock = self._stores.clock
        return BatchClaimant(
            lease_id=lease_id, holder=holder, lease_ms=lease_ms, steady=clock.steady(), judged=clock.judged(lease_ms)
        )

    async def renew(self, lease_id: str, *, lease_ms: int) -> BatchLease:
        """Renew the lease. Raises StaleLease."""
        return await self._do(
            lambda inbox: conversations_rules.renew(
                inbox, lease_id, lease_ms=lease_ms, steady=self._stores.clock.steady()
            )
        )

    async def remember(self, lease_id: str, memory: dict[str, Any]) -> None:
        """Store the consumer's memory. Raises StaleLease and InvalidInbox."""
        await self._do(lambda inbox: conversations_rules.remember(inbox, lease_id, memory))

    async def confirm(self, lease_id: str, memory: dict[str, Any] | None = None) -> ItemBatch | None:
        """Remove a finished batch. None if it was already confirmed. Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: conversations_rules.confirm(inbox, lease_id, memory))

    async def give_back(self, lease_id: str, reason: ReturnReason) -> ItemBatch:
        """Return an unfinished batch to the head. Raises StaleLease."""
        return await self._do(lambda inbox: conversations_rules.give_back(inbox, lease_id, reason))

    async def give_up(self, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None) -> ItemBatch:
        """Discard the batch. Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: conversations_rules.give_up(inbox, lease_id, reason, memory))

    # the inbox itself

    async def bind(self, consumer: str | None) -> None:
        """Set the consumer. A different one erases the memory of the previous one. Raises InvalidInbox."""
        await self._do(lambda inbox: conversations_rules.bind(inbox, consumer))

    async def reset(self) -> bool:
        """Erase the consumer's memory, so that the next turn starts from scratch; False while a batch is leased."""
        return await self._do_freed(conversations_rules.reset)

    async def state(self) -> Inbox:
        """Return the current inbox; a batch with an expired lease is back at the head."""
        inbox = await self._stores.inboxes.load(self.id)
        return conversations_rules.expire(inbox, steady=self._stores.clock.judged(_LEASE_MS)).after

    async def _do_freed(
        self, decide: Callable[[Inbox], InboxChange[DecisionResult]], check: Check | None = None
    ) -> DecisionResult:
        """First return a batch with an expired lease, because no other caller might check for it."""

        def freed(inbox: Inbox) -> InboxChange[DecisionResult]:
            if check is not None:
                check(inbox)
            expired = conversations_rules.expire(inbox, steady=self._stores.clock.judged(_LEASE_MS))
            return joined(expired, decide(expired.after))

        return await self._do(freed)

    async def _do(
        self,
        decide: Callable[[Inbox], InboxChange[DecisionResult]],
        *,
        load: Callable[[str], Awaitable[Inbox]] | None = None,
    ) -> DecisionResult:
        change = await apply_decision(self._stores, self.id, decide, load=load)
        for notice in change.notices:
            notify(self._callbacks, notice, self._note)
        return change.answer

    def _note(self, callback: str, error: Exception) -> None:
        log.warning("inbox.callback_failed", inbox=self.id, callback=callback, error=f"{type(error).__name__}: {error}")
