"""Reasons why a task is not running, and the formatting of times and IDs in them."""

from datetime import UTC, datetime

from msgspec import Struct, structs


class Reason(Struct, frozen=True, kw_only=True):
    """`advice` is what helps at a command line; a fact that there is not is left out."""

    code: str
    sentence: str
    facts: dict[str, object] = {}
    advice: str | None = None

    def __post_init__(self) -> None:
        if None in self.facts.values():
            known = {name: value for name, value in self.facts.items() if value is not None}
            structs.force_setattr(self, "facts", known)


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
    """Format a time as RFC 3339 in UTC."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def span(ms: int) -> str:
    """Format a duration in its two largest units."""
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
    """List a few IDs and the number of the others."""
    shown = ", ".join(ids[:most])
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown


def short_span(ms: int) -> str:
    """Format a duration in its largest unit: `3 min`."""
    seconds = max(ms, 0) / 1000
    for unit, size, smaller in (("d", 86_400, 3600), ("h", 3600, 60), ("min", 60, 1)):
        if seconds >= size - smaller / 2:  # 59.8 min are an hour, not 60 min
            return f"{seconds / size:.0f} {unit}"
    if seconds < 1:
        return f"{max(ms, 0)} ms"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
