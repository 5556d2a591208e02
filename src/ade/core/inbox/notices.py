"""What is to be told after a step: each notice names the callback it is for, and holds what to call it with.

The fields of a notice are the arguments of its callback, in their order.
"""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.core.inbox.items import DequeuedBatch, QueueItem


class DropReason(StrEnum):
    BUFFER_LIMIT = auto()
    STALE_GENERATION = auto()  # for those who put items in; an inbox itself has no generations


class BlockedReason(StrEnum):
    STREAMING = auto()
    PENDING_APPROVALS = auto()
    OVERLAY_OPEN = auto()
    COMMAND_RUNNING = auto()
    INTERRUPT_IN_PROGRESS = auto()
    RUNTIME_BUSY = auto()


class ClearReason(StrEnum):
    PROCESSED = auto()
    ERROR = auto()
    CANCELLED = auto()
    SHUTDOWN = auto()
    STALE_GENERATION = auto()


class ReturnReason(StrEnum):
    LOST = auto()  # the lease ran out: whoever had the batch went silent
    FAILED = auto()
    RELEASED = auto()  # handed back unfinished, at no cost to it


class Enqueued(Struct, frozen=True, tag="enqueued"):
    item: QueueItem
    queue_len: int


class Dequeued(Struct, frozen=True, tag="dequeued"):
    batch: DequeuedBatch


class Blocked(Struct, frozen=True, tag="blocked"):
    reason: BlockedReason
    queue_len: int


class Cleared(Struct, frozen=True, tag="cleared"):
    reason: ClearReason
    count: int
    items: tuple[QueueItem, ...]


class Dropped(Struct, frozen=True, tag="dropped"):
    """`queue_len` is that after the step. An item that was refused has an id and was never in the inbox."""

    item: QueueItem
    reason: DropReason
    queue_len: int


class Removed(Struct, frozen=True, tag="removed"):
    item: QueueItem
    queue_len: int


class Confirmed(Struct, frozen=True, tag="confirmed"):
    """Of leased batches alone, as is Returned."""

    batch: DequeuedBatch


class Returned(Struct, frozen=True, tag="returned"):
    batch: DequeuedBatch
    reason: ReturnReason
    queue_len: int


Notice = Enqueued | Dequeued | Blocked | Cleared | Dropped | Removed | Confirmed | Returned

_CALLBACKS: Mapping[type[Notice], str] = {
    Enqueued: "on_enqueued",
    Dequeued: "on_dequeued",
    Blocked: "on_blocked",
    Cleared: "on_cleared",
    Dropped: "on_dropped",
    Removed: "on_removed",
    Confirmed: "on_confirmed",
    Returned: "on_returned",
}


class Call(Struct, frozen=True):
    callback: str
    arguments: tuple[object, ...]


def call_of(notice: Notice) -> Call:
    """What to call, and with what."""
    return Call(_CALLBACKS[type(notice)], structs.astuple(notice))


def wire_event(notice: Notice, *, session_id: str, uuid: str) -> dict[str, object] | None:
    """The notice as a line of the agents' own protocol; None for those that have no such line."""
    body = _wire_body(notice)
    return None if body is None else {**body, "session_id": session_id, "uuid": uuid}


def _wire_body(notice: Notice) -> dict[str, object] | None:
    match notice:
        case Enqueued(item, queue_len):
            return {
                "type": "queue_item_enqueued",
                "item_id": item.id,
                "client_message_id": item.message_id,
                "source": item.source,
                "kind": item.kind,
                "queue_len": queue_len,
            }
        case Dequeued(batch):
            return {
                "type": "queue_batch_dequeued",
                "batch_id": batch.batch_id,
                "item_ids": [item.id for item in batch.items],
                "merged_count": batch.merged_count,
                "queue_len_after": batch.queue_len_after,
            }
        case Blocked(reason, queue_len):
            return {"type": "queue_blocked", "reason": reason, "queue_len": queue_len}
        case Cleared(reason, count):
            return {"type": "queue_cleared", "reason": reason, "cleared_count": count}
        case Dropped(item, reason, queue_len):
            return {"type": "queue_item_dropped", "item_id": item.id, "reason": reason, "queue_len": queue_len}
        case Removed() | Confirmed() | Returned():
            return None
