"""Instrumentation of a worker: the current run and trace context, OpenTelemetry spans, and test hooks."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from ade.errors import DriverMissing

if TYPE_CHECKING:
    from ade.worker.spans import Spans


class RunReference(NamedTuple):
    """A run: its task, its ID, its lock scope, and who wrote the task."""

    task_id: str
    run_id: str
    scope: str = ""
    author: str | None = None
    writers: frozenset[str] = frozenset()  # the author, and others who cannot approve what the run enqueues


current_run: ContextVar[RunReference | None] = ContextVar("ade_run", default=None)  # whose code this is


# Traces: the trace context of a run. OpenTelemetry is loaded only if it is enabled.


current_trace: ContextVar[str | None] = ContextVar("ade_trace", default=None)  # of the run with the open span


def open_spans() -> "Spans":
    """Create the span factory. Raises DriverMissing if OpenTelemetry is not installed."""
    try:
        from ade.worker.spans import Spans
    except ImportError as error:
        raise DriverMissing(
            f"traces.enabled needs OpenTelemetry, which is not installed ({error.name}): install ADE with its extra,"
            " `pip install 'community-ade[otel]'`, or set traces.enabled = false"
        ) from None
    return Spans()


CLAIMED, PERFORMED, COMMITTED = "claimed", "performed", "committed"


class WorkerProbe:
    """Hooks at which a test can pause, inspect, or kill the worker. In production `armed` is False."""

    __slots__ = ("_hooks", "armed")

    def __init__(self) -> None:
        self._hooks: dict[str, Callable[[], Awaitable[None]]] = {}
        self.armed = False

    def on(self, point: str, hook: Callable[[], Awaitable[None]]) -> None:
        self._hooks[point] = hook
        self.armed = True

    async def __call__(self, point: str) -> None:
        hook = self._hooks.get(point)
        if hook is not None:
            await hook()
