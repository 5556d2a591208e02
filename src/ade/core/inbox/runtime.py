"""QueueRuntime as agents know it: one inbox in memory, with callbacks. Its rules are those of stored inboxes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ade.core.inbox import verbs
from ade.core.inbox.items import DequeuedBatch, NewItem, QueueItem
from ade.core.inbox.limits import inbox_limits
from ade.core.inbox.notices import (
    BlockedReason,
    ClearReason,
    DropReason,
    Notice,
    ReturnReason,
    call_of,
)
from ade.core.inbox.state import Inbox, InboxChange

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCallbacks:
    """Who wants to hear of what; lengths are those after the step. The last two are for leased batches alone."""

    on_enqueued: Callable[[QueueItem, int], object] | None = None
    on_dequeued: Callable[[DequeuedBatch], object] | None = None
    on_blocked: Callable[[BlockedReason, int], object] | None = None
    on_cleared: Callable[[ClearReason, int, tuple[QueueItem, ...]], object] | None = None
    on_dropped: Callable[[QueueItem, DropReason, int], object] | None = None
    on_removed: Callable[[QueueItem, int], object] | None = None
    on_confirmed: Callable[[DequeuedBatch], object] | None = None
    on_returned: Callable[[DequeuedBatch, ReturnReason, int], object] | None = None


def tell(callbacks: QueueCallbacks, notice: Notice, on_error: Callable[[str, Exception], object] | None) -> None:
    """Call whoever wants to hear of this notice; what that raises goes to `on_error`, with the callback's name."""
    call = call_of(notice)
    callback = getattr(callbacks, call.callback)
    if callback is None:
        return
    try:
        callback(*call.arguments)
    except Exception as error:
        # Whoever listens must not break the queue.
        if on_error is not None:
            on_error(call.callback, error)


class QueueRuntime:
    """A batch that is taken is gone, and all is lost with the process: for tests, and for agents without a store.

    `clock` tells the time in ms. Callbacks come after the step, in order, and may use the queue; what one raises
    goes to `on_error`, with its name, and no further.
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

    def enqueue(self, new: NewItem) -> verbs.Put:
        """The item as it is queued; None when the hard limit is reached. Raises InvalidInboxItem.

        Of items that have a key: AlreadyThere when it was put in before.
        """
        return self._do(verbs.enqueue(self._inbox, new, limits=self.limits, now=self._clock()))

    def try_dequeue(self, blocked_reason: BlockedReason | None) -> DequeuedBatch | None:
        """The next batch, or None: there is nothing, or there is a reason not to."""
        return self._do(verbs.try_dequeue(self._inbox, blocked_reason))

    def consume_items(self, n: int) -> DequeuedBatch | None:
        """The first `n` items, whatever they are; None when there is nothing or `n` is not positive."""
        return self._do(verbs.consume_items(self._inbox, n))

    def reset_blocked_state(self) -> None:
        self._do(verbs.reset_blocked_state(self._inbox))

    def remove(self, item_id: str) -> QueueItem | None:
        """The item that was removed; None when it is not there."""
        return self._do(verbs.remove(self._inbox, item_id))

    def clear(self, reason: ClearReason) -> None:
        self._do(verbs.clear(self._inbox, reason))

    def peek(self) -> tuple[QueueItem, ...]:
        """All items, the oldest first; nothing is taken."""
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
            tell(self._callbacks, notice, self._on_error)
        return change.answer
