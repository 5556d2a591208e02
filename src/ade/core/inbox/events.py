"""What the event log keeps of an inbox: that something happened to its items, never what they say."""

from collections.abc import Mapping, Sequence

from ade.core.events import Event
from ade.core.inbox.items import DequeuedBatch, QueueItem
from ade.core.inbox.notices import (
    Blocked,
    Cleared,
    Confirmed,
    Dequeued,
    Dropped,
    Enqueued,
    Notice,
    Removed,
    Returned,
)

EVENT_OF: Mapping[type[Notice], str] = {
    Enqueued: "inbox.item_enqueued",
    Dequeued: "inbox.batch_dequeued",
    Blocked: "inbox.blocked",
    Cleared: "inbox.cleared",
    Dropped: "inbox.item_dropped",
    Removed: "inbox.item_removed",
    Confirmed: "inbox.batch_confirmed",
    Returned: "inbox.batch_returned",
}
INBOX_EVENTS = frozenset(EVENT_OF.values())


def events_of(inbox_id: str, notices: Sequence[Notice], *, at: int) -> list[Event]:
    return [
        Event(type=EVENT_OF[type(notice)], at=at, payload={"inbox_id": inbox_id, **_told(notice)}) for notice in notices
    ]


def _told(notice: Notice) -> dict[str, object]:
    """The fields of the agents' own protocol, and the same ones for what that has no words for."""
    match notice:
        case Enqueued(item, queue_len):
            return {**_item(item), "queue_len": queue_len}
        case Dropped(item, reason, queue_len):
            return {**_item(item), "reason": reason.value, "queue_len": queue_len}
        case Removed(item, queue_len):
            return {**_item(item), "queue_len": queue_len}
        case Blocked(reason, queue_len):
            return {"reason": reason.value, "queue_len": queue_len}
        case Cleared(reason, count, items):
            return {"reason": reason.value, "cleared_count": count, "item_ids": [item.id for item in items]}
        case Dequeued(batch) | Confirmed(batch):
            return _batch(batch)
        case Returned(batch, reason, queue_len):
            return {**_batch(batch), "reason": reason.value, "queue_len_after": queue_len}


def _item(item: QueueItem) -> dict[str, object]:
    return {
        "item_id": item.id,
        "client_message_id": item.message_id,
        "source": item.source.value,
        "kind": item.kind.value,
    }


def _batch(batch: DequeuedBatch) -> dict[str, object]:
    return {
        "batch_id": batch.batch_id,
        "item_ids": [item.id for item in batch.items],
        "merged_count": batch.merged_count,
        "queue_len_after": batch.queue_len_after,
    }
