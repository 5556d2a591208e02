"""The text of an event stream (`text/event-stream`), and where a subscriber wants to go on.

Nothing that is put into a block can end it or begin another one: data is split into lines, and the fields of one line
lose their line breaks.
"""

import re

import msgspec

from ade.core.errors import InvalidFilter
from ade.core.events import Event
from ade.core.web.wire import to_wire

MEDIA_TYPE = "text/event-stream"
LARGEST_SEQ = (1 << 63) - 1
_BREAK = re.compile(r"\r\n|\r|\n")
_UNSAFE = re.compile(r"[\r\n\x00]")
_SEQ = re.compile(r"[0-9]{1,19}")


def block(
    *, data: str | None = None, event: str | None = None, seq: int | None = None, retry_ms: int | None = None
) -> bytes:
    """One block. Without data a browser shows nobody anything, but remembers the id and the time to wait."""
    lines = []
    if seq is not None:
        lines.append(f"id: {seq}")
    if event is not None:
        lines.append(f"event: {_UNSAFE.sub(' ', event)}")
    if retry_ms is not None:
        lines.append(f"retry: {retry_ms}")
    if data is not None:
        lines += [f"data: {line}" for line in _BREAK.split(data)]
    return _encoded("".join(f"{line}\n" for line in lines) + "\n") if lines else b""


def comment(text: str = "") -> bytes:
    """Something that no client shows; it keeps the connection alive."""
    return _encoded("".join(f": {line}\n" for line in _BREAK.split(text)) + "\n")


def event_block(event: Event) -> bytes:
    """An event of the log: its seq is the id, its type the name, and the data is JSON, as lists of events have it."""
    return block(seq=event.seq, event=event.type, data=msgspec.json.encode(to_wire(event)).decode())


def parse_seq(text: str, what: str) -> int:
    """A place in the log, as digits and nothing else. Raises InvalidFilter and says `what` was wrong."""
    seq = int(text) if _SEQ.fullmatch(text) else None
    if seq is None or seq > LARGEST_SEQ:
        raise InvalidFilter(f"{what} must be the seq of an event, a whole number from 0 on; {text!r:.60} is none")
    return seq


def start_after(last_event_id: str | None, after: str | None) -> int | None:
    """Behind which event to begin; None for what happens from now on. 0 is all that is kept.

    The header comes first: a browser that connects again sends it to the same address, with the old `?after=`.
    Raises InvalidFilter.
    """
    if last_event_id:
        return parse_seq(last_event_id, "Last-Event-ID")
    return None if after is None else parse_seq(after, "after")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
