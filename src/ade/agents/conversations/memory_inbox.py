"""QueueRuntime as agents know it: one inbox in memory, with callbacks. Its rules are those of stored inboxes."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TypeVar

from msgspec import Struct

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BlockedReason,
    ClearReason,
    DropReason,
    Inbox,
    InboxChange,
    Notice,
    ReturnReason,
    call_of,
)
from ade.agents.conversations.model import ItemBatch, ItemKind, ItemSource, NewItem, StoredItem, inbox_limits

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCallbacks:
    """Who wants to hear of what; lengths are those after the step. The last two are for leased batches alone."""

    on_enqueued: Callable[[StoredItem, int], object] | None = None
    on_dequeued: Callable[[ItemBatch], object] | None = None
    on_blocked: Callable[[BlockedReason, int], object] | None = None
    on_cleared: Callable[[ClearReason, int, tuple[StoredItem, ...]], object] | None = None
    on_dropped: Callable[[StoredItem, DropReason, int], object] | None = None
    on_removed: Callable[[StoredItem, int], object] | None = None
    on_confirmed: Callable[[ItemBatch], object] | None = None
    on_returned: Callable[[ItemBatch, ReturnReason, int], object] | None = None


def notify(callbacks: QueueCallbacks, notice: Notice, on_error: Callable[[str, Exception], object] | None) -> None:
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

    def enqueue(self, new: NewItem) -> conversations_rules.Put:
        """The item as it is queued; None when the hard limit is reached. Raises InvalidInboxItem.

        Of items that have a key: AlreadyThere when it was put in before.
        """
        return self._do(conversations_rules.enqueue(self._inbox, new, limits=self.limits, now=self._clock()))

    def try_dequeue(self, blocked_reason: BlockedReason | None) -> ItemBatch | None:
        """The next batch, or None: there is nothing, or there is a reason not to."""
        return self._do(conversations_rules.try_dequeue(self._inbox, blocked_reason))

    def consume_items(self, n: int) -> ItemBatch | None:
        """The first `n` items, whatever they are; None when there is nothing or `n` is not positive."""
        return self._do(conversations_rules.consume_items(self._inbox, n))

    def reset_blocked_state(self) -> None:
        self._do(conversations_rules.reset_blocked_state(self._inbox))

    def remove(self, item_id: str) -> StoredItem | None:
        """The item that was removed; None when it is not there."""
        return self._do(conversations_rules.remove(self._inbox, item_id))

    def clear(self, reason: ClearReason) -> None:
        self._do(conversations_rules.clear(self._inbox, reason))

    def peek(self) -> tuple[StoredItem, ...]:
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
            notify(self._callbacks, notice, self._on_error)
        return change.answer


# The way into a queue for code that does not know whose turn it is, such as a task that ends in the background.


MOST_BUFFERED = 10


class BridgeKind(StrEnum):
    USER = auto()
    TASK_NOTIFICATION = auto()


class BridgeMessage(Struct, frozen=True, kw_only=True):
    kind: BridgeKind
    text: str
    agent_id: str | None = None
    conversation_id: str | None = None


def item_of(message: BridgeMessage) -> NewItem:
    """What a user says is a message; a notification keeps its kind."""
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
    """One consumer at a time. Without one the newest ten messages are kept; a stored inbox keeps all and needs none."""

    def __init__(self) -> None:
        self._consumer: Callable[[BridgeMessage], object] | None = None
        self._buffered = deque[BridgeMessage](maxlen=MOST_BUFFERED)

    @property
    def is_connected(self) -> bool:
        return self._consumer is not None

    def connect(self, consumer: Callable[[BridgeMessage], object]) -> None:
        """Hand over what was kept, oldest first, and from now on all that comes. One that fails is not connected."""
        self._consumer = consumer
        try:
            while self._buffered:
                consumer(self._buffered[0])
                self._buffered.popleft()  # not before: a consumer that fails finds it again when it comes back
        except BaseException:
            self._consumer = None
            raise

    def disconnect(self) -> None:
        self._consumer = None

    def add(self, message: BridgeMessage) -> None:
        if self._consumer is None:
            self._buffered.append(message)
        else:
            self._consumer(message)


# Why nothing may be taken now: what is going on in an agent, and which of that is told when it is more than one.


class Condition(StrEnum):
    INTERRUPTING = auto()  # somebody cancels the turn
    APPROVALS_PENDING = auto()  # at least one
    RECOVERING_APPROVALS = auto()
    WAITING_ON_APPROVAL = auto()  # the turn itself says so
    OVERLAY_OPEN = auto()  # a selector or a question on the screen, or an answer to one on its way
    COMMAND_RUNNING = auto()
    STREAMING = auto()
    CALLING_API = auto()  # sending, waiting, retrying or reading
    EXECUTING_TOOL = auto()
    ABORTABLE = auto()  # a request is under way that can be aborted
    PROCESSING = auto()  # a turn is under way, and nothing more is known of it


Priority = tuple[tuple[Condition, BlockedReason], ...]  # the first that holds is told

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
    """None when nothing of what is going on is in the way."""
    return next((reason for condition, reason in priority if condition in conditions), None)
