"""Server-sent events (`text/event-stream`): an incremental parser, an encoder, and resume positions."""

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
    """One received event."""

    data: str
    event: str = "message"


class SseParser:
    """Incremental parser for chunks of any size. An unfinished block at the end of the stream is ignored."""

    def __init__(self, longest: int = LONGEST_BLOCK) -> None:
        self.last_id = ""  # resume position after a disconnect; updated by complete blocks, with or without data
        self.retry_ms: int | None = None  # reconnect delay requested by the server
        self._longest = longest
        self._size = 0  # bytes in the unfinished block
        self._rest = b""
        self._is_first = True
        self._ended_with_return = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, piece: bytes) -> list[SseBlock]:
        """Return the blocks that are complete. Raises ValueError for a block that is too long."""
        if self._ended_with_return and piece:
            piece = piece.removeprefix(b"\n")
            self._ended_with_return = False
        text = self._rest + piece
        if self._is_first:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._is_first, text = False, text.removeprefix(_BOM)
        self._ended_with_return = text.endswith(b"\r")  # its \n might follow
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
        return None  # comments and unknown fields are ignored

    def _finished(self) -> SseBlock | None:
        data, event = self._data, self._event or "message"
        self.last_id = self._id
        self._data, self._event, self._size = [], "", 0
        return SseBlock("\n".join(data), event) if data else None

    def _check(self, size: int) -> None:
        if size > self._longest:
            raise ValueError(f"a block of the stream has more than {self._longest:,} bytes")


# The encoder. No value can end its block or start another one: data is split into lines, and line breaks are removed
# from single-line fields.


MEDIA_TYPE = "text/event-stream"
LARGEST_SEQ = (1 << 63) - 1
_BREAK = re.compile(r"\r\n|\r|\n")
_UNSAFE = re.compile(r"[\r\n\x00]")
_SEQ = re.compile(r"[0-9]{1,19}")


def block(
    *, data: str | None = None, event: str | None = None, seq: int | None = None, retry_ms: int | None = None
) -> bytes:
    """Encode one block. Without data a browser dispatches no event, but stores the ID and the retry delay."""
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
    """Encode a comment, which clients ignore. It keeps the connection alive."""
    return _encoded("".join(f": {line}\n" for line in _BREAK.split(text)) + "\n")


def event_block(event: Event) -> bytes:
    """Encode an event of the log: its seq as the ID, its type as the name, and its JSON representation as data."""
    return block(seq=event.seq, event=event.type, data=msgspec.json.encode(to_wire(event)).decode())


def parse_seq(text: str, what: str) -> int:
    """Parse a log position, which contains only digits. Raises InvalidFilter, which names `what`."""
    seq = int(text) if _SEQ.fullmatch(text) else None
    if seq is None or seq > LARGEST_SEQ:
        raise InvalidFilter(f"{what} must be the seq of an event, a whole number from 0; got {text!r:.60}")
    return seq


def start_after(last_event_id: str | None, after: str | None) -> int | None:
    """Return the seq to resume after; None for new events only, 0 for everything in the log.

    The header takes precedence: a browser that reconnects sends it to the original URL, with the old `?after=`. Raises
    InvalidFilter.
    """
    if last_event_id:
        return parse_seq(last_event_id, "Last-Event-ID")
    return None if after is None else parse_seq(after, "after")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
