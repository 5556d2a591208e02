"""Conversions of task option values between the API and the task record.

Each `read_*` function takes the option name, for the error message, and the value. It raises InvalidTask.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ade.approvals.model import StartMode
from ade.common.gcra import read_rate
from ade.common.text import read_duration
from ade.common.trace_context import check_trace
from ade.errors import InvalidTask
from ade.failures import BACKOFFS, Backoff
from ade.locks import model as locks
from ade.locks.model import LockSpec, lock_specs_of, merged
from ade.tasks.admission import check_queue_name, needs_of
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import AfterFailure

_LONGEST_S = 3_200_000_000  # slightly more than 100 years
_ROLLBACKS = ("automatic", "manual", "none")
_LONGEST_STEPS = 10_000  # characters
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def read_text(name: str, value: object) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InvalidTask(f"{name} must be text, not {value!r}")
    return value


def read_whole(name: str, value: object) -> int:
    """Return an integer; booleans are rejected."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTask(f"{name} must be a whole number, not {value!r}")
    return value


def read_count(name: str, value: object) -> int:
    """Return an integer of at least 1."""
    count = read_whole(name, value)
    if count < 1:
        raise InvalidTask(f"{name} must be at least 1, not {count}")
    return count


def read_queue(name: str, value: object) -> str:
    """Return a valid queue name."""
    queue = read_text(name, value)
    check_queue_name(queue)
    return queue


_LONGEST_VERSION = 100


def read_version(name: str, value: object) -> str:
    """Return the version of a task's code, which people are shown."""
    version = read_text(name, value)
    if not version.strip() or not version.isprintable() or len(version) > _LONGEST_VERSION:
        raise InvalidTask(f"{name} must be 1 to {_LONGEST_VERSION} printable characters, such as a release or a commit")
    return version


def read_priority(_name: str, value: object) -> int:
    """Return a priority from 0 to 9, given as a number or by name."""
    return locks.read_priority(value)


def read_ms(name: str, value: object, *, least: float = 0.001) -> int:
    """Return whole milliseconds for seconds or a timedelta."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise InvalidTask(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    if seconds < least:
        raise InvalidTask(f"{name} must be at least {least:g} seconds, not {value!r}")
    if seconds > _LONGEST_S:
        raise InvalidTask(f"{name} must be at most {_LONGEST_S:,} seconds, not {value!r}")
    return round(seconds * 1000)


def read_ms_or_none(name: str, value: object) -> int | None:
    """Return whole milliseconds, or None for None."""
    return None if value is None else read_ms(name, value)


def read_limit_ms(name: str, value: object) -> int:
    """Return milliseconds, or 0 for None: an explicit "no limit", which a missing value is not."""
    return read_ms_or_none(name, value) or 0


def read_moment(name: str, value: object) -> int:
    """Return milliseconds UTC for a datetime with a time zone."""
    if not isinstance(value, datetime):
        raise InvalidTask(f"{name} must be a datetime, not {value!r}")
    if value.tzinfo is None:
        raise InvalidTask(f"{name} {value.isoformat()} has no time zone; add one, for instance tzinfo=timezone.utc")
    return round(value.timestamp() * 1000)


def read_id(name: str, value: object) -> str:
    """Return a task ID, given as a string or as an object with an `id`."""
    task_id = getattr(value, "id", value)
    if not isinstance(task_id, str) or not is_task_id(task_id):
        raise InvalidTask(f"{name} must name tasks by handle or id, not {str(value)[:80]!r}")
    return task_id


def read_texts(name: str, value: object) -> tuple[str, ...]:
    """Return a tuple of strings; a single string is rejected."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidTask(f"{name} must be a list of texts, not {value!r}")
    return tuple(read_text(name, each) for each in value)


def read_needs(name: str, value: object) -> tuple[str, ...]:
    """Return the required capabilities, sorted and without duplicates."""
    return needs_of(read_texts(name, value))


