"""QueueRuntime on a store: the inbox of a conversation, with the same verbs, for any number of processes at once.

Every verb reads the inbox, decides by the rules of the core, and writes if nobody else has written meanwhile; otherwise
it does so again.
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

# Deciding on an inbox and writing that, while others do the same.
#
# Those of one process stand in line for an inbox: of all who read it at once only one could write. Against other
# processes there is no line, so whoever was too slow reads again, after a pause that grows, for some seconds.


DecisionResult = TypeVar("DecisionResult")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.1
_PATIENCE_S = 10.0

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
    """Write a decision; when somebody was faster, read and decide again. Raises what `decide` raises, and StaleWrite.

    `known` is the inbox as it was seen last, which saves a look if nobody has written since.
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
    """It is there as long as somebody stands in it."""
    of_store = _lines.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    lines = of_store.setdefault(store, WeakValueDictionary())
    return lines.setdefault(inbox_id, asyncio.Lock())


def _pause(tries: int) -> float:
    """None at first: whoever was quicker is done."""
    return 0 if tries == 0 else random.random() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 20))


Check = Callable[[Inbox], None]
log = Log(__name__)


class DurableInbox:
    """One inbox of a store. A batch that `take` gives is leased and stays until it is confirmed.

    `try_dequeue` and `consume_items` give batches that are gone with whoever has them, as QueueRuntime does. Callbacks
    come after the write, in order; what one raises is logged and goes no further. They hear of what is done through
    this object alone: the event log tells of all.

    `limits` are those of the inbox from the next item on, whoever puts it in; without them those hold that were set
    last.

    Raises InvalidInbox when there can be no inbox of this id. Every verb may raise StoreUnavailable, and StaleWrite
    when others write all the time. An item that may be put in twice, because an answer was lost, needs a key.
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

    # the verbs of QueueRuntime

    async def enqueue(self, new: NewItem, *, consumer: str | None = None) -> conversations_rules.Put:
        """The item as it is queued; None when the hard limit is reached; AlreadyThere when its key is known.

        With a consumer the inbox is bound to that in the same write. Raises InvalidInboxItem.
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
        """As `enqueue`, of several in one write; None when there is no room for all of them, and none is put in.

        What `check` raises about the inbox keeps it from being written.
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
        """The next batch, or None: there is nothing, there is a reason not to, or a leased batch is out."""
        return await self._do_freed(lambda inbox: conversations_rules.try_dequeue(inbox, blocked_reason))

    async def consume_items(self, n: int) -> ItemBatch | None:
        """The first `n` items, whatever they are."""
        return await self._do_freed(lambda inbox: conversations_rules.consume_items(inbox, n))

    async def reset_blocked_state(self) -> None:
        await self._do(conversations_rules.reset_blocked_state)

    async def remove(self, item_id: str) -> StoredItem | None:
        """The item that was removed; None when it does not wait here."""
        return await self._do_freed(lambda inbox: conversations_rules.remove(inbox, item_id))

    async def clear(self, reason: ClearReason, *, check: Check | None = None) -> tuple[StoredItem, ...]:
        """Remove all that wait. Where that cannot be read all is removed, unread, also a batch that is out.

        What `check` raises about the inbox keeps it from being written.
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
        """All items that wait, the oldest first; nothing is taken."""
        return (await self.state()).waiting

    async def length(self) -> int:
        return (await self.state()).length

    # batches that outlive their taker

    async def take(
        self, *, lease_id: str, holder: str, lease_ms: int, reason: BlockedReason | None = None
    ) -> ItemBatch | None:
        """As `try_dequeue`, with a lease. `lease_id` is random and for one batch only."""
        return await self._do(
            lambda inbox: conversations_rules.take(inbox, self._taker(lease_id, holder, lease_ms), reason)
        )

    async def take_items(self, count: int, *, lease_id: str, holder: str, lease_ms: int) -> ItemBatch | None:
        """As `consume_items`, with a lease."""
        return await self._do(
            lambda inbox: conversations_rules.take_items(inbox, self._taker(lease_id, holder, lease_ms), count)
        )

    def _taker(self, lease_id: str, holder: str, lease_ms: int) -> BatchClaimant:
        return BatchClaimant(lease_id=lease_id, holder=holder, lease_ms=lease_ms, steady=self._stores.clock.steady())

    async def renew(self, lease_id: str, *, lease_ms: int) -> BatchLease:
        """Raises StaleLease."""
        return await self._do(
            lambda inbox: conversations_rules.renew(
                inbox, lease_id, lease_ms=lease_ms, steady=self._stores.clock.steady()
            )
        )

    async def remember(self, lease_id: str, memory: dict[str, Any]) -> None:
        """Raises StaleLease and InvalidInbox."""
        await self._do(lambda inbox: conversations_rules.remember(inbox, lease_id, memory))

    async def confirm(self, lease_id: str, memory: dict[str, Any] | None = None) -> ItemBatch | None:
        """The batch is done with. None when it was confirmed before. Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: conversations_rules.confirm(inbox, lease_id, memory))

    async def give_back(self, lease_id: str, reason: ReturnReason) -> ItemBatch:
        """Raises StaleLease."""
        return await self._do(lambda inbox: conversations_rules.give_back(inbox, lease_id, reason))

    async def give_up(self, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None) -> ItemBatch:
        """Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: conversations_rules.give_up(inbox, lease_id, reason, memory))

    # the inbox itself

    async def bind(self, consumer: str | None) -> None:
        """Say who feeds on it; what another one remembered is forgotten. Raises InvalidInbox."""
        await self._do(lambda inbox: conversations_rules.bind(inbox, consumer))

    async def reset(self) -> bool:
        """Forget what its consumer remembers, so that the next turn begins anew; False while a batch is out."""
        return await self._do_freed(conversations_rules.reset)

    async def state(self) -> Inbox:
        """As it is now; a batch whose lease has run out is back at the head."""
        inbox = await self._stores.inboxes.load(self.id)
        return conversations_rules.expire(inbox, steady=self._stores.clock.steady()).after

    async def _do_freed(
        self, decide: Callable[[Inbox], InboxChange[DecisionResult]], check: Check | None = None
    ) -> DecisionResult:
        """First a batch goes back whose holder went silent: nobody else might ever look."""

        def freed(inbox: Inbox) -> InboxChange[DecisionResult]:
            if check is not None:
                check(inbox)
            expired = conversations_rules.expire(inbox, steady=self._stores.clock.steady())
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
