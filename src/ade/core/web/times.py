"""Moments as the API writes them: RFC 3339 in UTC to the millisecond; inside ADE they are integer milliseconds.

How it is used: the decoder of bodies and queries calls `read_time` for fields of this kind; the ValueError it raises
becomes 422 for a body's field, 400 for a parameter.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from ade.core.admission import LAST_MOMENT

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _SECOND = timedelta(milliseconds=1), timedelta(seconds=1)


def read_time(text: str) -> int:
    """Milliseconds since 1970; what is finer is cut off. Raises ValueError, also for a time without its offset."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:60]!r} is no time: write it as in RFC 3339, with the offset: 2026-01-31T12:00:00Z or"
            " 2026-01-31T13:00:00.250+01:00"
        )
    *fields, fraction, _zulu, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, fields)
    try:
        offset = _offset(sign, hours, minutes)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=offset)
    except ValueError as error:
        raise ValueError(f"{text[:60]!r} is no time: {error}") from None
    at = (moment - _EPOCH) // _MILLISECOND + int((fraction or "0").ljust(3, "0")[:3])
    if not 0 <= at <= LAST_MOMENT:
        raise ValueError(f"{text[:60]!r} is out of range: times are from 1970 to the end of the year 9999")
    return at


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> timezone:
    if sign is None or hours is None or minutes is None:
        return UTC
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError("an offset is at most 23:59")
    away = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-away if sign == "-" else away)


@lru_cache(maxsize=4_096)  # many records have the same moment twice, and the same lists are asked for again
def write_time(at: int) -> str:
    """What `read_time` reads back; always of the same length, so that texts sort as moments do."""
    if not 0 <= at <= LAST_MOMENT:
        raise ValueError(f"{at} is out of range: times are from 1970 to the end of the year 9999")
    return f"{_second(at // 1000)}.{at % 1000:03d}Z"


@lru_cache(maxsize=4_096)  # most moments of an answer are near each other
def _second(seconds: int) -> str:
    return f"{_EPOCH + seconds * _SECOND:%Y-%m-%dT%H:%M:%S}"