def read_locks(name: str, value: object) -> tuple[LockSpec, ...]:
    """Return lock specs, merged per resource; a plain string is an exclusive lock."""
    if isinstance(value, str | LockSpec) or not isinstance(value, Iterable):
        raise InvalidTask(f'{name} must be a list such as [write("repo:app"), read("db:main")], not {value!r}')
    wanted = tuple(value)
    for one in wanted:
        if not isinstance(one, str | LockSpec):
            raise InvalidTask(f"{name} must name resources, by read(...), write(...) or as text, not {one!r}")
    return merged(lock_specs_of(wanted))


def read_resources(name: str, value: object) -> tuple[str, ...]:
    """Return the resource names of a list of lock specs or strings."""
    return tuple(lock.resource for lock in read_locks(name, value))


def read_backoff(name: str, value: object) -> Backoff:
    """Return a Backoff, given as such, by the name of a preset, or as a list of delays such as "1m,5m,15m"."""
    if isinstance(value, Backoff):
        return value
    preset = BACKOFFS.get(value) if isinstance(value, str) else None
    steps = _steps_ms(value) if preset is None and isinstance(value, str) else ()
    if preset is None and not steps:
        raise InvalidTask(
            f"{name} must be a Backoff(...), {' or '.join(BACKOFFS)}, or delays such as 30s or 1m,5m,15m,"
            f" not {value!r:.120}"
        )
    return preset or Backoff(steps_ms=steps)


def _steps_ms(text: str) -> tuple[int, ...]:
    """Return the delays of a list such as "30s,1m,2h" in milliseconds; empty if it is not such a list."""
    found = [read_duration(part) for part in text.split(",")] if len(text) <= _LONGEST_STEPS else []
    steps = tuple(step for step in found if step is not None)
    return steps if len(steps) == len(found) else ()


def read_after_failure(name: str, value: object) -> AfterFailure:
    """Return an AfterFailure, given as such or by its value."""
    try:
        return AfterFailure(value)  # type: ignore[arg-type] # anything else is the error below
    except ValueError:
        raise InvalidTask(f"{name} must be one of {', '.join(AfterFailure)}, not {value!r}") from None


def read_start(name: str, value: object) -> StartMode:
    """Return a StartMode, given as such or by its value."""
    try:
        return StartMode(value)  # type: ignore[arg-type] # anything else is the error below
    except ValueError:
        raise InvalidTask(f"{name} must be one of {', '.join(StartMode)}, not {value!r}") from None


def read_rollback(name: str, value: object) -> str:
    """Return a rollback mode: automatic, manual, or none."""
    if value not in _ROLLBACKS:
        raise InvalidTask(f"{name} must be one of {', '.join(_ROLLBACKS)}, not {value!r}")
    return str(value)


def read_trace_place(_name: str, value: object) -> str:
    """Return a trace position: printable ASCII, usually a W3C traceparent."""
    return check_trace(value)


def parse_rate(value: object) -> tuple[int, int]:
    """Parse a rate such as "100/m" into (100, 60000): starts per period in milliseconds."""
    rate = read_rate(value) if isinstance(value, str) else None
    if rate is None:
        raise InvalidTask(f"rate {value!r} is not valid: write a count and a period, such as 100/m, 5/s or 10/30s")
    return rate


def as_seconds(value: int | None) -> float | None:
    """Convert milliseconds to seconds; None stays None."""
    return None if value is None else value / 1000


def as_moment(value: int | None) -> datetime | None:
    """Convert the milliseconds of a record to a datetime in UTC; None stays None."""
    return None if value is None else datetime.fromtimestamp(value / 1000, UTC)


def rate_text(count: int, period_ms: int) -> str:
    """Format (100, 60000) as "100/1m"."""
    unit, length_ms = next(each for each in _UNITS_MS if period_ms % each[1] == 0 or each[0] == "s")
    return f"{count}/{max(period_ms // length_ms, 1)}{unit}"
