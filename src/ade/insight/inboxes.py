"""Inboxes of conversations as people see them. The id of a lease is its holder's alone, and is not told."""

from typing import Any

from msgspec import Struct

from ade.core.inbox.items import NewItem, QueueItem
from ade.core.inbox.limits import InboxLimits
from ade.core.inbox.notices import BlockedReason
from ade.core.inbox.state import Inbox, InboxSummary


class InboxLine(Struct, frozen=True, kw_only=True):
    """An inbox in a list."""

    id: str
    waiting: int  # items nobody has taken
    taken: int  # items of the batch that is out
    returns: int
    written_at: int
    consumer: str | None = None
    holder: str | None = None  # of the batch that is out
    lease_ms: int | None = None  # what is left of its time; 0: it counts as returned
    oldest_at: int | None = None


class BatchOut(Struct, frozen=True, kw_only=True):
    batch_id: str
    holder: str
    lease_ms: int  # what is left of its time; 0: it counts as returned


class ItemView(QueueItem, frozen=True, kw_only=True, omit_defaults=True):
    is_taken: bool = False


class InboxView(Struct, frozen=True, kw_only=True):
    id: str
    version: int
    waiting: int
    taken: int
    returns: int
    items: tuple[ItemView, ...]
    consumer: str | None = None
    batch: BatchOut | None = None
    blocked: BlockedReason | None = None
    memory: dict[str, Any] = {}
    limits: InboxLimits | None = None  # None: the usual ones


class PutItem(Struct, frozen=True, kw_only=True):
    is_new: bool  # else an item with this key was put in before
    item_id: str | None = None
    key: str | None = None


class PutItems(Struct, frozen=True, kw_only=True):
    inbox_id: str
    items: list[PutItem]  # as they were sent
    is_fed: bool  # whether a live worker is there for its consumer, if it has one
    dropped: list[str] = []  # old items that gave way to these and are lost


class Cleared(Struct, frozen=True, kw_only=True):
    inbox_id: str
    cleared: list[str]


def line_of(one: InboxSummary, steady: int) -> InboxLine:
    return InboxLine(
        id=one.id,
        waiting=one.waiting,
        taken=one.taken,
        returns=one.returns,
        written_at=one.written_at,
        consumer=one.consumer,
        holder=one.holder,
        lease_ms=None if one.held_until is None else max(one.held_until - steady, 0),
        oldest_at=one.since,
    )


def view(found: Inbox, steady: int) -> InboxView:
    lease, taken = found.lease, len(found.taken)
    out = None
    if lease is not None:
        out = BatchOut(batch_id=lease.batch_id, holder=lease.holder, lease_ms=max(lease.until - steady, 0))
    return InboxView(
        id=found.id,
        version=found.version,
        waiting=found.length,
        taken=taken,
        returns=found.returns,
        items=tuple(_item(item, place < taken) for place, item in enumerate(found.items)),
        consumer=found.consumer,
        batch=out,
        blocked=found.told,
        memory=found.memory,
        limits=found.limits,
    )


def _item(item: QueueItem, is_taken: bool) -> ItemView:
    fields = {name: getattr(item, name) for name in NewItem.__struct_fields__}
    return ItemView(id=item.id, seq=item.seq, enqueued_at=item.enqueued_at, is_taken=is_taken, **fields)
