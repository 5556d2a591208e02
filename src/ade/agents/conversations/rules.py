"""What may be done with an inbox: put items in, take batches out, ask why not, remove and clear.

Here a batch that is taken is gone; `leasing` has the verbs for batches that must outlive their taker.
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

MOST_KEYS = 200  # remembered of one inbox


class DuplicateItem(Struct, frozen=True):
    """An item with this key was put in before, and may have left since."""

    key: str


Put = StoredItem | DuplicateItem | None  # None: refused


def enqueue(inbox: Inbox, new: NewItem, *, limits: InboxLimits | None = None, now: int) -> InboxChange[Put]:
    """Put an item at the end; None when the hard limit is reached. Raises InvalidInboxItem.

    Nothing is put in, and nothing told, when its key is among the newest: AlreadyThere. A refused item leaves no key.

    Limits that are given are those of the inbox from now on, whoever writes; otherwise those hold that it has.

    At the soft limit a coalescable item pushes out the oldest coalescable one that waits; where there is none, and for
    barriers, the inbox grows up to the hard limit.
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
    kept = inbox.items
    if dropped is not None:
        notices = ItemDropped(dropped, DropReason.BUFFER_LIMIT, inbox.length), ItemEnqueued(item, inbox.length)
        kept = _without(inbox, dropped)
    return changed(inbox, item, *notices, items=(*kept, item), last_item=item.seq, keys=keys, limits=own)


def _is_full(inbox: Inbox, limits: InboxLimits) -> bool:
    """Only those that wait count, up to as many again that are out: else what fails again and again has no end."""
    return inbox.length >= limits.hard_max_items or len(inbox.items) >= 2 * limits.hard_max_items


def _makes_room(inbox: Inbox, item: StoredItem, limits: InboxLimits) -> StoredItem | None:
    if inbox.length < limits.max_items or not item.is_coalescable:
        return None
    return next((one for one in inbox.waiting if one.is_coalescable), None)


def _without(inbox: Inbox, item: StoredItem) -> tuple[StoredItem, ...]:
    return tuple(one for one in inbox.items if one.seq != item.seq)


def try_dequeue(inbox: Inbox, reason: BlockedReason | None) -> InboxChange[ItemBatch | None]:
    """The next batch: the head's run of coalescable items of one scope, or one barrier.

    None when there is nothing, or with a reason not to; then the reason is told if that is news. A leased batch that
    is out is a reason too.
    """
    opened = pass_gate(inbox, reason)
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _leave(opened.after, count))


def consume_items(inbox: Inbox, count: int) -> InboxChange[ItemBatch | None]:
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
    return changed(inbox, False, InboxBlocked(reason, inbox.length), told=reason)


def next_batch(inbox: Inbox, count: int) -> ItemBatch:
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
    """The consumer is idle: whatever blocks it next is news."""
    return changed(inbox, None, told=None)


def remove(inbox: Inbox, item_id: str) -> InboxChange[StoredItem | None]:
    """Take one item out that waits; None when it does not, or not any more."""
    item = next((one for one in inbox.waiting if one.id == item_id), None)
    if item is None:
        return changed(inbox, None)
    return changed(inbox, item, ItemRemoved(item, inbox.length - 1), items=_without(inbox, item))


def clear(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[StoredItem, ...]]:
    """Remove all that wait; it is told even if there are none. A leased batch that is out is its holder's affair."""
    cleared = inbox.waiting
    notice = InboxCleared(reason, len(cleared), cleared)
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


def discard(inbox: Inbox, reason: ClearReason) -> InboxChange[tuple[StoredItem, ...]]:
    """Remove all items, also those of a batch that is out: for an inbox whose items nobody can read."""
    notice = InboxCleared(reason, len(inbox.items), inbox.items)
    return changed(inbox, inbox.items, notice, items=(), lease=None, told=None)


# Batches that outlive their taker: leased when taken, gone when confirmed, and back at the head otherwise.
#
# One batch of an inbox is out at a time, or a batch that came back could come after a later one. Every verb of a
# holder is fenced by the id of its lease. To take or to confirm once more under the same id is harmless, for those
# who did not hear the answer.


class BatchClaimant(Struct, frozen=True, kw_only=True):
    """Who takes a batch, for how long, and the steady time now. `lease_id` is random and used for one batch only."""

    lease_id: str
    holder: str
    lease_ms: int
    steady: int

    @property
    def until(self) -> int:
        return self.steady + self.lease_ms


