"""Why a task does not run, each reason with a stable code, the facts behind it and a sentence."""

from datetime import UTC, datetime

from msgspec import Struct


class Reason(Struct, frozen=True, kw_only=True):
    code: str
    sentence: str
    facts: dict[str, object] = {}


class Explanation(Struct, frozen=True, kw_only=True):
    """One truthful answer. `reasons` come in the order in which they must be lifted."""

    task_id: str
    status: str
    sentence: str
    reasons: list[Reason]

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.reasons]


def moment(at_ms: int) -> str:
    """A time for people and programs: RFC 3339, in UTC."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def span(ms: int) -> str:
    """A length of time, roughly: the two largest units."""
    seconds = max(ms, 0) / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    leading = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[leading : leading + 2] if count)


def listed(ids: list[str], most: int = 5) -> str:
    """A few ids, and how many more there are."""
    shown = ", ".join(ids[:most])
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown
