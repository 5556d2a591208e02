"""An inbox as it is stored, and a decided change of it."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from ade.agents.conversations.model import InboxLimits, ItemBatch, ItemKind, StoredItem
from ade.errors import StaleWrite, StoreCorrupt
from ade.events.model import Event
from ade.tasks.identifiers import check_inbox_id

# What is to be told after a step: each notice names the callback it is for, and holds what to call it with.
#
# The fields of a notice are the arguments of its callback, in their order.


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


class ItemEnqueued(Struct, frozen=True, tag="enqueued"):
    item: StoredItem
    queue_len: int


class BatchDequeued(Struct, frozen=True, tag="dequeued"):
    batch: ItemBatch


class InboxBlocked(Struct, frozen=True, tag="blocked"):
    reason: BlockedReason
    queue_len: int


class InboxCleared(Struct, frozen=True, tag="cleared"):
    reason: ClearReason
    count: int
    items: tuple[StoredItem, ...]


class ItemDropped(Struct, frozen=True, tag="dropped"):
    """`queue_len` is that after the step. An item that was refused has an id and was never in the inbox."""

    item: StoredItem
    reason: DropReason
    queue_len: int


class ItemRemoved(Struct, frozen=True, tag="removed"):
    item: StoredItem
    queue_len: int


class BatchConfirmed(Struct, frozen=True, tag="confirmed"):
    """Of leased batches alone, as is Returned."""

    batch: ItemBatch


class BatchReturned(Struct, frozen=True, tag="returned"):
    batch: ItemBatch
    reason: ReturnReason
    queue_len: int


Notice = (
    ItemEnqueued
    | BatchDequeued
    | InboxBlocked
    | InboxCleared
    | ItemDropped
    | ItemRemoved
    | BatchConfirmed
    | BatchReturned
)

_CALLBACKS: Mapping[type[Notice], str] = {
    ItemEnqueued: "on_enqueued",
    BatchDequeued: "on_dequeued",
    InboxBlocked: "on_blocked",
    InboxCleared: "on_cleared",
    ItemDropped: "on_dropped",
    ItemRemoved: "on_removed",
    BatchConfirmed: "on_confirmed",
    BatchReturned: "on_returned",
}


class CallbackInvocation(Struct, frozen=True):
    callback: str
    arguments: tuple[object, ...]


def call_of(notice: Notice) -> CallbackInvocation:
    """What to call, and with what."""
    return CallbackInvocation(_CALLBACKS[type(notice)], structs.astuple(notice))


def wire_event(notice: Notice, *, session_id: str, uuid: str) -> dict[str, object] | None:
    """The notice as a line of the agents' own protocol; None for those that have no such line."""
    body = _wire_body(notice)
    return None if body is None else {**body, "session_id": session_id, "uuid": uuid}


def _wire_body(notice: Notice) -> dict[str, object] | None:
    match notice:
        case ItemEnqueued(item, queue_len):
            return {
                "type": "queue_item_enqueued",
                "item_id": item.id,
                "client_message_id": item.message_id,
                "source": item.source,
                "kind": item.kind,
                "queue_len": queue_len,
            }
        case BatchDequeued(batch):
            return {
                "type": "queue_batch_dequeued",
                "batch_id": batch.batch_id,
                "item_ids": [item.id for item in batch.items],
                "merged_count": batch.merged_count,
                "queue_len_after": batch.queue_len_after,
            }
        case InboxBlocked(reason, queue_len):
            return {"type": "queue_blocked", "reason": reason, "queue_len": queue_len}
        case InboxCleared(reason, count):
            return {"type": "queue_cleared", "reason": reason, "cleared_count": count}
        case ItemDropped(item, reason, queue_len):
            return {"type": "queue_item_dropped", "item_id": item.id, "reason": reason, "queue_len": queue_len}
        case ItemRemoved() | BatchConfirmed() | BatchReturned():
            return None


Answer_co = TypeVar("Answer_co", covariant=True)
Other = TypeVar("Other")
TURN = "turn"  # the place in the memory where a consumer marks what it has begun; it stays when the rest is forgotten
IS_RESET = "is_reset"  # of that mark: what the turn learns is not to be remembered


