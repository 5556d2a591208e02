"""In-memory inbox (QueueRuntime) with the rules of stored inboxes, a message bridge, and blocking conditions."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TypeVar

from msgspec import Struct, structs

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
from ade.agents.conversations.model import ItemBatch, ItemKind, ItemSource, NewItem, StoredItem, inbox_limits

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


# The bridge into a queue for code that does not know the current consumer, such as a background task that ends.


MOST_BUFFERED = 10


class BridgeKind(StrEnum):
    """The kind of a bridged message."""

    USER = auto()
    TASK_NOTIFICATION = auto()


class BridgeMessage(Struct, frozen=True, kw_only=True):
    """A message on its way into a queue."""

    kind: BridgeKind
    text: str
    agent_id: str | None = None
    conversation_id: str | None = None


def item_of(message: BridgeMessage) -> NewItem:
    """Return the inbox item: a user's text becomes a message; a notification keeps its kind."""
    is_user = message.kind is BridgeKind.USER
    return NewItem(
        kind=ItemKind.MESSAGE if is_user else ItemKind.TASK_NOTIFICATION,
        source=ItemSource.USER if is_user else ItemSource.TASK_NOTIFICATION,
        content=message.text if is_user else None,
        text=None if is_user else message.text,
        agent_id=message.agent_id,
        conversation_id=message.conversation_id,
    )


class MessageBridge:
    """Forwards messages to one consumer at a time. Without one, it buffers the newest ten. Stored inboxes need no
    bridge.
    """

    def __init__(self) -> None:
        self._consumer: Callable[[BridgeMessage], object] | None = None
        self._buffered = deque[BridgeMessage](maxlen=MOST_BUFFERED)

    @property
    def is_connected(self) -> bool:
        return self._consumer is not None

    def connect(self, consumer: Callable[[BridgeMessage], object]) -> None:
        """Deliver buffered messages, oldest first, then all new ones. A consumer that raises is not connected."""
        self._consumer = consumer
        try:
            while self._buffered:
                consumer(self._buffered[0])
                self._buffered.popleft()  # after delivery: a consumer that raises gets it again when it reconnects
        except BaseException:
            self._consumer = None
            raise

    def disconnect(self) -> None:
        self._consumer = None

    def add(self, message: BridgeMessage) -> None:
        """Deliver the message, or buffer it until a consumer connects."""
        if self._consumer is None:
            self._buffered.append(message)
        else:
            self._consumer(message)


# Blocking conditions of an agent, and which one to report if several apply.


class Condition(StrEnum):
    """An activity of the agent that can block a turn."""

    INTERRUPTING = auto()  # the turn is being cancelled
    APPROVALS_PENDING = auto()  # at least one
    RECOVERING_APPROVALS = auto()
    WAITING_ON_APPROVAL = auto()  # reported by the turn itself
    OVERLAY_OPEN = auto()  # a selector or question on the screen, or a pending answer to one
    COMMAND_RUNNING = auto()
    STREAMING = auto()
    CALLING_API = auto()  # sending, waiting, retrying, or reading
    EXECUTING_TOOL = auto()
    ABORTABLE = auto()  # an abortable request is in progress
    PROCESSING = auto()  # a turn is in progress, without further details


Priority = tuple[tuple[Condition, BlockedReason], ...]  # the first that applies is reported

TERMINAL: Priority = (
    (Condition.INTERRUPTING, BlockedReason.INTERRUPT_IN_PROGRESS),
    (Condition.APPROVALS_PENDING, BlockedReason.PENDING_APPROVALS),
    (Condition.OVERLAY_OPEN, BlockedReason.OVERLAY_OPEN),
    (Condition.COMMAND_RUNNING, BlockedReason.COMMAND_RUNNING),
    (Condition.STREAMING, BlockedReason.STREAMING),
    (Condition.EXECUTING_TOOL, BlockedReason.STREAMING),
    (Condition.ABORTABLE, BlockedReason.STREAMING),
)
LISTENER: Priority = (
    (Condition.INTERRUPTING, BlockedReason.INTERRUPT_IN_PROGRESS),
    (Condition.APPROVALS_PENDING, BlockedReason.PENDING_APPROVALS),
    (Condition.RECOVERING_APPROVALS, BlockedReason.RUNTIME_BUSY),
    (Condition.WAITING_ON_APPROVAL, BlockedReason.PENDING_APPROVALS),
    (Condition.COMMAND_RUNNING, BlockedReason.COMMAND_RUNNING),
    (Condition.CALLING_API, BlockedReason.STREAMING),
    (Condition.EXECUTING_TOOL, BlockedReason.STREAMING),
    (Condition.PROCESSING, BlockedReason.RUNTIME_BUSY),
)


def blocked_reason(conditions: Collection[Condition], priority: Priority) -> BlockedReason | None:
    """Return the reason to report; None if no condition blocks."""
    return next((reason for condition, reason in priority if condition in conditions), None)
