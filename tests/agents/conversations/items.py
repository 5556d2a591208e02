"""Items for stories, and a queue that remembers what it told."""

from ade.agents.conversations.memory_inbox import QueueCallbacks, QueueRuntime
from ade.agents.conversations.model import ItemKind, ItemSource, NewItem

NOW = 1_700_000_000_000


def message(
    content: str | list[dict[str, object]] = "hello",
    *,
    agent: str | None = None,
    conversation: str | None = None,
    client_message_id: str | None = None,
    no_coalesce: bool = False,
) -> NewItem:
    return NewItem(
        kind=ItemKind.MESSAGE,
        content=content,
        agent_id=agent,
        conversation_id=conversation,
        client_message_id=client_message_id,
        no_coalesce=no_coalesce,
    )


def of_kind(
    kind: ItemKind, text: str = "text", *, agent: str | None = None, conversation: str | None = None
) -> NewItem:
    """An item of any kind but message."""
    return NewItem(kind=kind, source=ItemSource.SYSTEM, text=text, agent_id=agent, conversation_id=conversation)


def notification(text: str = "done", *, agent: str | None = None, conversation: str | None = None) -> NewItem:
    return of_kind(ItemKind.TASK_NOTIFICATION, text, agent=agent, conversation=conversation)


def barrier(text: str = "yes", *, agent: str | None = None, conversation: str | None = None) -> NewItem:
    return of_kind(ItemKind.APPROVAL_RESULT, text, agent=agent, conversation=conversation)


class ToldQueue(QueueRuntime):
    """`told` has every callback as it came: its name, then ids, reasons and lengths."""

    def __init__(self, *, max_items: float | None = None, hard_max_items: float | None = None) -> None:
        self.told: list[tuple[object, ...]] = []
        callbacks = QueueCallbacks(
            on_enqueued=lambda item, queue_len: self.told.append(("enqueued", item.id, queue_len)),
            on_dequeued=lambda batch: self.told.append(("dequeued", batch.batch_id, batch.queue_len_after)),
            on_blocked=lambda reason, queue_len: self.told.append(("blocked", reason, queue_len)),
            on_cleared=lambda reason, count, items: self.told.append(
                ("cleared", reason, count, [one.id for one in items])
            ),
            on_dropped=lambda item, reason, queue_len: self.told.append(("dropped", item.id, reason, queue_len)),
            on_removed=lambda item, queue_len: self.told.append(("removed", item.id, queue_len)),
        )
        super().__init__(clock=lambda: NOW, max_items=max_items, hard_max_items=hard_max_items, callbacks=callbacks)

    def put(self, *items: NewItem) -> None:
        for item in items:
            self.enqueue(item)

    def ids(self) -> list[str]:
        return [item.id for item in self.peek()]

    def told_of(self, name: str) -> list[tuple[object, ...]]:
        return [told[1:] for told in self.told if told[0] == name]
