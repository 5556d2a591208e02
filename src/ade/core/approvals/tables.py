"""Plain data, as TOML or JSON gives it, read field by field. Every mistake names its place and what to write there."""

import math
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from ade.core.approvals.canonical import MOST_EXACT
from ade.core.approvals.refusals import InvalidRulebook
from ade.core.durations import read_duration, written_duration

Word = TypeVar("Word", bound=StrEnum)
_MOST_TEXT = 1_000


class Table:
    """One table. What nobody has asked for when it is `read_up` is a mistake: it may be a misspelt condition."""

    def __init__(self, data: object, place: str) -> None:
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise InvalidRulebook(f"{place} must be a table of names and values, not {_shown(data)}")
        self._data: Mapping[str, object] = data
        self._known: list[str] = []
        self.place = place

    def wrong(self, key: str, what: str) -> InvalidRulebook:
        return InvalidRulebook(f"{self._at(key)} {what}")

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def has(self, key: str) -> bool:
        return self.value(key) is not None

    def value(self, key: str) -> object:
        self._known.append(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.value(key)
        return None if value is None else self._checked(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        value = self.value(key)
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not listed:
            raise self.wrong(key, f'must be a list of texts such as ["one", "two"], not {_shown(value)}')
        return tuple(self._checked(key, each) for each in listed)

    def _checked(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > _MOST_TEXT:
            raise self.wrong(key, f"must be text of 1 to {_MOST_TEXT} characters, not {_shown(value)}")
        return self.whole_text(key, value)

    def whole_text(self, key: str, value: str) -> str:
        """The text, if all that it goes to can take it: files, databases, other programs."""
        if any("\ud800" <= char <= "\udfff" or char == "\0" for char in value):
            raise self.wrong(key, "has NUL or half of a surrogate pair in it, which not every program can read")
        return value

    def flag(self, key: str) -> bool:
        """False unless it is said to be true."""
        value = self.value(key)
        if not isinstance(value, bool | None):
            raise self.wrong(key, f"must be true or false, not {_shown(value)}")
        return bool(value)

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"must be a whole number from {least} to {most}, not {_shown(value)}")
        return value

    def number(self, key: str, *, least: float, most: float) -> float | None:
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(key, f"must be a number from {least} to {most}, not {_shown(value)}")
        return float(value)

    def word(self, key: str, words: Iterable[Word]) -> Word | None:
        value = self.value(key)
        return None if value is None else self._one_of(key, value, list(words))

    def words(self, key: str, words: Iterable[Word]) -> frozenset[Word]:
        known = list(words)
        return frozenset(self._one_of(key, each, known) for each in self.texts(key))

    def _one_of(self, key: str, value: object, known: list[Word]) -> Word:
        for word in known:
            if value == word.value:
                return word
        raise self.wrong(key, f"must be {_either([word.value for word in known])}, not {_shown(value)}")

    def duration(self, key: str, *, most_ms: int) -> int | None:
        value = self.value(key)
        if value is None:
            return None
        ms = read_duration(value) if isinstance(value, str) else None
        if ms is None or not 0 < ms <= most_ms:
            longest = written_duration(most_ms)
            raise self.wrong(
                key, f'must be a time such as "90s", "15m", "4h", at most "{longest}", not {_shown(value)}'
            )
        return ms

    def tables(self, key: str) -> "Iterator[Table]":
        """A list of tables, each with its number from 1 in its place."""
        value = self.value(key)
        if not isinstance(value, list | tuple | None):
            raise self.wrong(key, f"must be a list of tables, not {_shown(value)}")
        for number, each in enumerate(value or (), 1):
            yield Table(each, f"{self._at(key)}[{number}]")

    def table(self, key: str) -> "Table":
        value = self.value(key)
        return Table({} if value is None else value, self._at(key))

    def names(self) -> list[str]:
        return list(self._data)

    def items(self) -> Iterator[tuple[str, object]]:
        """All of them, for a table whose names are free."""
        self._known.extend(self._data)
        yield from self._data.items()

    def read_up(self) -> None:
        """Raise for names that mean nothing here."""
        for key in self._data:
            if key not in self._known:
                near = get_close_matches(key, self._known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(set(self._known)))}"
                raise self.wrong(key[:100], f"is not known; {hint}")


def scalar(table: Table, key: str, value: object) -> str | int | float | bool:
    """A value to compare an argument with."""
    if isinstance(value, str):
        return table._checked(key, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MOST_EXACT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise table.wrong(
        key, f"must be a pattern for text, a number, true, false, or a list of these, not {_shown(value)}"
    )


def _either(words: list[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.80}"
