"""Pure rules of inboxes: enqueue, dequeue, leased batches, restart limits, and turns of an agent.

Each function returns a decided change and does no I/O.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from ade.agents.conversations.inbox import (
    IS_RESET,
    TURN,
    BatchConfirmed,
    BatchDequeued,
    BatchLease,
    BatchReturned,
    BlockedReason,
    ClearReason,
    DropReason,
    Inbox,
    InboxBlocked,
    InboxChange,
    InboxCleared,
    ItemDropped,
    ItemEnqueued,
    ItemRemoved,
    Notice,
    ReturnReason,
    batch_of,
    changed,
    joined,
)
from ade.agents.conversations.model import (
    COALESCABLE,
    InboxLimits,
    ItemBatch,
    ItemKind,
    NewItem,
    Part,
    StoredItem,
    check_consumer,
    check_item,
    check_memory,
    head_run,
    numbered,
)
from ade.errors import StaleLease
from ade.failures import Backoff

MOST_KEYS = 200  # remembered per inbox


class DuplicateItem(Struct, frozen=True):
    """An item with this key was put in before, and might have left since."""

    key: str


Put = StoredItem | DuplicateItem | None  # None: rejected


def enqueue(inbox: Inbox, new: NewItem, *, limits: InboxLimits | None = None, now: int) -> InboxChange[Put]:
    """Append an item; None at the hard limit. Raises InvalidInboxItem.

    If its key is among the newest, nothing changes and no notice is sent: DuplicateItem. A rejected item leaves no key.

    Given limits replace those of the inbox, for all writers; otherwise the stored ones apply.

    At the soft limit, a coalescable item evicts the oldest waiting coalescable one. If there is none, and for barriers,
    the inbox grows up to the hard limit.
    """
    check_item(new)
    if new.key is not None and new.key in inbox.keys:
        return changed(inbox, DuplicateItem(new.key))
    item = numbered(new, inbox.last_item + 1, now)
    own = inbox.limits if limits is None else limits
    limits = own or InboxLimits()
    if _is_full(inbox, limits):
        notice = ItemDropped(item, DropReason.BUFFER_LIMIT, inbox.length)
        return changed(inbox, None, notice, last_item=item.seq, limits=own)
    keys = inbox.keys if new.key is None else (*inbox.keys, new.key)[-MOST_KEYS:]
    dropped = _makes_room(inbox, item, limits)
    notices: tuple[Notice, ...] = (ItemEnqueued(item, inbox.length + 1),)
    remaining = inbox.items
    if dropped is not None:
        notices = ItemDropped(dropped, DropReason.BUFFER_LIMIT, inbox.length), ItemEnqueued(item, inbox.length)
        remaining = _without(inbox, dropped)
    fields = {"items": (*remaining, item), "last_item": item.seq, "keys": keys, "limits": own}
    if not inbox.last_item:
        fields["owner"] = new.author
    return changed(inbox, item, *notices, **fields)


def _is_full(inbox: Inbox, limits: InboxLimits) -> bool:
    """Count waiting items, and cap the total, so that a batch that fails repeatedly cannot grow without bound."""
    return inbox.length >= limits.hard_max_items or len(inbox.items) >= 2 * limits.hard_max_items


def _makes_room(inbox: Inbox, item: StoredItem, limits: InboxLimits) -> StoredItem | None:
    if inbox.length < limits.max_items or not item.is_coalescable:
        return None
    return next((one for one in inbox.waiting if one.is_coalescable), None)


def _without(inbox: Inbox, item: StoredItem) -> tuple[StoredItem, ...]:
    return tuple(one for one in inbox.items if one.seq != item.seq)


def try_dequeue(inbox: Inbox, reason: BlockedReason | None) -> InboxChange[ItemBatch | None]:
    """Take the next batch: the leading coalescable items of one scope, or one barrier.

    None if there is none, or a reason blocks it, which is then reported if it is new. A leased batch blocks too.
    """
    opened = pass_gate(inbox, reason)
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _leave(opened.after, count))


def consume_items(inbox: Inbox, count: int) -> InboxChange[ItemBatch | None]:
    """Take exactly the first `count` items, or all if there are fewer, of any kind and scope.

    None if there are none, if `count` is not positive, and while a batch is leased.
    """
    return changed(inbox, None) if inbox.lease is not None else _leave(inbox, min(count, inbox.length))


def pass_gate(inbox: Inbox, reason: BlockedReason | None) -> InboxChange[bool]:
    """Return whether a batch can be taken. If not, the reason is reported once per reason and per group of arriving
    items.

    A pass resets what was reported, even if there is nothing to take.
    """
    if inbox.lease is not None and reason is None:
        reason = BlockedReason.RUNTIME_BUSY
    if reason is None:
        return changed(inbox, True, told=None)
    if inbox.length == 0 or reason == inbox.told:
        return changed(inbox, False)
    return changed(inbox, False, InboxBlocked(reason, inbox.length), told=reason)


def next_batch(inbox: Inbox, count: int) -> ItemBatch:
    """Return the batch of the first `count` waiting items."""
    return ItemBatch(
        batch_id=f"batch-{inbox.last_batch + 1}",
        items=inbox.waiting[:count],
        merged_count=count,
        queue_len_after=inbox.length - count,
    )


def _leave(inbox: Inbox, count: int) -> InboxChange[ItemBatch | None]:
    if count <= 0:
        return changed(inbox, None)
    batch = next_batch(inbox, count)
    return changed(inbox, batch, BatchDequeued(batch), items=inbox.items[count:], last_batch=inbox.last_batch + 1)


def reset_blocked_state(inbox: Inbox) -> InboxChange[None]:
    """Report the next blocking reason even if it is the same, because the consumer is idle."""
    return changed(inbox, None, told=None)


def remove(inbox: Inbox, item_id: str) -> InboxChange[StoredItem | None]:
    """Remove a waiting item; None if it is not waiting."""
    item = next((one for one in inbox.waiting if one.id == item_id), None)
    if item is None:
        return changed(inbox, None)
    return changed(inbox, item, ItemRemoved(item, inbox.length - 1), items=_without(inbox, item))


def clear(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[StoredItem, ...]]:
    """Remove all waiting items, with a notice even if there are none. A leased batch stays with its holder."""
    cleared = inbox.waiting
    notice = InboxCleared(reason, len(cleared), cleared)
    return changed(inbox, cleared, notice, items=inbox.taken, told=None)


def bind(inbox: Inbox, consumer: str | None) -> InboxChange[None]:
    """Set the consumer; None: no automatic processing. Raises InvalidInbox.

    A different consumer erases the memory of the previous one.
    """
    if consumer is not None:
        check_consumer(consumer)
    is_another = inbox.consumer not in (None, consumer)
    return changed(inbox, None, consumer=consumer, memory={} if is_another else inbox.memory)


def reset(inbox: Inbox) -> InboxChange[bool]:
    """Erase the consumer's memory, so that the next turn starts from scratch; False while a batch is leased.

    The lease holder would overwrite it. The mark of an in-flight turn stays, because it prevents duplicate delivery. It
    is flagged, so that what this turn reports is not remembered either.
    """
    if inbox.lease is not None:
        return changed(inbox, False)
    mark = inbox.memory.get(TURN)
    remaining = {TURN: {**mark, IS_RESET: True}} if isinstance(mark, dict) else {}
    return changed(inbox, True, memory=remaining, returns=0)


def discard(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[StoredItem, ...]]:
    """Remove all items, including a leased batch: for an inbox whose items are unreadable."""
    notice = InboxCleared(reason, len(inbox.items), inbox.items)
    return changed(inbox, inbox.items, notice, items=(), lease=None, told=None)


# Leased batches: leased when taken, removed when confirmed, and otherwise back at the head.
#
# An inbox has one leased batch at a time; otherwise a returned batch could follow a later one. The lease ID is the
# fencing token for all of its holder's operations. Repeating a claim or a confirmation with the same ID is harmless,
# for callers that lost the response.


class BatchClaimant(Struct, frozen=True, kw_only=True):
    """Who claims a batch, for how long, and the current steady time. `lease_id` is random and used only once."""

    lease_id: str
    holder: str
    lease_ms: int
    steady: int
    judged: int | None = None  # the time by which earlier leases are judged, if it is another

    @property
    def until(self) -> int:
        return self.steady + self.lease_ms


def take(inbox: Inbox, taker: BatchClaimant, reason: BlockedReason | None = None) -> InboxChange[ItemBatch | None]:
    """As `try_dequeue`, with a lease. A batch with an expired lease is returned first, and can be claimed immediately.

    Newer items can then join it, as if it had never been taken.
    """
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady if taker.judged is None else taker.judged)
    opened = joined(freed, pass_gate(freed.after, reason))
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _lease(opened.after, taker, count))


def take_items(inbox: Inbox, taker: BatchClaimant, count: int) -> InboxChange[ItemBatch | None]:
    """As `consume_items`, with a lease."""
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady if taker.judged is None else taker.judged)
    if freed.after.lease is not None:
        return joined(freed, changed(freed.after, None))
    return joined(freed, _lease(freed.after, taker, min(count, freed.after.length)))


def _is_held_by(inbox: Inbox, lease_id: str) -> bool:
    return inbox.lease is not None and inbox.lease.id == lease_id


def _held(inbox: Inbox, taker: BatchClaimant) -> InboxChange[ItemBatch | None]:
    """Return the same batch again, for a caller that lost the response."""
    renewed = renew(inbox, taker.lease_id, lease_ms=taker.lease_ms, steady=taker.steady)
    return joined(renewed, changed(renewed.after, batch_of(renewed.after)))


def _lease(inbox: Inbox, taker: BatchClaimant, count: int) -> InboxChange[ItemBatch | None]:
    if count <= 0:
        return changed(inbox, None)
    if taker.lease_id == inbox.confirmed:
        raise StaleLease(f"the lease {taker.lease_id} was used for a batch that is confirmed; take with a new one")
    batch = next_batch(inbox, count)
    lease = BatchLease(
        id=taker.lease_id,
        holder=taker.holder,
        batch_id=batch.batch_id,
        count=count,
        until=taker.until,
        consumer=inbox.consumer,
    )
    return changed(inbox, batch, BatchDequeued(batch), lease=lease, last_batch=inbox.last_batch + 1)


def renew(inbox: Inbox, lease_id: str, *, lease_ms: int, steady: int) -> InboxChange[BatchLease]:
    """Extend the lease, even an expired one if the batch was not yet returned. Raises StaleLease."""
    lease, _ = _own(inbox, lease_id)
    renewed = structs.replace(lease, until=max(lease.until, steady + lease_ms))
    return changed(inbox, renewed, lease=renewed)


def remember(inbox: Inbox, lease_id: str, memory: dict[str, Any]) -> InboxChange[None]:
    """Set `Inbox.memory` for the next batch. Raises StaleLease and InvalidInbox."""
    lease, _ = _own(inbox, lease_id)
    return changed(inbox, None, memory=_next_memory(inbox, lease, memory))


def confirm(inbox: Inbox, lease_id: str, memory: dict[str, Any] | None = None) -> InboxChange[ItemBatch | None]:
    """Remove the batch for good, because its effects are stored. Raises StaleLease.

    A memory is stored in the same write. Repeated for the same batch, it returns None and changes nothing.
    """
    if lease_id == inbox.confirmed and not _is_held_by(inbox, lease_id):
        return changed(inbox, None)
    lease, batch = _own(inbox, lease_id)
    return changed(
        inbox,
        batch,
        BatchConfirmed(batch),
        items=inbox.waiting,
        lease=None,
        returns=0,
        confirmed=lease_id,
        memory=_next_memory(inbox, lease, memory),
    )


def _next_memory(inbox: Inbox, lease: BatchLease, memory: dict[str, Any] | None) -> dict[str, Any]:
    """Return the new memory. It belongs to the consumer, so a consumer that was replaced cannot write it."""
    if memory is None or lease.consumer != inbox.consumer:
        return inbox.memory
    check_memory(memory)
    return memory


def give_back(inbox: Inbox, lease_id: str, reason: ReturnReason) -> InboxChange[ItemBatch]:
    """Return an unfinished batch to the head, in order. Raises StaleLease.

    Limits do not apply, so that nothing is lost. `Inbox.returns` counts consecutive returns.
    """
    _, batch = _own(inbox, lease_id)
    return _returned(inbox, batch, reason)


def give_up(
    inbox: Inbox, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None
) -> InboxChange[ItemBatch]:
    """Discard the batch: its items are removed, and reported as cleared. Raises StaleLease.

    A memory is stored in the same write. A batch discarded after an error counts as returned.
    """
    lease, batch = _own(inbox, lease_id)
    return changed(
        inbox,
        batch,
        InboxCleared(reason, batch.merged_count, batch.items),
        items=inbox.waiting,
        lease=None,
        returns=inbox.returns + 1 if reason is ClearReason.ERROR else 0,
        memory=_next_memory(inbox, lease, memory),
    )


def expire(inbox: Inbox, *, steady: int) -> InboxChange[ItemBatch | None]:
    """Return a batch with an expired lease to the head. None if there is no such batch."""
    batch = batch_of(inbox)
    if inbox.lease is None or batch is None or inbox.lease.until > steady:
        return changed(inbox, None)
    return _returned(inbox, batch, ReturnReason.LOST)


def _returned(inbox: Inbox, batch: ItemBatch, reason: ReturnReason) -> InboxChange[ItemBatch]:
    returns = inbox.returns if reason is ReturnReason.RELEASED else inbox.returns + 1
    return changed(inbox, batch, BatchReturned(batch, reason, len(inbox.items)), lease=None, returns=returns)


def _own(inbox: Inbox, lease_id: str) -> tuple[BatchLease, ItemBatch]:
    batch = batch_of(inbox)
    if inbox.lease is None or batch is None or inbox.lease.id != lease_id:
        raise StaleLease(f"this batch of the inbox {inbox.id} is no longer held under the lease {lease_id}")
    return inbox.lease, batch


# Restart limits: a maximum of failures per window, and in a row; then the conversation rests.
#
# A flat cap would stop a conversation for good after enough failures. With a window, it resumes once failures stop.


class RestartLimits(Struct, frozen=True, kw_only=True):
    """How often a failing conversation is retried."""

    most: int = 10  # failures in any window
    window_ms: int = 60_000
    most_in_a_row: int = 5  # then it rests for a whole window before each further attempt
    pause: Backoff = Backoff(base_ms=500, cap_ms=15_000)  # after each failure, before a limit is reached


class Restarts(Struct, frozen=True, kw_only=True):
    """The failures of one conversation; times are in ms of a steady clock."""

    failed_at: tuple[int, ...] = ()  # newest failures, in order; no more than `most` of the limits
    in_a_row: int = 0


FRESH = Restarts()


def failed(restarts: Restarts, limits: RestartLimits, now: int) -> Restarts:
    """Record a failure."""
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=restarts.in_a_row + 1)


def succeeded(restarts: Restarts) -> Restarts:
    """Reset the row, but not the window; otherwise every second attempt could fail indefinitely."""
    return Restarts(failed_at=restarts.failed_at)


def inherited(restarts: Restarts, returns: int, limits: RestartLimits, now: int) -> Restarts:
    """Count failures in other processes once there were several in a row, because the batch might crash its process.

    `returns` is the stored count, `Inbox.returns`. The time of the last one is unknown, so it counts from now.
    """
    if returns < limits.most_in_a_row or restarts.in_a_row >= limits.most_in_a_row:
        return restarts
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=returns)


def next_try(restarts: Restarts, limits: RestartLimits, randomness: float = 0.5) -> int:
    """Return the earliest time of the next attempt; in the past if there is nothing to wait for."""
    if not restarts.failed_at:
        return 0
    plain = restarts.failed_at[-1] + (limits.pause.delay_ms(restarts.in_a_row, randomness) if restarts.in_a_row else 0)
    return max(plain, _rest_until(restarts, limits))


def is_resting(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Return whether a limit is reached, not only the pause after a failure."""
    return _rest_until(restarts, limits) > now


