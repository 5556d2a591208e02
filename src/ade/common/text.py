"""Lengths of time as people write them in rules: `90s`, `15m`, `4h`, `7d`, `1h30m`."""

import re

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|s|m|h|d))+", re.ASCII)


def read_duration(text: str) -> int | None:
    """Milliseconds; None for what is no length of time. A bare number is none: nobody could tell its unit."""
    compact = "".join(text.lower().split())
    if not _WHOLE.fullmatch(compact):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(compact))


def written_duration(ms: int) -> str:
    """In the largest unit that needs no fraction; `read_duration` reads it back."""
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"


# URLs as they may be shown.


# Up to the last @: one in a password may not be escaped.
_LOGIN = re.compile(r"(?:(?<=://)|(?<=\A//))(?P<user>[^/?#:]*):.*", re.DOTALL)
_OPTION = re.compile(r"(?P<name>[?&]\w*password)=[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL with *** in place of the password, if there is one."""
    login, at, rest = url.rpartition("@")
    if at:
        url = _LOGIN.sub(r"\g<user>:***", login, count=1) + at + rest
    return _OPTION.sub(r"\g<name>=***", url)


# Text from handlers, made fit for every store: a lone surrogate, as in a badly decoded file name, has no UTF-8.


def storable(text: str) -> str:
    """The text, with what cannot be written as UTF-8 spelled out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
