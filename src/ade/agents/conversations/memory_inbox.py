"""In-memory inbox (QueueRuntime) with the rules of stored inboxes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from msgspec import structs

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BlockedReason,
    ClearReason,
    DropReason,
    Inbox,
    InboxChange,
    Notice,
    ReturnReason,
)
from ade.agents.conversations.model import ItemBatch, NewItem, StoredItem, inbox_limits

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCallbacks:
    """Callbacks for inbox changes; lengths are those after the change. The last two are for leased batches only."""

    on_enqueued: Callable[[StoredItem, int], object] | None = None
    on_dequeued: Callable[[ItemBatch], object] | None = None
    on_blocked: Callable[[BlockedReason, int], object] | None = None
    on_cleared: Callable[[ClearReason, int, tuple[StoredItem, ...]], object] | None = None
    on_dropped: Callable[[StoredItem, DropReason, int], object] | None = None
    on_removed: Callable[[StoredItem, int], object] | None = None
    on_confirmed: Callable[[ItemBatch], object] | None = None
    on_returned: Callable[[ItemBatch, ReturnReason, int], object] | None = None


def notify(callbacks: QueueCallbacks, notice: Notice, on_error: Callable[[str, Exception], object] | None) -> None:
    """Call the callback for this notice. Its errors go to `on_error`, with the callback's name."""
    name = f"on_{notice.__struct_config__.tag}"
    callback = getattr(callbacks, name)
    if callback is None:
        return
    try:
        callback(*structs.astuple(notice))
    except Exception as error:
        # A failing callback must not break the queue.
        if on_error is not None:
            on_error(name, error)


class QueueRuntime:
    """An in-memory inbox without leases: for tests, and for agents without a store.

    `clock` returns the time in ms. Callbacks run after the change, in order, and can use the queue. Their errors go to
    `on_error`, with the callback's name, and are not raised.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        max_items: float | None = None,
        hard_max_items: float | None = None,
        callbacks: QueueCallbacks | None = None,
        on_error: Callable[[str, Exception], object] | None = None,
    ) -> None:
        self._clock = clock
        self.limits = inbox_limits(max_items, hard_max_items)
        self._callbacks = callbacks or QueueCallbacks()
        self._on_error = on_error
        self._inbox = Inbox(id="memory")

    def enqueue(self, new: NewItem) -> conversations_rules.Put:
        """Return the stored item; None at the hard limit. Raises InvalidInboxItem.

        For an item with a known key: DuplicateItem.
        """
        return self._do(conversations_rules.enqueue(self._inbox, new, limits=self.limits, now=self._clock()))

    def try_dequeue(self, blocked_reason: BlockedReason | None) -> ItemBatch | None:
        """Return the next batch; None if there is none, or a reason blocks it."""
        return self._do(conversations_rules.try_dequeue(self._inbox, blocked_reason))

    def consume_items(self, n: int) -> ItemBatch | None:
        """Return the first `n` items, of any kind; None if there are none or `n` is not positive."""
        return self._do(conversations_rules.consume_items(self._inbox, n))

    def reset_blocked_state(self) -> None:
        """Report the next blocking reason even if it is the same."""
        self._do(conversations_rules.reset_blocked_state(self._inbox))

    def remove(self, item_id: str) -> StoredItem | None:
        """Return the removed item; None if it does not exist."""
        return self._do(conversations_rules.remove(self._inbox, item_id))

    def clear(self, reason: ClearReason) -> None:
        self._do(conversations_rules.clear(self._inbox, reason))

    def peek(self) -> tuple[StoredItem, ...]:
        """Return all items, oldest first, without taking them."""
        return self._inbox.waiting

    @property
    def length(self) -> int:
        return self._inbox.length

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    def _do(self, change: InboxChange[Answer]) -> Answer:
        self._inbox = change.after
        for notice in change.notices:
            notify(self._callbacks, notice, self._on_error)
        return change.answer
