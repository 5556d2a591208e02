"""The stored record of an inbox, changes to it, and the notices and events that describe each change."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

from ade.agents.conversations.model import InboxLimits, ItemBatch, ItemKind, StoredItem
from ade.errors import StaleWrite, StoreCorrupt
from ade.events.model import Event
from ade.tasks.identifiers import check_inbox_id

# Notices: what to report after a change. Each is for one callback, named after its tag: `on_enqueued`.
#
# The fields of a notice are the arguments of its callback, in order.


class DropReason(StrEnum):
    """Why an item was dropped."""

    BUFFER_LIMIT = auto()
    STALE_GENERATION = auto()  # used by senders; an inbox itself has no generations


class BlockedReason(StrEnum):
    """Why a conversation cannot take items now."""

    STREAMING = auto()
    PENDING_APPROVALS = auto()
    OVERLAY_OPEN = auto()
    COMMAND_RUNNING = auto()
    INTERRUPT_IN_PROGRESS = auto()
    RUNTIME_BUSY = auto()


class ClearReason(StrEnum):
    """Why items are removed from an inbox."""

    PROCESSED = auto()
    ERROR = auto()
    CANCELLED = auto()
    SHUTDOWN = auto()
    STALE_GENERATION = auto()


class ReturnReason(StrEnum):
    """Why a leased batch was returned."""

    LOST = auto()  # the lease expired: its holder was lost
    FAILED = auto()
    RELEASED = auto()  # returned unfinished, without counting as a failure


class ItemEnqueued(Struct, frozen=True, tag="enqueued"):
    """An item was put in."""

    item: StoredItem
    queue_len: int


class BatchDequeued(Struct, frozen=True, tag="dequeued"):
    """A batch was taken."""

    batch: ItemBatch


class InboxBlocked(Struct, frozen=True, tag="blocked"):
    """Items wait, but nothing can be taken."""

    reason: BlockedReason
    queue_len: int


class InboxCleared(Struct, frozen=True, tag="cleared"):
    """Items were removed together."""

    reason: ClearReason
    count: int
    items: tuple[StoredItem, ...]


class ItemDropped(Struct, frozen=True, tag="dropped"):
    """An item was evicted or rejected; `queue_len` is the length after it. A rejected item has an ID but was never
    stored.
    """

    item: StoredItem
    reason: DropReason
    queue_len: int


class ItemRemoved(Struct, frozen=True, tag="removed"):
    """A single item was removed."""

    item: StoredItem
    queue_len: int


class BatchConfirmed(Struct, frozen=True, tag="confirmed"):
    """A leased batch was finished. Only leased batches are confirmed or returned."""

    batch: ItemBatch


class BatchReturned(Struct, frozen=True, tag="returned"):
    """A leased batch went back to the head."""

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


def wire_event(notice: Notice, *, session_id: str, uuid: str) -> dict[str, object] | None:
    """Return the notice as a line of the agents' own protocol; None if the protocol has no such line."""
    body = _wire_body(notice)
    return None if body is None else {**body, "session_id": session_id, "uuid": uuid}


def _wire_body(notice: Notice) -> dict[str, object] | None:
    match notice:
        case ItemEnqueued():
            return {"type": "queue_item_enqueued", **_payload(notice)}
        case BatchDequeued():
            return {"type": "queue_batch_dequeued", **_payload(notice)}
        case InboxBlocked():
            return {"type": "queue_blocked", **_payload(notice)}
        case InboxCleared(reason, count):
            return {"type": "queue_cleared", "reason": reason, "cleared_count": count}
        case ItemDropped(item, reason, queue_len):
            return {"type": "queue_item_dropped", "item_id": item.id, "reason": reason, "queue_len": queue_len}
    return None


Answer_co = TypeVar("Answer_co", covariant=True)
Other = TypeVar("Other")
TURN = "turn"  # memory key of a consumer's in-flight turn; it survives a reset
IS_RESET = "is_reset"  # field of that mark: what the turn reports is not to be remembered


class BatchLease(Struct, frozen=True, kw_only=True):
    """The exclusive right to process the first `count` items of an inbox."""

    id: str  # random, new for each batch, and known only to its holder: the fencing token of its writes
    holder: str
    batch_id: str
    count: int
    until: int  # steady time
    consumer: str | None = None  # the consumer at the time of the claim; only its memory can be written


class Inbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one conversation's inbox.

    `items` are ordered by seq. Those of a leased batch stay at the head until it is confirmed. To return a batch is to
    drop its lease, so nothing can get out of order. Items never change, so a store can keep each as a row by its seq,
    and the rest as one small record.
    """

    id: str
    version: int = 0
    items: tuple[StoredItem, ...] = ()
    lease: BatchLease | None = None
    last_item: int = 0  # the highest seq ever assigned, rejected items included
    last_batch: int = 0
    told: BlockedReason | None = None  # the last reported reason why nothing can be taken; cleared when nothing waits
    returns: int = 0  # batches returned, or discarded after an error, since the last finished one
    confirmed: str | None = None  # the lease ID of the last confirmed batch
    consumer: str | None = None  # processes the inbox, such as agent:coder; None: callers take items by inbox ID
    memory: dict[str, Any] = {}  # small JSON object that its consumer keeps between batches
    keys: tuple[str, ...] = ()  # of the newest items that had one
    limits: InboxLimits | None = None  # None: the defaults
    owner: str | None = None  # the author of its first item; None: unknown, or begun by an older version

    @property
    def taken(self) -> tuple[StoredItem, ...]:
        return () if self.lease is None else self.items[: self.lease.count]

    @property
    def waiting(self) -> tuple[StoredItem, ...]:
        return self.items if self.lease is None else self.items[self.lease.count :]

    @property
    def length(self) -> int:
        """The number of waiting items, without those of a leased batch."""
        return len(self.items) - (0 if self.lease is None else self.lease.count)


def unused(inbox_id: str) -> Inbox:
    """Return an inbox that was never written. Raises InvalidInbox."""
    check_inbox_id(inbox_id)
    return Inbox(id=inbox_id)


def outlined(head: Inbox, seqs: Iterable[int]) -> Inbox:
    """Return an inbox with placeholder items, of which only the seqs are known."""
    items = (StoredItem(id=f"q-{seq}", seq=seq, enqueued_at=0, kind=ItemKind.MESSAGE, content="") for seq in seqs)
    return structs.replace(head, items=tuple(items))


class InboxSummary(Struct, frozen=True, kw_only=True):
    """An inbox in a list."""

    id: str
    version: int
    waiting: int  # items not taken
    taken: int  # items of the leased batch
    consumer: str | None
    holder: str | None  # of the leased batch
    held_until: int | None  # steady time at which the lease expires
    since: int | None  # when the oldest item was put in
    returns: int
    written_at: int
    owner: str | None = None


def summary_of(head: Inbox, *, items: int, since: int | None, written_at: int) -> InboxSummary:
    """Return the summary of an inbox that was read without its items."""
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
        owner=head.owner,
    )


def stale(change: "InboxChange[object]") -> StaleWrite:
    """Build the error for an inbox that has changed since it was read."""
    return StaleWrite(f"the inbox {change.before.id} has changed since it was read; read it again and decide again")


def unreadable(inbox_id: str, error: Exception) -> StoreCorrupt:
    """Build the error for an inbox that cannot be decoded."""
    return StoreCorrupt(
        f"the inbox {inbox_id} cannot be read ({error})",
        advice=f"`ade inbox clear {inbox_id} --reason error` removes all its items without reading them; if that does"
        " not help either, restore the store from a backup",
    )


class InboxChange(Struct, Generic[Answer_co], frozen=True, kw_only=True):
    """A decided change. It is written if the inbox still has the version of `before`; then its notices are sent."""

    before: Inbox
    after: Inbox
    notices: tuple[Notice, ...]
    answer: Answer_co

    @property
    def is_written(self) -> bool:
        """Whether there is anything to write, to the inbox or to the event log."""
        return self.after.version != self.before.version

    @property
    def added(self) -> tuple[StoredItem, ...]:
        return tuple(item for item in self.after.items if item.seq > self.before.last_item)

    @property
    def removed(self) -> tuple[StoredItem, ...]:
        remaining = {item.seq for item in self.after.items}
        return tuple(item for item in self.before.items if item.seq not in remaining)


def changed(inbox: Inbox, answer: Other, *notices: Notice, **fields: object) -> InboxChange[Other]:
    """Build an InboxChange; all code must use this. The version increases if a field changes or there is a notice.

    When no item is left waiting, the reported blocking reason is cleared, so that it is reported again next time.
    """
    is_different = bool(notices) or any(getattr(inbox, name) != value for name, value in fields.items())
    after = structs.replace(inbox, version=inbox.version + 1, **fields) if is_different else inbox
    if after.told is not None and after.length == 0:
        after = structs.replace(after, told=None)
    return InboxChange(before=inbox, after=after, notices=notices, answer=answer)


def joined(first: InboxChange[object], second: InboxChange[Other]) -> InboxChange[Other]:
    """Combine two changes into one atomic write."""
    is_written = first.is_written or second.is_written
    version = first.before.version + 1 if is_written else first.before.version
    return InboxChange(
        before=first.before,
        after=structs.replace(second.after, version=version),
        notices=(*first.notices, *second.notices),
        answer=second.answer,
    )


def batch_of(inbox: Inbox) -> ItemBatch | None:
    """Return the leased batch as its holder received it; None without a lease."""
    if inbox.lease is None:
        return None
    return ItemBatch(
        batch_id=inbox.lease.batch_id,
        items=inbox.taken,
        merged_count=inbox.lease.count,
        queue_len_after=inbox.length,
    )


# Event log entries: what happened to items, never their content.


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
    """Return the event log entries for these notices."""
    return [
        Event(type=EVENT_OF[type(notice)], at=at, payload={"inbox_id": inbox_id, **_payload(notice)})
        for notice in notices
    ]


def _payload(notice: Notice) -> dict[str, object]:
    """Return the fields of the agents' own protocol, extended to notices that it does not cover."""
    match notice:
        case ItemEnqueued(item, queue_len) | ItemRemoved(item, queue_len):
            return {**_item(item), "queue_len": queue_len}
        case ItemDropped(item, reason, queue_len):
            return {**_item(item), "reason": reason.value, "queue_len": queue_len}
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
