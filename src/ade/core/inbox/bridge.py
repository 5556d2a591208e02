"""The way into a queue for code that does not know whose turn it is, such as a task that ends in the background."""

from collections import deque
from collections.abc import Callable
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.inbox.items import ItemKind, ItemSource, NewItem

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