class BatchLease(Struct, frozen=True, kw_only=True):
    """The right to work on the first `count` items of an inbox. While it lasts nobody else gets any."""

    id: str  # random, new for each batch, and known to its holder alone: the fence of all it writes
    holder: str
    batch_id: str
    count: int
    until: int  # the store's steady time
    consumer: str | None = None  # whom the inbox was bound to then: the memory of that one alone may be written


class Inbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of one conversation's inbox.

    `items` are in order of their seq. Those of a leased batch stay where they are, at the head, until it is confirmed:
    to give a batch back is to forget its lease, and nothing can come out of order. A store may keep each item as a row
    of its own by its seq, since items never change, and the rest as one small record.
    """

    id: str
    version: int = 0
    items: tuple[StoredItem, ...] = ()
    lease: BatchLease | None = None
    last_item: int = 0  # the highest seq ever given, to refused items too
    last_batch: int = 0
    told: BlockedReason | None = None  # why nothing is taken, as it was told last; forgotten when nothing waits
    returns: int = 0  # batches that came back, or were given up for an error, since the last one that was finished
    confirmed: str | None = None  # the lease of the last batch that was confirmed
    consumer: str | None = None  # who feeds on it, such as agent:coder; without one it waits for whoever asks by id
    memory: dict[str, Any] = {}  # small JSON that its consumer wants to find next time
    keys: tuple[str, ...] = ()  # of the newest items that had one
    limits: InboxLimits | None = None  # as somebody has set them; None: the usual ones

    @property
    def taken(self) -> tuple[StoredItem, ...]:
        return () if self.lease is None else self.items[: self.lease.count]

    @property
    def waiting(self) -> tuple[StoredItem, ...]:
        return self.items if self.lease is None else self.items[self.lease.count :]

    @property
    def length(self) -> int:
        """How many wait; a batch that is out does not count, as it did not when it lived in memory."""
        return len(self.items) - (0 if self.lease is None else self.lease.count)


def unused(inbox_id: str) -> Inbox:
    """An inbox that was never written. Raises InvalidInbox."""
    check_inbox_id(inbox_id)
    return Inbox(id=inbox_id)


def outlined(head: Inbox, seqs: Iterable[int]) -> Inbox:
    """An inbox whose items were not read: there are as many, and of each nothing but its number is known."""
    items = (StoredItem(id=f"q-{seq}", seq=seq, enqueued_at=0, kind=ItemKind.MESSAGE, content="") for seq in seqs)
    return structs.replace(head, items=tuple(items))


class InboxSummary(Struct, frozen=True, kw_only=True):
    """An inbox in a list."""

    id: str
    version: int
    waiting: int  # items nobody has taken
    taken: int  # items of the batch that is out
    consumer: str | None
    holder: str | None  # of the batch that is out
    held_until: int | None  # steady time: from then on the batch counts as returned
    since: int | None  # when the oldest item was put in
    returns: int
    written_at: int


def summary_of(head: Inbox, *, items: int, since: int | None, written_at: int) -> InboxSummary:
    """Of an inbox that was read without its items."""
    lease, taken = head.lease, 0 if head.lease is None else head.lease.count
    return InboxSummary(
        id=head.id,
        version=head.version,
        waiting=items - taken,
        taken=taken,
        consumer=head.consumer,
        holder=None if lease is None else lease.holder,
        held_until=None if lease is None else lease.until,
        since=since,
        returns=head.returns,
        written_at=written_at,
    )


def stale(change: "InboxChange[object]") -> StaleWrite:
    """What to raise when an inbox is not as it was seen."""
    return StaleWrite(f"the inbox {change.before.id} has changed since it was read; read it again and decide again")


def unreadable(inbox_id: str, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"the inbox {inbox_id} cannot be read ({error})",
        advice=f"`ade inbox clear {inbox_id} --reason error` removes all its items without reading them; if that does"
        " not help either, restore the store from a backup",
    )


class InboxChange(Struct, Generic[Answer_co], frozen=True, kw_only=True):
    """A decided step. It is written if the inbox still has the version of `before`; then the notices are told."""

    before: Inbox
    after: Inbox
    notices: tuple[Notice, ...]
    answer: Answer_co

    @property
    def is_written(self) -> bool:
        """Whether there is anything to write, in the inbox or in the log."""
        return self.after.version != self.before.version

    @property
    def added(self) -> tuple[StoredItem, ...]:
        return tuple(item for item in self.after.items if item.seq > self.before.last_item)

    @property
    def removed(self) -> tuple[StoredItem, ...]:
        kept = {item.seq for item in self.after.items}
        return tuple(item for item in self.before.items if item.seq not in kept)


def changed(inbox: Inbox, answer: Other, *notices: Notice, **fields: object) -> InboxChange[Other]:
    """The one way to make an InboxChange: the version moves if anything is different afterwards, or is to be told.

    When nothing waits any more an epoch is over, and in the next one whatever blocks is news.
    """
    is_different = bool(notices) or any(getattr(inbox, name) != value for name, value in fields.items())
    after = structs.replace(inbox, version=inbox.version + 1, **fields) if is_different else inbox
    if after.told is not None and after.length == 0:
        after = structs.replace(after, told=None)
    return InboxChange(before=inbox, after=after, notices=notices, answer=answer)


def joined(first: InboxChange[object], second: InboxChange[Other]) -> InboxChange[Other]:
    """Both steps as one: written together or not at all."""
    is_written = first.is_written or second.is_written
    version = first.before.version + 1 if is_written else first.before.version
    return InboxChange(
        before=first.before,
        after=structs.replace(second.after, version=version),
        notices=(*first.notices, *second.notices),
        answer=second.answer,
    )


def batch_of(inbox: Inbox) -> ItemBatch | None:
    """The batch that is out, as its holder has it."""
    if inbox.lease is None:
        return None
    return ItemBatch(
        batch_id=inbox.lease.batch_id,
        items=inbox.taken,
        merged_count=inbox.lease.count,
        queue_len_after=inbox.length,
    )


# What the event log keeps of an inbox: that something happened to its items, never what they say.


EVENT_OF: Mapping[type[Notice], str] = {
    ItemEnqueued: "inbox.item_enqueued",
    BatchDequeued: "inbox.batch_dequeued",
    InboxBlocked: "inbox.blocked",
    InboxCleared: "inbox.cleared",
    ItemDropped: "inbox.item_dropped",
    ItemRemoved: "inbox.item_removed",
    BatchConfirmed: "inbox.batch_confirmed",
    BatchReturned: "inbox.batch_returned",
}
INBOX_EVENTS = frozenset(EVENT_OF.values())


def events_of(inbox_id: str, notices: Sequence[Notice], *, at: int) -> list[Event]:
    return [
        Event(type=EVENT_OF[type(notice)], at=at, payload={"inbox_id": inbox_id, **_told(notice)}) for notice in notices
    ]


def _told(notice: Notice) -> dict[str, object]:
    """The fields of the agents' own protocol, and the same ones for what that has no words for."""
    match notice:
        case ItemEnqueued(item, queue_len):
            return {**_item(item), "queue_len": queue_len}
        case ItemDropped(item, reason, queue_len):
            return {**_item(item), "reason": reason.value, "queue_len": queue_len}
        case ItemRemoved(item, queue_len):
            return {**_item(item), "queue_len": queue_len}
        case InboxBlocked(reason, queue_len):
            return {"reason": reason.value, "queue_len": queue_len}
        case InboxCleared(reason, count, items):
            return {"reason": reason.value, "cleared_count": count, "item_ids": [item.id for item in items]}
        case BatchDequeued(batch) | BatchConfirmed(batch):
            return _batch(batch)
        case BatchReturned(batch, reason, queue_len):
            return {**_batch(batch), "reason": reason.value, "queue_len_after": queue_len}


def _item(item: StoredItem) -> dict[str, object]:
    return {
        "item_id": item.id,
        "client_message_id": item.message_id,
        "source": item.source.value,
        "kind": item.kind.value,
    }


def _batch(batch: ItemBatch) -> dict[str, object]:
    return {
        "batch_id": batch.batch_id,
        "item_ids": [item.id for item in batch.items],
        "merged_count": batch.merged_count,
        "queue_len_after": batch.queue_len_after,
    }
