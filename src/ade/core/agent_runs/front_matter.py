"""Markdown with front matter, as agent types are written down. A small part of YAML, read strictly.

Between two lines `---` stand `name: value` pairs. A value is text, with quotes or without; a whole number; `true` or
`false`; a list, as `[one, two]`, as `- one` on lines of its own, or as JSON; a table, as indented pairs or as JSON; or
text on indented lines after `|` (kept as lines) or `>` (folded into one). `#` begins a comment.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from ade.core.errors import InvalidProfile

LONGEST_FILE = 1_000_000  # characters
LONGEST_LINE = 10_000  # of the front matter
FENCE = "---"
_PAIR = re.compile(r"(?P<name>\"[^\"]*\"|'[^']*'|[A-Za-z0-9_][A-Za-z0-9_.-]{0,99})\s*:(?:\s+(?P<value>.*))?")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,15})")
_FOREIGN = ("&", "*", "!", "%", "@", "`", "?")  # YAML means something by these that is not read here
_BLOCKS = ("|", ">", "|-", ">-")


class Markdown(NamedTuple):
    head: dict[str, object]
    body: str


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_markdown(text: str, place: str) -> Markdown:
    """The pairs of the front matter and the text after it. Raises InvalidProfile, which names place and line."""
    if len(text) > LONGEST_FILE:
        raise InvalidProfile(f"{place} is longer than {LONGEST_FILE:,} characters; no agent needs that much")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise InvalidProfile(f"{place}:1: the first line must be {FENCE}, and a second one must end the front matter")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise InvalidProfile(f"{place}: the front matter never ends; write {FENCE} on a line of its own below it")
    for number, line in enumerate(lines[1:end], 2):
        if len(line) > LONGEST_LINE:
            raise InvalidProfile(
                f"{place}:{number}: is longer than {LONGEST_LINE:,} characters; write it below {FENCE}"
            )
    return Markdown(_Head(lines[1:end], place).table(), "\n".join(lines[end + 1 :]).strip())


class _Head:
    """Reads the lines one after the other, each once."""

    def __init__(self, lines: Sequence[str], place: str) -> None:
        self._place = place
        self._raw = lines
        self._lines = [_Line(number, *_split(line)) for number, line in enumerate(lines, 2)]
        self._at = 0

    def _wrong(self, line: _Line, what: str) -> InvalidProfile:
        return InvalidProfile(f"{self._place}:{line.number}: {what}")

    def _next(self) -> _Line | None:
        """The next line that says anything."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.text and not line.text.startswith("#"):
                return line
            self._at += 1
        return None

    def table(self, indent: int = 0) -> dict[str, object]:
        found: dict[str, object] = {}
        while (line := self._next()) is not None and line.indent >= indent:
            if line.indent > indent:
                raise self._wrong(line, "is indented more than the lines it belongs to")
            if "\t" in self._raw[line.number - 2][: line.indent]:
                raise self._wrong(line, "is indented with a tab; use spaces")
            pair = _PAIR.fullmatch(line.text)
            if pair is None:
                raise self._wrong(line, f"must be `name: value`, not {line.text[:60]!r}")
            name = pair["name"].strip("\"'")
            if name in found:
                raise self._wrong(line, f"{name} is given twice")
            self._at += 1
            found[name] = self._value(line, (pair["value"] or "").strip())
        return found

    def _value(self, line: _Line, text: str) -> object:
        bare = _without_comment(text)
        if bare in _BLOCKS:
            return self._block(line, is_folded=bare.startswith(">"))
        if bare:
            return self._scalar_or_flow(line, text)
        following = self._next()
        if following is not None and following.text.startswith("-") and following.indent >= line.indent:
            return self._list(following.indent)
        if following is not None and following.indent > line.indent:
            if line.indent:
                raise self._wrong(following, "is a table within a table within a table; write it as JSON")
            return self.table(following.indent)
        raise self._wrong(line, "has no value; leave the line out, or write one")

    def _block(self, line: _Line, *, is_folded: bool) -> str:
        texts: list[str] = []
        while self._at < len(self._lines):
            following = self._lines[self._at]
            if following.text and following.indent <= line.indent:
                break
            texts.append(self._raw[self._at])
            self._at += 1
        margin = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
        plain = [text[margin:].rstrip() for text in texts]
        return (" " if is_folded else "\n").join(plain).strip()

    def _list(self, indent: int) -> list[object]:
        items: list[object] = []
        while (line := self._next()) is not None and line.indent == indent and line.text.startswith("-"):
            text = line.text[1:].strip()
            if not line.text.startswith("- ") or not text:
                raise self._wrong(line, "must be `- ` and then a value")
            self._at += 1
            items.append(self._scalar_or_flow(line, text))
        return items

    def _scalar_or_flow(self, line: _Line, text: str) -> object:
        if text.startswith(("[", "{")):
            return self._flow(line, _without_comment(text))
        return self._scalar(line, text)

    def _flow(self, line: _Line, text: str) -> object:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            inner = text[1:-1]
            if not (text.startswith("[") and text.endswith("]")) or any(char in inner for char in "[]{}\"'"):
                raise self._wrong(line, f"{text[:60]!r} is neither a list such as [one, two] nor JSON") from None
            return [self._scalar(line, part.strip()) for part in inner.split(",") if part.strip()]

    def _scalar(self, line: _Line, text: str) -> str | int | bool:
        if text[0] in "\"'":
            return self._quoted(line, text)
        plain = _without_comment(text)
        if plain in ("true", "false"):
            return plain == "true"
        if _NUMBER.fullmatch(plain):
            return int(plain)
        if plain.startswith(_FOREIGN):
            raise self._wrong(line, f"{plain[:60]!r} must stand in quotes, because of its first character")
        return plain

    def _quoted(self, line: _Line, text: str) -> str:
        quote = text[0]
        end = text.find(quote, 1)
        while end > 0 and ((quote == '"' and _is_escaped(text, end)) or text[end : end + 2] == "''"):
            end = text.find(quote, end + (1 if quote == '"' else 2))
        if end < 0 or _without_comment(text[end + 1 :]):
            raise self._wrong(line, f"{text[:60]!r} must end with the quote that it begins with")
        if quote == "'":
            return text[1:end].replace("''", "'")
        try:
            return str(json.loads(text[: end + 1]))
        except ValueError:
            raise self._wrong(line, f"{text[:60]!r} is not valid text in double quotes; single ones keep all") from None


def _split(line: str) -> tuple[int, str]:
    text = line.strip()
    return len(line) - len(line.lstrip()), text


def _without_comment(text: str) -> str:
    return _COMMENT.sub("", text).strip()


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
