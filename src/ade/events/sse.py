"""An event stream (`text/event-stream`) read back: bytes as they come in, whole blocks out."""

import re
from typing import NamedTuple

import msgspec

from ade.errors import InvalidFilter
from ade.events.model import Event
from ade.server.wire_format import to_wire

LONGEST_BLOCK = 16 << 20  # bytes
_BREAK_READING = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


class SseBlock(NamedTuple):
    data: str
    event: str = "message"


class SseParser:
    """Feed it pieces of any size. What is unfinished at the end of the stream never was a block."""

    def __init__(self, longest: int = LONGEST_BLOCK) -> None:
        self.last_id = ""  # where to go on after a break; it moves with blocks alone, also with those without data
        self.retry_ms: int | None = None  # how long to wait before that, as the server wants it
        self._longest = longest
        self._size = 0  # of the unfinished block
        self._rest = b""
        self._is_first = True
        self._ended_with_return = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, piece: bytes) -> list[SseBlock]:
        """The blocks that are whole now. Raises ValueError for one that is too long."""
        if self._ended_with_return and piece:
            piece = piece.removeprefix(b"\n")
            self._ended_with_return = False
        text = self._rest + piece
        if self._is_first:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._is_first, text = False, text.removeprefix(_BOM)
        self._ended_with_return = text.endswith(b"\r")  # its \n may still come
        *lines, self._rest = _BREAK_READING.split(text)
        blocks = [block for line in lines if (block := self._line(line)) is not None]
        self._check(self._size + len(self._rest))
        return blocks

    def _line(self, line: bytes) -> SseBlock | None:
        if not line:
            return self._finished()
        self._size += len(line)
        self._check(self._size)
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\x00" not in value:
                self._id = value
            case "retry" if _DIGITS.fullmatch(value):
                self.retry_ms = int(value)
        return None  # comments and unknown fields are left aside

    def _finished(self) -> SseBlock | None:
        data, event = self._data, self._event or "message"
        self.last_id = self._id
        self._data, self._event, self._size = [], "", 0
        return SseBlock("\n".join(data), event) if data else None

    def _check(self, size: int) -> None:
        if size > self._longest:
            raise ValueError(f"a block of the stream has more than {self._longest:,} bytes")


# The text of an event stream (`text/event-stream`), and where a subscriber wants to go on.
#
# Nothing that is put into a block can end it or begin another one: data is split into lines, and the fields of one
# line lose their line breaks.


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
