"""The audit copy: every event once, in order, in a hash chain that is stored apart from the records it describes."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from ade.errors import AuditBroken
from ade.events.audit_chain import AuditEntry, AuditHead, first_break
from ade.events.model import Event
from ade.stores.ports import EventLog

CURSOR = "audit"
_PAGE = 1_000
_END = 100  # entries that a quick check reads
_ANEW = "stop the workers, move what is left of it away as evidence, and start a new one"
_ANEW_ADVICE = "`ade audit begin` starts one"
_event_in = msgspec.json.Decoder(Event).decode


class AuditCopy(Protocol):
    """Storage of the chain. Append-only."""

    async def head(self) -> AuditHead:
        """Return the seq and hash of the last entry."""

    async def base(self) -> AuditHead:
        """Return the last entry that was rotated out of the copy: the chain continues from its hash."""

    async def rotate(self, max_bytes: int, folder: Path | None) -> int:
        """Move the oldest entries to a file in the folder, or drop them, if the copy is larger than `max_bytes`.

        Returns how many; 0 if there is nothing to do.
        """

    async def append(self, events: Sequence[Event]) -> AuditHead:
        """Append the events after the head, durably and atomically. Returns the new head."""

    async def entries(self, after: int, limit: int) -> list[AuditEntry]:
        """Return entries with a seq above `after`, in order."""

    async def last_entries(self, limit: int) -> list[AuditEntry]:
        """Return the last entries, in order."""

    async def count(self) -> int:
        """Return the number of entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLocation:
    """Where the audit copy of a store is kept, whether or not it exists yet."""

    exists: Callable[[], bool]
    open: Callable[[], AbstractAsyncContextManager[AuditCopy]]  # created if it does not exist


@asynccontextmanager
async def current_copy(log: EventLog, place: AuditLocation) -> AsyncIterator[AuditCopy]:
    """Open the copy and bring it up to date with the log. A copy that was lost is not recreated.

    Raises AuditBroken.
    """
    reached = (await log.cursors()).get(CURSOR, 0)
    if reached and not place.exists():
        raise cut_off(0, reached)
    async with place.open() as copy:
        while await copy_events(log, copy):
            pass
        yield copy


async def copy_events(log: EventLog, copy: AuditCopy, *, limit: int = _PAGE) -> int:
    """Copy the next events and return their number. Concurrent calls are safe, because the head of the copy decides.

    Raises AuditBroken if the copy and the log contradict each other. Nothing is copied from then on.
    """
    head = await _checked_head(log, copy)
    events = await log.read(head.seq, limit)
    if events:
        head = await copy.append(events)
    elif head.seq > await log.last_seq():
        raise _too_long(head)
    await log.advance(CURSOR, head.seq)
    return len(events)


async def begin(log: EventLog, copy: AuditCopy) -> AuditHead:
    """Start a new chain with the events that are still in the log, after the old copy was lost or moved away.

    This never happens automatically, because the loss of an audit file must be noticed. Raises AuditBroken.
    """
    head = await copy.head()
    if head.seq:
        raise AuditBroken(
            f"the audit copy goes up to entry {head.seq}; a new one can only be started if there is none. Keep this"
            " one as evidence and move it away"
        )
    reached = (await log.cursors()).get(CURSOR, 0)
    if reached and not await log.read(reached - 1, 1):
        raise AuditBroken("the event log is empty, so a new chain cannot start; try again when there are events")
    while events := await log.read(head.seq, _PAGE):
        head = await copy.append(events)
    await log.advance(CURSOR, head.seq)
    return head


class EventCheck(Protocol):
    """Takes every event in order. It returns what is wrong with one, or None."""

    def add(self, event: Event) -> str | None: ...


class EntriesRotated(Exception):
    """Entries were rotated out of the copy before they were verified. Begin again with those that are left."""


async def verify(log: EventLog, copy: AuditCopy, check: EventCheck | None = None) -> AsyncIterator[tuple[int, int]]:
    """Verify the whole chain and yield (checked, total). Raises AuditBroken, which names the first invalid entry, and
    EntriesRotated.

    Events that are still in the log are also compared with their entries. A `check` gets every event, for example to
    recompute the approval of every run that needed one.
    """
    await _checked_head(log, copy)
    total, checked, head = await copy.count(), 0, await copy.base()
    yield checked, total
    while entries := await copy.entries(head.seq, _PAGE):
        if (await copy.base()).seq > head.seq:
            raise EntriesRotated
        await _check(log, head, entries)
        if check is not None:
            _pass_on(check, entries)
        checked += len(entries)
        head = AuditHead(entries[-1].seq, entries[-1].hash)
        yield checked, max(total, checked)


