"""Text helpers: durations such as `90s`, names of accounts, masks, URLs without passwords, and valid UTF-8 text."""

import re
from collections.abc import Mapping

HIDDEN = "[hidden]"  # instead of a secret
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|s|m|h|d))+", re.ASCII)


def read_duration(text: str) -> int | None:
    """Return milliseconds, or None for an invalid duration. A unit is required."""
    compact = "".join(text.lower().split())
    if not _WHOLE.fullmatch(compact):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(compact))


def written_duration(ms: int) -> str:
    """Write a duration in its largest unit without a fraction, for `read_duration`."""
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"


def with_name(account: str, display_name: str | None) -> str:
    """Write an account for people: its display name, if there is one, and its ID."""
    return f"{display_name} ({account})" if display_name and display_name != account else account


# Up to the last @, because an @ in a password might not be escaped.
_LOGIN = re.compile(r"(?:(?<=://)|(?<=\A//))(?P<user>[^/?#:]*):.*", re.DOTALL)
_OPTION = re.compile(r"(?P<name>[?&]\w*password)=[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Return the URL with *** in place of its password, if any."""
    login, at, rest = url.rpartition("@")
    if at:
        url = _LOGIN.sub(r"\g<user>:***", login, count=1) + at + rest
    return _OPTION.sub(r"\g<name>=***", url)


def without_passwords(value: object) -> object:
    """Return a value with `without_password` applied to all text in it, such as the URLs of a settings table."""
    if isinstance(value, str):
        return without_password(value)
    if isinstance(value, Mapping):
        return {name: without_passwords(each) for name, each in value.items()}
    return [without_passwords(each) for each in value] if isinstance(value, list | tuple) else value


def storable(text: str) -> str:
    """Escape what UTF-8 cannot encode, such as a lone surrogate in a badly decoded file name."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
