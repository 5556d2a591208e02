"""Bytes as they come, in lines. Whatever is fed, no more than the longest line is kept."""

from collections.abc import Iterator

from msgspec import Struct

LONGEST_LINE = 4 * 1024 * 1024
LONGEST_TEXT = 1024 * 1024
_MOST_PIECES = 10_000  # many short strings take more room than one long one


class Line(Struct, frozen=True):
    data: bytes
    dropped: int = 0  # bytes that were too many
    is_ended: bool = True  # False for the last one, if no line end followed it

    @property
    def text(self) -> str:
        """As people see it; what was cut off is marked."""
        text = self.data.decode("utf-8", "replace")
        return f"{text}{cut_mark(self.dropped, 'bytes')}" if self.dropped else text


def cut_mark(count: int, unit: str = "characters") -> str:
    """What stands where something was left out."""
    return f"[... {count:,} {unit} cut ...]"


class LineCutter:
    """Cuts the same lines from the same bytes, in whatever pieces they come."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that are whole now, without their ends (LF or CRLF)."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data, start, end)
            yield self._taken(is_ended=True)
            start = end + 1
        self._keep(data, start, len(data))

    def rest(self) -> Line | None:
        """What stands after the last line end, if anything does."""
        return self._taken(is_ended=False) if self._kept or self._dropped else None

    def _keep(self, data: bytes, start: int, end: int) -> None:
        room = min(end - start, self._longest - len(self._kept))
        self._kept += data[start : start + room]
        self._dropped += end - start - room

    def _taken(self, *, is_ended: bool) -> Line:
        data = bytes(self._kept)
        if is_ended and not self._dropped:
            data = data.removesuffix(b"\r")
        line = Line(data, self._dropped, is_ended)
        self._kept, self._dropped = bytearray(), 0
        return line


class Clipped:
    """Text that only grows, of which the beginning and the end are kept, and a mark for what lies between."""

    def __init__(self, longest: int = LONGEST_TEXT) -> None:
        self._half = max(longest // 2, 1)
        self._head: list[str] = []
        self._head_room = self._half
        self._tail: list[str] = []
        self._tail_length = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        head, tail = text[: self._head_room], text[self._head_room :]
        if head:
            self._head.append(head)
            self._head_room -= len(head)
        if tail:
            self._tail.append(tail)
            self._tail_length += len(tail)
        if self._tail_length > 2 * self._half or len(self._tail) + len(self._head) > _MOST_PIECES:
            self._shorten()

    def _shorten(self) -> None:
        self._head = ["".join(self._head)]
        tail = "".join(self._tail)
        self._dropped += max(len(tail) - self._half, 0)
        self._tail = [tail[-self._half :]]
        self._tail_length = min(len(tail), self._half)

    @property
    def text(self) -> str:
        self._shorten()
        mark = cut_mark(self._dropped) if self._dropped else ""
        return "".join((*self._head, mark, *self._tail))


def clipped(text: str, longest: int) -> str:
    """The beginning and the end of a text that may be too long."""
    if len(text) <= longest:
        return text
    whole = Clipped(longest)
    whole.add(text)
    return whole.text


class Tail:
    """The end of what was written, such as the last words on stderr."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._kept = bytearray()
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        self._kept += data[-2 * self._longest :]
        self.dropped += max(len(data) - 2 * self._longest, 0)
        if len(self._kept) > 2 * self._longest:
            self.dropped += len(self._kept) - self._longest
            del self._kept[: -self._longest]

    @property
    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace")
