"""What may be done with an inbox: put items in, take batches out, ask why not, remove and clear.

Here a batch that is taken is gone; `leasing` has the verbs for batches that must outlive their taker.
"""

from msgspec import Struct

from ade.core.inbox.items import DequeuedBatch, NewItem, QueueItem, check_item, head_run, numbered
from ade.core.inbox.limits import InboxLimits
from ade.core.inbox.names import check_consumer
from ade.core.inbox.notices import (
    Blocked,
    BlockedReason,
    Cleared,
    ClearReason,
    Dequeued,
    Dropped,
    DropReason,
    Enqueued,
    Notice,
    Removed,
)
from ade.core.inbox.state import IS_RESET, TURN, Inbox, InboxChange, changed, joined

MOST_KEYS = 200  # remembered of one inbox


class AlreadyThere(Struct, frozen=True):
    """An item with this key was put in before, and may have left since."""

    key: str


Put = QueueItem | AlreadyThere | None  # None: refused


def enqueue(inbox: Inbox, new: NewItem, *, limits: InboxLimits | None = None, now: int) -> InboxChange[Put]:
    """Put an item at the end; None when the hard limit is reached. Raises InvalidInboxItem.

    Nothing is put in, and nothing told, when its key is among the newest: AlreadyThere. A refused item leaves no key.

    Limits that are given are those of the inbox from now on, whoever writes; otherwise those hold that it has.

    At the soft limit a coalescable item pushes out the oldest coalescable one that waits; where there is none, and for
    barriers, the inbox grows up to the hard limit.
    """
    check_item(new)
    if new.key is not None and new.key in inbox.keys:
        return changed(inbox, AlreadyThere(new.key))
    item = numbered(new, inbox.last_item + 1, now)
    own = inbox.limits if limits is None else limits
    limits = own or InboxLimits()
    if _is_full(inbox, limits):
        notice = Dropped(item, DropReason.BUFFER_LIMIT, inbox.length)
        return changed(inbox, None, notice, last_item=item.seq, limits=own)
    keys = inbox.keys if new.key is None else (*inbox.keys, new.key)[-MOST_KEYS:]
    dropped = _makes_room(inbox, item, limits)
    notices: tuple[Notice, ...] = (Enqueued(item, inbox.length + 1),)
    kept = inbox.items
    if dropped is not None:
        notices = Dropped(dropped, DropReason.BUFFER_LIMIT, inbox.length), Enqueued(item, inbox.length)
        kept = _without(inbox, dropped)
    return changed(inbox, item, *notices, items=(*kept, item), last_item=item.seq, keys=keys, limits=own)


def _is_full(inbox: Inbox, limits: InboxLimits) -> bool:
    """Only those that wait count, up to as many again that are out: else what fails again and again has no end."""
    return inbox.length >= limits.hard_max_items or len(inbox.items) >= 2 * limits.hard_max_items


def _makes_room(inbox: Inbox, item: QueueItem, limits: InboxLimits) -> QueueItem | None:
    if inbox.length < limits.max_items or not item.is_coalescable:
        return None
    return next((one for one in inbox.waiting if one.is_coalescable), None)


def _without(inbox: Inbox, item: QueueItem) -> tuple[QueueItem, ...]:
    return tuple(one for one in inbox.items if one.seq != item.seq)


def try_dequeue(inbox: Inbox, reason: BlockedReason | None) -> InboxChange[DequeuedBatch | None]:
    """The next batch: the head's run of coalescable items of one scope, or one barrier.

    None when there is nothing, or with a reason not to; then the reason is told if that is news. A leased batch that
    is out is a reason too.
    """
    opened = pass_gate(inbox, reason)
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _leave(opened.after, count))


def consume_items(inbox: Inbox, count: int) -> InboxChange[DequeuedBatch | None]:
    """Exactly the first `count` items, or all if there are fewer, whatever their kinds and scopes.

    None when there is nothing, when it is asked for nothing, and while a leased batch is out.
    """
    return changed(inbox, None) if inbox.lease is not None else _leave(inbox, min(count, inbox.length))


def pass_gate(inbox: Inbox, reason: BlockedReason | None) -> InboxChange[bool]:
    """Whether a batch may be taken. If not, it is told once for each reason and each time that items came.

    Whoever may pass makes all of that forgotten, even when there is nothing to take.
    """
    if inbox.lease is not None and reason is None:
        reason = BlockedReason.RUNTIME_BUSY
    if reason is None:
        return changed(inbox, True, told=None)
    if inbox.length == 0 or reason == inbox.told:
        return changed(inbox, False)
    return changed(inbox, False, Blocked(reason, inbox.length), told=reason)


def next_batch(inbox: Inbox, count: int) -> DequeuedBatch:
    return DequeuedBatch(
        batch_id=f"batch-{inbox.last_batch + 1}",
        items=inbox.waiting[:count],
        merged_count=count,
        queue_len_after=inbox.length - count,
    )


def _leave(inbox: Inbox, count: int) -> InboxChange[DequeuedBatch | None]:
    if count <= 0:
        return changed(inbox, None)
    batch = next_batch(inbox, count)
    return changed(inbox, batch, Dequeued(batch), items=inbox.items[count:], last_batch=inbox.last_batch + 1)


def reset_blocked_state(inbox: Inbox) -> InboxChange[None]:
    """The consumer is idle: whatever blocks it next is news."""
    return changed(inbox, None, told=None)


def remove(inbox: Inbox, item_id: str) -> InboxChange[QueueItem | None]:
    """Take one item out that waits; None when it does not, or not any more."""
    item = next((one for one in inbox.waiting if one.id == item_id), None)
    if item is None:
        return changed(inbox, None)
    return changed(inbox, item, Removed(item, inbox.length - 1), items=_without(inbox, item))


def clear(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[QueueItem, ...]]:
    """Remove all that wait; it is told even if there are none. A leased batch that is out is its holder's affair."""
    cleared = inbox.waiting
    notice = Cleared(reason, len(cleared), cleared)
    return changed(inbox, cleared, notice, items=inbox.taken, told=None)


def bind(inbox: Inbox, consumer: str | None) -> InboxChange[None]:
    """Say who feeds on it; None: nobody by itself. Raises InvalidInbox.

    What one consumer remembers is nothing to another: it is forgotten when that one comes in its place.
    """
    if consumer is not None:
        check_consumer(consumer)
    is_another = inbox.consumer not in (None, consumer)
    return changed(inbox, None, consumer=consumer, memory={} if is_another else inbox.memory)


def reset(inbox: Inbox) -> InboxChange[bool]:
    """Forget what its consumer remembers, so that the next turn begins anew; False while a batch is out.

    Whoever has that would write what he remembers himself. The mark of a turn that was begun stays, because it keeps
    items from being told twice; it says that what this turn learns is to be forgotten too.
    """
    if inbox.lease is not None:
        return changed(inbox, False)
    mark = inbox.memory.get(TURN)
    kept = {TURN: {**mark, IS_RESET: True}} if isinstance(mark, dict) else {}
    return changed(inbox, True, memory=kept, returns=0)


def discard(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[QueueItem, ...]]:
    """Remove all items, also those of a batch that is out: for an inbox whose items nobody can read."""
    notice = Cleared(reason, len(inbox.items), inbox.items)
    return changed(inbox, inbox.items, notice, items=(), lease=None, told=None)