def is_forgotten(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Return whether no failure counts any longer, so that the record can be dropped."""
    return restarts.in_a_row == 0 and all(moment + limits.window_ms <= now for moment in restarts.failed_at)


def _rest_until(restarts: Restarts, limits: RestartLimits) -> int:
    """Return the end of the rest; 0 if no limit is reached."""
    times, until = restarts.failed_at, 0
    if times and restarts.in_a_row >= limits.most_in_a_row:
        until = times[-1] + limits.window_ms
    if len(times) >= limits.most:
        until = max(until, times[-limits.most] + limits.window_ms)
    return until


# From items to one turn of an agent: how many to take, and their merged content.


SEPARATOR = "\n"
_IN_THE_WAY: Mapping[ItemKind, BlockedReason] = {
    ItemKind.APPROVAL_RESULT: BlockedReason.PENDING_APPROVALS,
    ItemKind.OVERLAY_ACTION: BlockedReason.OVERLAY_OPEN,
}


def turn_length(items: Sequence[StoredItem], waking: Collection[ItemKind] = COALESCABLE) -> int:
    """Return how many items the next turn takes; 0 if none of the next batch has a waking kind.

    A barrier at the head is a turn only for consumers that its kind wakes. Usually it is for the asker of a question.
    """
    run = items[: head_run(items)]
    return len(run) if any(item.kind in waking for item in run) else 0


def blocking_item(items: Sequence[StoredItem], waking: Collection[ItemKind] = COALESCABLE) -> BlockedReason | None:
    """Return why no turn can start though items wait: the first is for another consumer. None if not blocked."""
    if not items or turn_length(items, waking):
        return None
    return _IN_THE_WAY.get(items[0].kind, BlockedReason.RUNTIME_BUSY)


def merged_content(items: Sequence[StoredItem]) -> list[Part] | None:
    """Return the parts of one user turn, in order, with a separator between items; None for no items."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        if number:
            parts.append(_text(SEPARATOR))
        parts += _parts(item)
    return parts or None


def _parts(item: StoredItem) -> list[Part]:
    content = item.text if item.content is None else item.content
    return content if isinstance(content, list) else [_text(content or "")]


def _text(text: str) -> Part:
    return {"type": "text", "text": text}