def _pass_on(check: EventCheck, entries: Sequence[AuditEntry]) -> None:
    for entry in entries:
        fault = check.add(_event_in(entry.body))
        if fault is not None:
            raise AuditBroken(f"entry {entry.seq}: {fault}")


async def events_after(copy: AuditCopy, seq: int) -> AsyncIterator[Event]:
    """Yield the copied events after a seq."""
    while entries := await copy.entries(seq, _PAGE):
        for entry in entries:
            yield _event_in(entry.body)
        seq = entries[-1].seq


async def read_chain_head(log: EventLog, copy: AuditCopy) -> AuditHead:
    """Return the head after a quick check of the last entries only. Raises AuditBroken."""
    head = await _checked_head(log, copy)
    if head.seq > await log.last_seq():
        raise _too_long(head)
    entries = await copy.last_entries(_END)
    if len(entries) == _END:  # the hash before the first of these entries is unknown
        await _check(log, AuditHead(entries[0].seq, entries[0].hash), entries[1:])
    else:
        await _check(log, await copy.base(), entries)
    return head


async def _check(log: EventLog, head: AuditHead, entries: Sequence[AuditEntry]) -> None:
    broken = first_break(head, entries)
    if broken is not None:
        raise AuditBroken(f"the audit chain breaks at entry {broken}: it, or one before it, was changed or removed")
    if entries:
        await _compare(log, head.seq, entries)


async def _compare(log: EventLog, after: int, entries: Sequence[AuditEntry]) -> None:
    """Compare entries with the log. Old events are trimmed from the log; events in both must be equal."""
    bodies = {entry.seq: entry.body for entry in entries}
    last = entries[-1].seq
    while after < last and (events := await log.read(after, len(entries))):
        for event in events:
            if event.seq > last:
                return
            if event.seq not in bodies:
                raise AuditBroken(f"event {event.seq} is in the event log but was never copied: it was added later")
            if not _is_same(event, bodies[event.seq]):
                raise AuditBroken(f"event {event.seq} in the event log is not what was copied: it was changed there")
        after = events[-1].seq


def _is_same(event: Event, body: bytes) -> bool:
    try:
        return _event_in(body) == event
    except msgspec.MsgspecError:
        return False


async def _checked_head(log: EventLog, copy: AuditCopy) -> AuditHead:
    """Return the head. A cursor in the main store records how far the copy once reached, to detect truncation."""
    reached = (await log.cursors()).get(CURSOR, 0)
    head = await copy.head()
    if head.seq < reached:
        raise cut_off(head.seq, reached)
    if head.seq and not reached:
        await _check_that_it_is_ours(log, copy, head)
    return head


async def _check_that_it_is_ours(log: EventLog, copy: AuditCopy, head: AuditHead) -> None:
    """Reject the copy of another store: a copy that exists although this store has copied nothing yet."""
    events = await log.read((await copy.base()).seq, 1)
    if not events or events[0].seq > head.seq:
        return
    entries = await copy.entries(events[0].seq - 1, 1)
    if not entries or entries[0].seq != events[0].seq or not _is_same(events[0], entries[0].body):
        raise AuditBroken(
            f"the audit copy goes up to entry {head.seq}, but this store has copied nothing yet, and its event"
            f" {events[0].seq} is not in there: it is the copy of another store. Give each store its own by"
            " events.audit_url"
        )


def cut_off(seq: int, reached: int) -> AuditBroken:
    """Return the error for a truncated copy."""
    return AuditBroken(
        f"the audit copy ends at entry {seq}, but had reached {reached}: its end, or the whole copy, was removed,"
        f" or is on another machine. Restore it from a backup, or {_ANEW}",
        advice=_ANEW_ADVICE,
    )


def _too_long(head: AuditHead) -> AuditBroken:
    return AuditBroken(
        f"the audit copy goes up to event {head.seq}, the event log does not: was an older backup restored?"
        f" If so, {_ANEW}",
        advice=_ANEW_ADVICE,
    )
