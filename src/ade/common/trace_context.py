"""W3C Trace Context: reading and writing traceparent values, `00-<trace id>-<span id>-<flags>`."""

import re

from msgspec import Struct

from ade.errors import InvalidTask

VARIABLE = "TRACEPARENT"  # the environment variable for child processes
MOST_CHARACTERS = 200
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_NO_TRACE, _NO_SPAN, _UNKNOWN_VERSION = "0" * 32, "0" * 16, "ff"


class SpanContext(Struct, frozen=True):
    """A span of a trace. Both IDs are lower-case hexadecimal."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    def child(self, span_id: str) -> "SpanContext":
        """Return a child span in the same trace."""
        return SpanContext(self.trace_id, span_id, self.is_sampled)


def read_trace(text: str | None) -> SpanContext | None:
    """Parse a traceparent; None if it is invalid. Of a later version, only the known fields are read."""
    found = _PARENT.fullmatch(text.strip()) if text else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _UNKNOWN_VERSION or trace_id == _NO_TRACE or span_id == _NO_SPAN or (version == "00" and more):
        return None
    return SpanContext(trace_id, span_id, bool(int(flags, 16) & 1))


def written_trace(place: SpanContext) -> str:
    """Return the traceparent of a span."""
    return f"00-{place.trace_id}-{place.span_id}-{'01' if place.is_sampled else '00'}"


def check_trace(text: object) -> str:
    """Check a trace value. Other formats than traceparent are allowed. Raises InvalidTask."""
    if not isinstance(text, str) or not 0 < len(text) <= MOST_CHARACTERS or not (text.isprintable() and text.isascii()):
        raise InvalidTask(f"trace must have 1 to {MOST_CHARACTERS} printable ASCII characters, such as a traceparent")
    return text


def environment_of_trace(text: str | None) -> dict[str, str]:
    """Return the environment variable that makes a child process join the trace; {} without one."""
    place = read_trace(text)
    return {} if place is None else {VARIABLE: written_trace(place)}
