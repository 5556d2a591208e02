"""Building blocks of output parsers: line splitting, bounded text, lenient JSON, run events, and secret masking."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ade.common.text import HIDDEN

LONGEST_LINE = 4 * 1024 * 1024
LONGEST_TEXT = 1024 * 1024
_MOST_PIECES = 10_000  # many short strings take more memory than one long one


class OutputPiece(Struct, frozen=True):
    """One line of output."""

    data: bytes
    dropped: int = 0  # bytes beyond the limit
    is_ended: bool = True  # False for a last line without a line end

    @property
    def text(self) -> str:
        """The line for display; a cut is marked."""
        text = self.data.decode("utf-8", "replace")
        return f"{text}{cut_mark(self.dropped, 'bytes')}" if self.dropped else text


def cut_mark(count: int, unit: str = "characters") -> str:
    """Return the marker for omitted text."""
    return f"[... {count:,} {unit} cut ...]"


class LineSplitter:
    """Splits bytes into lines, with the same result for any chunking. Keeps at most one line in memory."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[OutputPiece]:
        """Return the lines that are now complete, without their line ends (LF or CRLF)."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data, start, end)
            yield self._taken(is_ended=True)
            start = end + 1
        self._keep(data, start, len(data))

    def rest(self) -> OutputPiece | None:
        """Return the text after the last line end, if any."""
        return self._taken(is_ended=False) if self._kept or self._dropped else None

    def _keep(self, data: bytes, start: int, end: int) -> None:
        room = min(end - start, self._longest - len(self._kept))
        self._kept += data[start : start + room]
        self._dropped += end - start - room

    def _taken(self, *, is_ended: bool) -> OutputPiece:
        data = bytes(self._kept)
        if is_ended and not self._dropped:
            data = data.removesuffix(b"\r")
        line = OutputPiece(data, self._dropped, is_ended)
        self._kept, self._dropped = bytearray(), 0
        return line


class ClippedText:
    """Growing text of which the start and the end are kept, with a marker for the middle."""

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
    """Return the start and the end of a text that might be too long."""
    if len(text) <= longest:
        return text
    whole = ClippedText(longest)
    whole.add(text)
    return whole.text


class TextTail:
    """Keeps the end of a stream, such as the last lines of stderr."""

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


# JSON from untrusted programs, read without ever raising.


MOST_COUNT = 2**53
LONGEST_ID = 200

Record = Mapping[str, Any]
_DECODER = msgspec.json.Decoder()
_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)


def read_record(data: bytes) -> Record | None:
    """Return the JSON object in these bytes; None for anything else."""
    text = data.strip()
    if not text.startswith(b"{") or not text.endswith(b"}"):
        return None
    try:
        value = _DECODER.decode(text)
    except _FAULTS:
        value = _read_leniently(text)
    return value if isinstance(value, dict) else None


def _read_leniently(data: bytes) -> object:
    """Programs truncate text anywhere, which can leave half of a surrogate pair or of a UTF-8 character."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except _FAULTS:
        return None


def text_of(record: Record, *keys: str) -> str | None:
    """Return the first of these fields with a non-empty string."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value:
            return whole_text(value)
    return None


def whole_text(text: str) -> str:
    """Return text that every store accepts: without lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def id_of(record: Record, *keys: str) -> str | None:
    """Return the first of these fields with a non-empty string that is short enough for an ID."""
    found = text_of(record, *keys)
    return found if found is not None and len(found) <= LONGEST_ID else None


def count_of(record: Record, key: str) -> int | None:
    """Return a non-negative integer; None for an invalid value."""
    value = record.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        return None
    return value


def amount_of(record: Record, key: str) -> float | None:
    """Return an amount of money or time; None for an invalid value."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= MOST_COUNT else None


def record_of(record: Record, key: str) -> Record:
    """Return the object in this field; empty for anything else."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def records_of(record: Record, key: str) -> list[Record]:
    """Return the objects in this list field; empty for anything else."""
    value = record.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def written(value: object) -> str:
    """Return a value of a record as JSON; a string, which some programs use for JSON, unchanged."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "[too deep to be shown]"
    return whole_text(text)


# Events of a run, the same for every program.


class TextEmitted(Struct, frozen=True):
    """Text of the agent, or an output line outside the protocol."""

    text: str
    is_part: bool = False  # the line might continue


class ToolCalled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent has called a tool."""

    id: str
    name: str
    arguments: str = ""  # JSON, or the program's own format; long values are cut


class SessionIdentified(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The known IDs of the run, for resuming it."""

    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None


class UsageReported(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cost of the run so far. None: not reported, or not yet."""

    tokens: int | None = None  # all tokens: input, cached or not, and output
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None


class RetryReported(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program had a problem and retries by itself."""

    reason: str
    attempt: int | None = None
    max_attempts: int | None = None
    delay_ms: int | None = None


class ErrorReported(Struct, frozen=True):
    """The program reported an error. Whether the run fails is decided at its end."""

    message: str


RunEvent = TextEmitted | ToolCalled | SessionIdentified | UsageReported | RetryReported | ErrorReported


# Masking of secrets that a program was given, in case it prints them.


SHORTEST_SECRET = 6  # masking shorter ones would hide too much text
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|CREDENTIAL"
    r"|(?:^|_)(?:KEY|PASS|PAT|AUTH|DSN)(?:_|$)|._PWD$"
)
_IN_URL = re.compile(r"://[^/\s:@]*:(?P<password>[^/\s@]+)@")
_LOOKS_SECRET = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,200}|gh[pousr]_[A-Za-z0-9]{20,200}|AIza[A-Za-z0-9_-]{30,60}|AKIA[A-Z0-9]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,200})|(?<=Bearer )[A-Za-z0-9._~+/=-]{16,2000}"
)


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables with secret names, and the passwords in URLs."""
    named = [value for name, value in environment.items() if _SECRET_NAME.search(name.upper())]
    return named + [match["password"] for value in environment.values() for match in _IN_URL.finditer(value)]


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask these secrets, and text that looks like a common access token."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _LOOKS_SECRET.sub(HIDDEN, text)
