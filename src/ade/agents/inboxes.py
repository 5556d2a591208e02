"""QueueRuntime on a store: the inbox of a conversation, with the same verbs, for any number of processes at once.

Every verb reads the inbox, decides by the rules of the core, and writes if nobody else has written meanwhile; otherwise
it does so again.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ade.agents.deciding import carry_out
from ade.core.errors import StoreCorrupt
from ade.core.inbox import leasing, verbs
from ade.core.inbox.items import DequeuedBatch, NewItem, QueueItem
from ade.core.inbox.leasing import Taker
from ade.core.inbox.limits import InboxLimits
from ade.core.inbox.names import check_inbox_id
from ade.core.inbox.notices import BlockedReason, ClearReason, ReturnReason
from ade.core.inbox.runtime import QueueCallbacks, tell
from ade.core.inbox.state import BatchLease, Inbox, InboxChange, changed, joined
from ade.logs import Log
from ade.ports import Stores

Answer = TypeVar("Answer")
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

    async def enqueue(self, new: NewItem, *, consumer: str | None = None) -> verbs.Put:
        """The item as it is queued; None when the hard limit is reached; AlreadyThere when its key is known.

        With a consumer the inbox is bound to that in the same write. Raises InvalidInboxItem.
        """

        def decide(inbox: Inbox) -> InboxChange[verbs.Put]:
            bound = verbs.bind(inbox, inbox.consumer if consumer is None else consumer)
            return joined(bound, verbs.enqueue(bound.after, new, limits=self.limits, now=self._stores.clock.now()))

        return await self._do(decide)

    async def enqueue_all(
        self, news: Sequence[NewItem], *, consumer: str | None = None, check: Check | None = None
    ) -> list[QueueItem | verbs.AlreadyThere] | None:
        """As `enqueue`, of several in one write; None when there is no room for all of them, and none is put in.

        What `check` raises about the inbox keeps it from being written.
        """

        def decide(inbox: Inbox) -> InboxChange[list[QueueItem | verbs.AlreadyThere] | None]:
            if check is not None:
                check(inbox)
            put: list[QueueItem | verbs.AlreadyThere] = []
            change: InboxChange[object] = verbs.bind(inbox, inbox.consumer if consumer is None else consumer)
            for new in news:
                step = verbs.enqueue(change.after, new, limits=self.limits, now=self._stores.clock.now())
                if step.answer is None:
                    return changed(inbox, None)
                put.append(step.answer)
                change = joined(change, step)
            return joined(change, changed(change.after, put))

        return await self._do(decide)

    async def try_dequeue(self, blocked_reason: BlockedReason | None) -> DequeuedBatch | None:
        """The next batch, or None: there is nothing, there is a reason not to, or a leased batch is out."""
        return await self._do_freed(lambda inbox: verbs.try_dequeue(inbox, blocked_reason))

    async def consume_items(self, n: int) -> DequeuedBatch | None:
        """The first `n` items, whatever they are."""
        return await self._do_freed(lambda inbox: verbs.consume_items(inbox, n))

    async def reset_blocked_state(self) -> None:
        await self._do(verbs.reset_blocked_state)

    async def remove(self, item_id: str) -> QueueItem | None:
        """The item that was removed; None when it does not wait here."""
        return await self._do_freed(lambda inbox: verbs.remove(inbox, item_id))

    async def clear(self, reason: ClearReason, *, check: Check | None = None) -> tuple[QueueItem, ...]:
        """Remove all that wait. Where that cannot be read all is removed, unread, also a batch that is out.

        What `check` raises about the inbox keeps it from being written.
        """

        def discard(inbox: Inbox) -> InboxChange[tuple[QueueItem, ...]]:
            if check is not None:
                check(inbox)
            return verbs.discard(inbox, reason)

        try:
            return await self._do_freed(lambda inbox: verbs.clear(inbox, reason), check)
        except StoreCorrupt:
            return await self._do(discard, load=self._stores.inboxes.outline)

    async def peek(self) -> tuple[QueueItem, ...]:
        """All items that wait, the oldest first; nothing is taken."""
        return (await self.state()).waiting

    async def length(self) -> int:
        return (await self.state()).length

    # batches that outlive their taker

    async def take(
        self, *, lease_id: str, holder: str, lease_ms: int, reason: BlockedReason | None = None
    ) -> DequeuedBatch | None:
        """As `try_dequeue`, with a lease. `lease_id` is random and for one batch only."""
        return await self._do(lambda inbox: leasing.take(inbox, self._taker(lease_id, holder, lease_ms), reason))

    async def take_items(self, count: int, *, lease_id: str, holder: str, lease_ms: int) -> DequeuedBatch | None:
        """As `consume_items`, with a lease."""
        return await self._do(lambda inbox: leasing.take_items(inbox, self._taker(lease_id, holder, lease_ms), count))

    def _taker(self, lease_id: str, holder: str, lease_ms: int) -> Taker:
        return Taker(lease_id=lease_id, holder=holder, lease_ms=lease_ms, steady=self._stores.clock.steady())

    async def renew(self, lease_id: str, *, lease_ms: int) -> BatchLease:
        """Raises StaleLease."""
        return await self._do(
            lambda inbox: leasing.renew(inbox, lease_id, lease_ms=lease_ms, steady=self._stores.clock.steady())
        )

    async def remember(self, lease_id: str, memory: dict[str, Any]) -> None:
        """Raises StaleLease and InvalidInbox."""
        await self._do(lambda inbox: leasing.remember(inbox, lease_id, memory))

    async def confirm(self, lease_id: str, memory: dict[str, Any] | None = None) -> DequeuedBatch | None:
        """The batch is done with. None when it was confirmed before. Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: leasing.confirm(inbox, lease_id, memory))

    async def give_back(self, lease_id: str, reason: ReturnReason) -> DequeuedBatch:
        """Raises StaleLease."""
        return await self._do(lambda inbox: leasing.give_back(inbox, lease_id, reason))

    async def give_up(self, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None) -> DequeuedBatch:
        """Raises StaleLease and InvalidInbox."""
        return await self._do(lambda inbox: leasing.give_up(inbox, lease_id, reason, memory))

    # the inbox itself

    async def bind(self, consumer: str | None) -> None:
        """Say who feeds on it; what another one remembered is forgotten. Raises InvalidInbox."""
        await self._do(lambda inbox: verbs.bind(inbox, consumer))

    async def reset(self) -> bool:
        """Forget what its consumer remembers, so that the next turn begins anew; False while a batch is out."""
        return await self._do_freed(verbs.reset)

    async def state(self) -> Inbox:
        """As it is now; a batch whose lease has run out is back at the head."""
        inbox = await self._stores.inboxes.load(self.id)
        return leasing.expire(inbox, steady=self._stores.clock.steady()).after

    async def _do_freed(self, decide: Callable[[Inbox], InboxChange[Answer]], check: Check | None = None) -> Answer:
        """First a batch goes back whose holder went silent: nobody else might ever look."""

        def freed(inbox: Inbox) -> InboxChange[Answer]:
            if check is not None:
                check(inbox)
            expired = leasing.expire(inbox, steady=self._stores.clock.steady())
            return joined(expired, decide(expired.after))

        return await self._do(freed)

    async def _do(
        self,
        decide: Callable[[Inbox], InboxChange[Answer]],
        *,
        load: Callable[[str], Awaitable[Inbox]] | None = None,
    ) -> Answer:
        change = await carry_out(self._stores, self.id, decide, load=load)
        for notice in change.notices:
            tell(self._callbacks, notice, self._note)
        return change.answer

    def _note(self, callback: str, error: Exception) -> None:
        log.warning("inbox.callback_failed", inbox=self.id, callback=callback, error=f"{type(error).__name__}: {error}")
