"""An event stream (`text/event-stream`) read back: bytes as they come in, whole blocks out."""

import re
from typing import NamedTuple

LONGEST_BLOCK = 16 << 20  # bytes
_BREAK = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Block(NamedTuple):
    data: str
    event: str = "message"


class BlockReader:
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

    def feed(self, piece: bytes) -> list[Block]:
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
        *lines, self._rest = _BREAK.split(text)
        blocks = [block for line in lines if (block := self._line(line)) is not None]
        self._check(self._size + len(self._rest))
        return blocks

    def _line(self, line: bytes) -> Block | None:
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

    def _finished(self) -> Block | None:
        data, event = self._data, self._event or "message"
        self.last_id = self._id
        self._data, self._event, self._size = [], "", 0
        return Block("\n".join(data), event) if data else None

    def _check(self, size: int) -> None:
        if size > self._longest:
            raise ValueError(f"a block of the stream has more than {self._longest:,} bytes")
