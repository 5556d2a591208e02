"""The audit hash chain: each hash covers its entry and the previous hash, so that tampering is detected."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from ade.events.model import Event

GENESIS = ""  # the hash before the first entry


class AuditHead(Struct, frozen=True):
    """The end of the chain. The default is the head of an empty chain."""

    seq: int = 0
    hash: str = GENESIS


class AuditEntry(Struct, frozen=True):
    """One copied event. `body` is its canonical JSON."""

    seq: int
    body: bytes
    hash: str


class AuditLine(Struct, frozen=True, kw_only=True):
    """An entry to be looked at. Without an event: what is kept there is none, so somebody has changed it."""

    seq: int
    hash: str
    event: Event | None = None


class AuditReport(Struct, frozen=True, kw_only=True):
    """What a walk along the whole chain has found. `broken` says what is wrong with the first wrong entry."""

    holds: bool
    entries: int  # that were checked
    seq: int = 0  # of the last of them
    begins_after: int = 0  # seq of the last entry that was rotated out; 0: the chain begins with its first entry
    hash: str = GENESIS
    approved_starts: int = 0  # runs that people had to approve, computed again
    unknown_starts: int = 0  # those whose approval is older than the copy
    records: int = 0  # that were compared with the log: governed tasks, accounts, delegations, and rulebooks
    differences: tuple[str, ...] = ()  # between records and the log
    anchors: int = 0  # of a file, that the chain contains
    broken: str | None = None
    advice: str | None = None  # what helps at a command line


class _NumberedEntry(Struct):
    seq: int = 0


_seq_in = msgspec.json.Decoder(_NumberedEntry).decode
_event_in = msgspec.json.Decoder(Event).decode


def chain(head: AuditHead, events: Iterable[Event]) -> list[AuditEntry]:
    """Return the entries for events that follow the head."""
    entries, previous = [], head.hash
    for event in events:
        body = msgspec.json.encode(event, order="deterministic")
        previous = _link(previous, body)
        entries.append(AuditEntry(event.seq, body, previous))
    return entries


def first_break(head: AuditHead, entries: Sequence[AuditEntry]) -> int | None:
    """Return the seq of the first entry that does not follow from the previous one; None if the chain is valid."""
    previous = head
    for entry in entries:
        follows = entry.seq > previous.seq and entry.hash == _link(previous.hash, entry.body)
        if not follows or _seq_of(entry.body) != entry.seq:
            return entry.seq
        previous = AuditHead(entry.seq, entry.hash)
    return None


def line_of(entry: AuditEntry) -> AuditLine:
    """Return an entry for display; without an event if its body cannot be decoded."""
    try:
        event = _event_in(entry.body)
    except msgspec.MsgspecError:
        event = None
    return AuditLine(seq=entry.seq, hash=entry.hash, event=event)


def _link(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()


def _seq_of(body: bytes) -> int | None:
    try:
        return _seq_in(body).seq
    except msgspec.MsgspecError:
        return None
