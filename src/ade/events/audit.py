"""The audit copy: every event once, in order, in a chain of hashes apart from the records it tells of."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from ade.core.audit import AuditEntry, AuditHead, first_break
from ade.core.errors import AuditBroken
from ade.core.events import Event
from ade.ports import EventLog

CURSOR = "audit"
_PAGE = 1_000


class AuditCopy(Protocol):
    """Where the chain is kept. Entries are only ever added."""

    async def head(self) -> AuditHead:
        """The last entry's seq and hash."""

    async def append(self, events: Sequence[Event]) -> AuditHead:
        """Add those of the events that come after the head, durably and together; answer the new head."""

    async def entries(self, after: int, limit: int) -> list[AuditEntry]:
        """Entries with a seq above `after`, in order."""

    async def count(self) -> int:
        """How many entries there are."""


async def copy_events(log: EventLog, copy: AuditCopy, *, limit: int = _PAGE) -> int:
    """Copy the next events. Answers how many; safe to run twice at once, because the copy's own head decides.

    Raises AuditBroken when the copy and the log contradict each other; then nothing is copied any more.
    """
    head = await _checked_head(log, copy)
    events = await log.read(head.seq, limit)
    if events:
        head = await copy.append(events)
    elif head.seq > await log.last_seq():
        raise AuditBroken(
            f"the audit copy goes up to event {head.seq}, the event log does not: was an older backup restored?"
            " Keep the audit file as evidence and move it away to begin a new one"
        )
    await log.advance(CURSOR, head.seq)
    return len(events)


async def verify(log: EventLog, copy: AuditCopy) -> AsyncIterator[tuple[int, int]]:
    """Walk the whole chain, telling (checked, total). Raises AuditBroken and names the first entry that is wrong."""
    await _checked_head(log, copy)
    total, checked, head = await copy.count(), 0, AuditHead()
    yield checked, total
    while entries := await copy.entries(head.seq, _PAGE):
        broken = first_break(head, entries)
        if broken is not None:
            raise AuditBroken(f"the audit chain breaks at entry {broken}: it, or one before it, was changed or removed")
        checked += len(entries)
        head = AuditHead(entries[-1].seq, entries[-1].hash)
        yield checked, max(total, checked)


async def _checked_head(log: EventLog, copy: AuditCopy) -> AuditHead:
    """The cursor in the main store remembers how far the copy once was; a shorter copy has lost its end."""
    reached = await log.cursor(CURSOR)
    head = await copy.head()
    if head.seq < reached:
        raise AuditBroken(
            f"the audit copy ends at entry {head.seq}, but had reached {reached}: its end was removed. Restore the"
            " audit file from a backup"
        )
    return head
