"""Batches that outlive their taker: leased when taken, gone when confirmed, and back at the head otherwise.

One batch of an inbox is out at a time, or a batch that came back could come after a later one. Every verb of a holder
is fenced by the id of its lease. To take or to confirm once more under the same id is harmless, for those who did not
hear the answer.
"""

from typing import Any

from msgspec import Struct, structs

from ade.core.errors import StaleLease
from ade.core.inbox.items import DequeuedBatch, head_run
from ade.core.inbox.names import check_memory
from ade.core.inbox.notices import (
    BlockedReason,
    Cleared,
    ClearReason,
    Confirmed,
    Dequeued,
    Returned,
    ReturnReason,
)
from ade.core.inbox.state import BatchLease, Inbox, InboxChange, batch_of, changed, joined
from ade.core.inbox.verbs import next_batch, pass_gate


class Taker(Struct, frozen=True, kw_only=True):
    """Who takes a batch, for how long, and the steady time now. `lease_id` is random and used for one batch only."""

    lease_id: str
    holder: str
    lease_ms: int
    steady: int

    @property
    def until(self) -> int:
        return self.steady + self.lease_ms


def take(inbox: Inbox, taker: Taker, reason: BlockedReason | None = None) -> InboxChange[DequeuedBatch | None]:
    """As `try_dequeue`, with a lease. A batch whose lease has run out goes back first, and may be taken at once.

    It may then be joined by items that came after it, as if it had never left.
    """
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady)
    opened = joined(freed, pass_gate(freed.after, reason))
    count = head_run(opened.after.waiting) if opened.answer else 0
    return joined(opened, _lease(opened.after, taker, count))


def take_items(inbox: Inbox, taker: Taker, count: int) -> InboxChange[DequeuedBatch | None]:
    """As `consume_items`, with a lease."""
    if _is_held_by(inbox, taker.lease_id):
        return _held(inbox, taker)
    freed = expire(inbox, steady=taker.steady)
    if freed.after.lease is not None:
        return joined(freed, changed(freed.after, None))
    return joined(freed, _lease(freed.after, taker, min(count, freed.after.length)))


def _is_held_by(inbox: Inbox, lease_id: str) -> bool:
    return inbox.lease is not None and inbox.lease.id == lease_id


def _held(inbox: Inbox, taker: Taker) -> InboxChange[DequeuedBatch | None]:
    """The answer was lost on its way: the same batch once more."""
    renewed = renew(inbox, taker.lease_id, lease_ms=taker.lease_ms, steady=taker.steady)
    return joined(renewed, changed(renewed.after, batch_of(renewed.after)))


def _lease(inbox: Inbox, taker: Taker, count: int) -> InboxChange[DequeuedBatch | None]:
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
    return changed(inbox, batch, Dequeued(batch), lease=lease, last_batch=inbox.last_batch + 1)


def renew(inbox: Inbox, lease_id: str, *, lease_ms: int, steady: int) -> InboxChange[BatchLease]:
    """Set the lease anew, also one that ran out as long as nobody has noticed. Raises StaleLease."""
    lease, _ = _own(inbox, lease_id)
    renewed = structs.replace(lease, until=max(lease.until, steady + lease_ms))
    return changed(inbox, renewed, lease=renewed)


def remember(inbox: Inbox, lease_id: str, memory: dict[str, Any]) -> InboxChange[None]:
    """What whoever takes the next batch shall find in `Inbox.memory`. Raises StaleLease and InvalidInbox."""
    lease, _ = _own(inbox, lease_id)
    return changed(inbox, None, memory=_kept(inbox, lease, memory))


def confirm(inbox: Inbox, lease_id: str, memory: dict[str, Any] | None = None) -> InboxChange[DequeuedBatch | None]:
    """What the batch led to is stored: its items are gone for good. Raises StaleLease.

    With a memory, that is kept in the same step. Once more for the same batch: None, and nothing changes.
    """
    if lease_id == inbox.confirmed and not _is_held_by(inbox, lease_id):
        return changed(inbox, None)
    lease, batch = _own(inbox, lease_id)
    return changed(
        inbox,
        batch,
        Confirmed(batch),
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


def give_back(inbox: Inbox, lease_id: str, reason: ReturnReason) -> InboxChange[DequeuedBatch]:
    """The batch was not finished: its items are the first to be taken again, in their order. Raises StaleLease.

    No limit counts here, so that nothing is lost. `Inbox.returns` tells how often that happened in a row.
    """
    _, batch = _own(inbox, lease_id)
    return _returned(inbox, batch, reason)


def give_up(
    inbox: Inbox, lease_id: str, reason: ClearReason, memory: dict[str, Any] | None = None
) -> InboxChange[DequeuedBatch]:
    """The batch shall not be tried again: its items are gone, and told as cleared. Raises StaleLease.

    With a memory, that is kept in the same step. What is given up for an error counts as one that came back.
    """
    lease, batch = _own(inbox, lease_id)
    return changed(
        inbox,
        batch,
        Cleared(reason, batch.merged_count, batch.items),
        items=inbox.waiting,
        lease=None,
        returns=inbox.returns + 1 if reason is ClearReason.ERROR else 0,
        memory=_kept(inbox, lease, memory),
    )


def expire(inbox: Inbox, *, steady: int) -> InboxChange[DequeuedBatch | None]:
    """The sweep: a batch whose holder went silent goes back to the head. None when there is no such batch."""
    batch = batch_of(inbox)
    if inbox.lease is None or batch is None or inbox.lease.until > steady:
        return changed(inbox, None)
    return _returned(inbox, batch, ReturnReason.LOST)


def _returned(inbox: Inbox, batch: DequeuedBatch, reason: ReturnReason) -> InboxChange[DequeuedBatch]:
    returns = inbox.returns if reason is ReturnReason.RELEASED else inbox.returns + 1
    return changed(inbox, batch, Returned(batch, reason, len(inbox.items)), lease=None, returns=returns)


def _own(inbox: Inbox, lease_id: str) -> tuple[BatchLease, DequeuedBatch]:
    batch = batch_of(inbox)
    if inbox.lease is None or batch is None or inbox.lease.id != lease_id:
        raise StaleLease(f"this batch of the inbox {inbox.id} is no longer held under the lease {lease_id}")
    return inbox.lease, batch