def take(inbox: Inbox, taker: BatchClaimant, reason: BlockedReason | None = None) -> InboxChange[ItemBatch | None]:
    """As `try_dequeue`, with a lease. A batch whose lease has run out goes back first, and may be taken at once.

    It may then be joined by items that came after it, as if it had never left.
    """
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady)
    opened = joined(freed, pass_gate(freed.after, reason))
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _lease(opened.after, taker, count))


def take_items(inbox: Inbox, taker: BatchClaimant, count: int) -> InboxChange[ItemBatch | None]:
    """As `consume_items`, with a lease."""
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady)
    if freed.after.lease is not None:
        return joined(freed, changed(freed.after, None))
    return joined(freed, _lease(freed.after, taker, min(count, freed.after.length)))


def _is_held_by(inbox: Inbox, lease_id: str) -> bool:
    return inbox.lease is not None and inbox.lease.id == lease_id


def _held(inbox: Inbox, taker: BatchClaimant) -> InboxChange[ItemBatch | None]:
    """The answer was lost on its way: the same batch once more."""
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
    """Set the lease anew, also one that ran out as long as nobody has noticed. Raises StaleLease."""
    lease, _ = _own(inbox, lease_id)
    renewed = structs.replace(lease, until=max(lease.until, steady + lease_ms))
    return changed(inbox, renewed, lease=renewed)


def remember(inbox: Inbox, lease_id: str, memory: dict[str, Any]) -> InboxChange[None]:
    """What whoever takes the next batch shall find in `Inbox.memory`. Raises StaleLease and InvalidInbox."""
    lease, _ = _own(inbox, lease_id)
    return changed(inbox, None, memory=_kept(inbox, lease, memory))


def confirm(inbox: Inbox, lease_id: str, memory: dict[str, Any] | None = None) -> InboxChange[ItemBatch | None]:
    """What the batch led to is stored: its items are gone for good. Raises StaleLease.

    With a memory, that is kept in the same step. Once more for the same batch: None, and nothing changes.
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
        memory=_kept(inbox, lease, memory),
    )


def _kept(inbox: Inbox, lease: BatchLease, memory: dict[str, Any] | None) -> dict[str, Any]:
    """The memory afterwards. It is the consumer's: one that was replaced meanwhile has nothing to say any more."""
    if memory is None or lease.consumer != inbox.consumer:
        return inbox.memory
    check_memory(memory)
    return memory


def give_back(inbox: Inbox, lease_id: str, reason: ReturnReason) -> InboxChange[ItemBatch]:
    """The batch was not finished: its items are the first to be taken again, in their order. Raises StaleLease.

    No limit counts here, so that nothing is lost. `Inbox.returns` tells how often that happened in a row.
    """
    _, batch = _own(inbox, lease_id)
    return _returned(inbox, batch, reason)


def give_up(
    inbox: Inbox, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None
) -> InboxChange[ItemBatch]:
    """The batch shall not be tried again: its items are gone, and told as cleared. Raises StaleLease.

    With a memory, that is kept in the same step. What is given up for an error counts as one that came back.
    """
    lease, batch = _own(inbox, lease_id)
    return changed(
        inbox,
        batch,
        InboxCleared(reason, batch.merged_count, batch.items),
        items=inbox.waiting,
        lease=None,
        returns=inbox.returns + 1 if reason is ClearReason.ERROR else 0,
        memory=_kept(inbox, lease, memory),
    )


def expire(inbox: Inbox, *, steady: int) -> InboxChange[ItemBatch | None]:
    """The sweep: a batch whose holder went silent goes back to the head. None when there is no such batch."""
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


# How often what fails may be tried again: so many times in a window, and so many in a row; then it rests.
#
# A flat cap would end a conversation for good after enough bad days; a window lets it go on as soon as that is over.


class RestartLimits(Struct, frozen=True, kw_only=True):
    most: int = 10  # failures in any window
    window_ms: int = 60_000
    most_in_a_row: int = 5  # then it rests for a whole window before each further try
    pause: Backoff = Backoff(base_ms=500, cap_ms=15_000)  # after each failure, before a limit is reached


