"""Bytes as they come, in lines. Whatever is fed, no more than the longest line is kept."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

LONGEST_LINE = 4 * 1024 * 1024
LONGEST_TEXT = 1024 * 1024
_MOST_PIECES = 10_000  # many short strings take more room than one long one


class OutputPiece(Struct, frozen=True):
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


class LineSplitter:
    """Cuts the same lines from the same bytes, in whatever pieces they come."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[OutputPiece]:
        """The lines that are whole now, without their ends (LF or CRLF)."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data, start, end)
            yield self._taken(is_ended=True)
            start = end + 1
        self._keep(data, start, len(data))

    def rest(self) -> OutputPiece | None:
        """What stands after the last line end, if anything does."""
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
    whole = ClippedText(longest)
    whole.add(text)
    return whole.text


class TextTail:
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


# What a program that nobody controls has written as JSON, read without ever raising.


MOST_COUNT = 2**53
LONGEST_ID = 200

Record = Mapping[str, Any]
_DECODER = msgspec.json.Decoder()
_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)


def read_record(data: bytes) -> Record | None:
    """The JSON object that these bytes are; None if they are anything else."""
    text = data.strip()
    if not text.startswith(b"{") or not text.endswith(b"}"):
        return None
    try:
        value = _DECODER.decode(text)
    except _FAULTS:
        value = _read_leniently(text)
    return value if isinstance(value, dict) else None


def _read_leniently(data: bytes) -> object:
    """Programs cut texts anywhere, so that half a surrogate pair or half a UTF-8 character is left over."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except _FAULTS:
        return None


def text_of(record: Record, *keys: str) -> str | None:
    """The first of these fields that holds text which is not empty."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value:
            return whole_text(value)
    return None


def whole_text(text: str) -> str:
    """Text that every store can keep: without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")


def id_of(record: Record, *keys: str) -> str | None:
    found = text_of(record, *keys)
    return found if found is not None and len(found) <= LONGEST_ID else None


def count_of(record: Record, key: str) -> int | None:
    """A whole number that counts something; nonsense is no number."""
    value = record.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        return None
    return value


def amount_of(record: Record, key: str) -> float | None:
    """An amount of money or time; nonsense is none."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= MOST_COUNT else None


def record_of(record: Record, key: str) -> Record:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def records_of(record: Record, key: str) -> list[Record]:
    value = record.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def written(value: object) -> str:
    """A value of a record as JSON; text, which some programs use for JSON, as it is."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "[too deep to be shown]"
    return whole_text(text)


# What a run tells while it goes on, the same for every program.


class TextEmitted(Struct, frozen=True):
    """Text of the agent, or a line of output that belongs to no protocol."""

    text: str
    is_part: bool = False  # more of the same line may follow


class ToolCalled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    arguments: str = ""  # JSON, or what the program gave instead; long ones are cut


class SessionIdentified(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known by now about who runs, for a resumed run."""

    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None


class UsageReported(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run has cost so far. None: its program does not tell, or not yet."""

    tokens: int | None = None  # all of them: input, cached or not, and output
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None


class RetryReported(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program met a difficulty and tries again by itself."""

    reason: str
    attempt: int | None = None
    max_attempts: int | None = None
    delay_ms: int | None = None


class ErrorReported(Struct, frozen=True):
    """The program told of an error. Whether the run fails of it shows at its end."""

    message: str


RunEvent = TextEmitted | ToolCalled | SessionIdentified | UsageReported | RetryReported | ErrorReported


# Secrets that a program was given must not come back in what it prints.


HIDDEN = "[hidden]"
SHORTEST_SECRET = 6  # shorter ones would hide half of every text
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
    """The values whose names say that nobody may read them, and the passwords in URLs."""
    named = [value for name, value in environment.items() if _SECRET_NAME.search(name.upper())]
    return named + [match["password"] for value in environment.values() for match in _IN_URL.finditer(value)]


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with these, and with what looks like a common access token, hidden."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _LOOKS_SECRET.sub(HIDDEN, text)
