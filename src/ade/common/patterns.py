"""Text and path patterns of rules: `*` is any text, `?` is any one character, and the whole text must match.

Text patterns ignore differences that mean nothing to a shell or a person: case, width, runs of spaces, and invisible
characters. Matching takes time proportional to the length of the text, for every pattern.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_SPACES = re.compile(r"\s+")
_CONTROLS = r"\x00-\x08\x0e-\x1b\x7f"
_UNSEEN = re.compile(
    rf"[{_CONTROLS}\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff]"
)
_QUOTES = re.compile(r"\\\n|[\\'\"`]")
_SHELL_SPACE, _SHELL_BRACES = re.compile(r"\$IFS\b", re.IGNORECASE), re.compile(r"\$\{IFS[^}]*\}", re.IGNORECASE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def folded(text: str) -> str:
    """Normalize text that looks alike: NFKC, lower case, no invisible characters, single spaces, stripped."""
    if not text.isascii():
        seen = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))  # removing them can join characters
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return _SPACES.sub(" ", _UNSEEN.sub("", text.lower())).strip()


def readings(text: str) -> tuple[str, ...]:
    """Return the folded text; as a shell reads it, without quotes and `$IFS`; and as SQL, without comments."""
    found = dict.fromkeys((folded(text), folded(_as_shell(text))))
    if "/*" in text:
        found[folded(_blanked(_COMMENT, text, end="*/"))] = None
    return tuple(found)


def _as_shell(text: str) -> str:
    return _SHELL_SPACE.sub(" ", _blanked(_SHELL_BRACES, _QUOTES.sub("", text), end="}"))


def _blanked(regex: re.Pattern[str], text: str, *, end: str) -> str:
    """Replace matches by a space. Text after the last `end` is not searched, to avoid quadratic time."""
    head, last, tail = text.rpartition(end)
    return regex.sub(" ", head + last) + tail


class _PatternPart(NamedTuple):
    """The part of a pattern between two stars."""

    regex: re.Pattern[str]
    length: int


class TextPattern:
    """A compiled pattern for folded text."""

    def __init__(self, pattern: str) -> None:
        self._first, *self._rest = [
            _PatternPart(re.compile(_escaped(p), re.DOTALL), len(p)) for p in folded(pattern).split("*")
        ]

    def matches(self, text: str) -> bool:
        """Find the parts between the stars one after the other, each at its earliest position."""
        if not self._rest:
            return self._first.regex.fullmatch(text) is not None
        begun = self._first.regex.match(text)
        if begun is None:
            return False
        *middle, last = self._rest
        at = begun.end()
        for piece in middle:
            found = piece.regex.search(text, at)
            if found is None:
                return False
            at = found.end()
        start = len(text) - last.length
        return start >= at and last.regex.fullmatch(text, start) is not None


def _escaped(piece: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in piece)


class PathPattern:
    """A path pattern: `*` matches within one path segment, `**` any number of segments.

    Unless it starts with `/` or `~`, the pattern can match at any depth: `*.env` is such a file in any directory.
    """

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part]
        is_rooted = pattern.startswith(("/", "~"))
        self._is_absolute = pattern.startswith("/")
        self._parts = [None if part == "**" else _part(part) for part in (parts if is_rooted else ["**", *parts])]

    def matches(self, path: Sequence[str], *, is_absolute: bool) -> bool:
        """Match the path segments from `parts_of`, tracking every pattern position that they can reach."""
        if (self._is_absolute and not is_absolute) or not self._may_match(path):
            return False
        reached = {0}
        for part in path:
            reached = self._after(part, self._with_skips(reached))
            if not reached:
                return False
        return len(self._parts) in self._with_skips(reached)

    def _may_match(self, path: Sequence[str]) -> bool:
        """A quick check: the first or last segment rules out most paths."""
        first, last = (self._parts[0], self._parts[-1]) if self._parts else (None, None)
        if not path:
            return first is None
        is_wrong = (first is not None and not first.fullmatch(path[0])) or (
            last is not None and not last.fullmatch(path[-1])
        )
        return not is_wrong and all(any(map(part.fullmatch, path)) for part in self._parts if part is not None)

    def _after(self, part: str, places: set[int]) -> set[int]:
        following = set()
        for place in places:
            if place == len(self._parts):
                continue
            wanted = self._parts[place]
            if wanted is None:
                following.add(place)
            elif wanted.fullmatch(part):
                following.add(place + 1)
        return following

    def _with_skips(self, places: set[int]) -> set[int]:
        """Add the positions after each `**`, which can also match nothing."""
        more = set(places)
        for place in sorted(places):
            while place < len(self._parts) and self._parts[place] is None:
                place += 1
                more.add(place)
        return more


def _part(text: str) -> re.Pattern[str]:
    """Compile one segment. Atomic groups prevent backtracking in a pattern with many stars."""
    first, *rest = [_escaped(piece) for piece in text.split("*")]
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle) + ".*" + last, re.DOTALL)


def parts_of(path: str) -> tuple[tuple[str, ...], bool]:
    """Return the segments of a path without `.` and `..`, and whether the path is absolute.

    A relative path that climbs above its start keeps its leading `..`.
    """
    path = path.removeprefix("file://")
    parts: list[str] = []
    is_absolute = path.startswith("/")
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif (part == ".." and not is_absolute) or part not in ("", ".", ".."):
            parts.append(part)
    return tuple(parts), is_absolute


@lru_cache(maxsize=4096)
def text_pattern(pattern: str) -> TextPattern:
    """Return the compiled text pattern, cached."""
    return TextPattern(pattern)


@lru_cache(maxsize=4096)
def path_pattern(pattern: str) -> PathPattern:
    """Return the compiled path pattern, cached."""
    return PathPattern(pattern)


def matches_any(patterns: Sequence[str], text: str) -> bool:
    """Return whether a name matches one of the patterns, ignoring case."""
    plain = folded(text)
    return any(text_pattern(pattern).matches(plain) for pattern in patterns)
