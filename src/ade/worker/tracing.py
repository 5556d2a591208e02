"""Traces: where a run stands in one, and the way to OpenTelemetry, of which nothing is loaded unless it is wanted."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

from ade.core.errors import DriverMissing

if TYPE_CHECKING:
    from ade.worker.spans import Spans

current_trace: ContextVar[str | None] = ContextVar("ade_trace", default=None)  # of the run whose span is open


def open_spans() -> "Spans":
    """What makes spans. Raises DriverMissing where OpenTelemetry is not installed."""
    try:
        from ade.worker.spans import Spans
    except ImportError as error:
        raise DriverMissing(
            f"traces.enabled needs OpenTelemetry, which is not installed ({error.name}): install ADE with its extra,"
            " `pip install 'ade[otel]'`, or set traces.enabled = false"
        ) from None
    return Spans()