class Restarts(Struct, frozen=True, kw_only=True):
    """What is known of the failures of one conversation; times are milliseconds of one steady clock."""

    failed_at: tuple[int, ...] = ()  # the newest, oldest first; no more than the window can hold
    in_a_row: int = 0


FRESH = Restarts()


def failed(restarts: Restarts, limits: RestartLimits, now: int) -> Restarts:
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=restarts.in_a_row + 1)


def succeeded(restarts: Restarts) -> Restarts:
    """A row ends with each success; the window does not, or every second try could fail for ever."""
    return Restarts(failed_at=restarts.failed_at)


def inherited(restarts: Restarts, returns: int, limits: RestartLimits, now: int) -> Restarts:
    """What failed elsewhere counts too once that was a row: perhaps it ends whoever takes it.

    `returns` is the stored count, `Inbox.returns`. When the last of them was is not known, so it counts from now.
    """
    if returns < limits.most_in_a_row or restarts.in_a_row >= limits.most_in_a_row:
        return restarts
    return Restarts(failed_at=(*restarts.failed_at, now)[-limits.most :], in_a_row=returns)


def next_try(restarts: Restarts, limits: RestartLimits, randomness: float = 0.5) -> int:
    """The moment from which it may be tried; it lies in the past when there is nothing to wait for."""
    if not restarts.failed_at:
        return 0
    plain = restarts.failed_at[-1] + (limits.pause.delay_ms(restarts.in_a_row, randomness) if restarts.in_a_row else 0)
    return max(plain, _rest_until(restarts, limits))


def is_resting(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Whether a limit is reached, and not just the pause after a failure."""
    return _rest_until(restarts, limits) > now


def is_forgotten(restarts: Restarts, limits: RestartLimits, now: int) -> bool:
    """Whether nothing of it counts any more, so that nobody needs to keep it."""
    return restarts.in_a_row == 0 and all(moment + limits.window_ms <= now for moment in restarts.failed_at)


def _rest_until(restarts: Restarts, limits: RestartLimits) -> int:
    """0 when no limit is reached."""
    times, until = restarts.failed_at, 0
    if times and restarts.in_a_row >= limits.most_in_a_row:
        until = times[-1] + limits.window_ms
    if len(times) >= limits.most:
        until = max(until, times[-limits.most] + limits.window_ms)
    return until


# From items to one turn of an agent: how many to take, what they say together, and whose envelope it is in.


SEPARATOR = "\n"
_IN_THE_WAY: Mapping[ItemKind, BlockedReason] = {
    ItemKind.APPROVAL_RESULT: BlockedReason.PENDING_APPROVALS,
    ItemKind.OVERLAY_ACTION: BlockedReason.OVERLAY_OPEN,
}
MESSAGES_ONLY = frozenset({ItemKind.MESSAGE})  # what woke a listener at first: notifications alone never did


def turn_length(items: Sequence[StoredItem], waking: Collection[ItemKind] = COALESCABLE) -> int:
    """How many items to consume for the next turn; 0 when none of the head's run is of a kind that wakes.

    A barrier at the head is a turn only for those whom its kind wakes: mostly it is for whoever asked the question.
    """
    run = items[: head_run(items)]
    return len(run) if any(item.kind in waking for item in run) else 0


def blocking_item(items: Sequence[StoredItem], waking: Collection[ItemKind] = COALESCABLE) -> BlockedReason | None:
    """Why there is no turn to take though items wait: the first one is an answer for whoever asked. None: there is."""
    if not items or turn_length(items, waking):
        return None
    return _IN_THE_WAY.get(items[0].kind, BlockedReason.RUNTIME_BUSY)


def merged_content(items: Sequence[StoredItem], separator: str = SEPARATOR) -> list[Part] | None:
    """The parts of one user turn, in order, with a separator between the items; None for no items."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        if number:
            parts.append(_text(separator))
        parts += _parts(item)
    return parts or None


def envelope_of(items: Sequence[StoredItem]) -> StoredItem | None:
    """The first message: who sent it, and under which id, holds for the whole turn. None without a message."""
    return next((item for item in items if item.kind == ItemKind.MESSAGE), None)


def _parts(item: StoredItem) -> list[Part]:
    content = item.text if item.content is None else item.content
    return content if isinstance(content, list) else [_text(content or "")]


def _text(text: str) -> Part:
    return {"type": "text", "text": text}
