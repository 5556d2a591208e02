"""OpenTelemetry spans of tasks and HTTP requests, by the messaging and HTTP conventions. Loaded only for traces."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from msgspec import structs
from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ade import VERSION
from ade.common.trace_context import SpanContext as Trace_ContextSpanContext
from ade.common.trace_context import read_trace, written_trace
from ade.events.prometheus import METHODS
from ade.stores.ports import BlockingInserts, Stores, TaskStore
from ade.tasks.model import Task
from ade.tasks.outcomes import Failed, Outcome
from ade.worker.instrumentation import current_trace

_LONGEST_PATH, _SERVER_FAULT = 500, 500


class Spans:
    """Creates spans with the tracer provider of the program. If there is none, it sets one that exports by OTLP,
    configured by the environment (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on).
    """

    def __init__(self) -> None:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(_sending())
        self._tracer = trace.get_tracer("ade", VERSION)

    async def __call__(self, task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """The outermost middleware: create the span of a run."""
        about = {
            **_about("run", "process", task.queue, task.name),
            "messaging.message.id": task.id,
            "ade.attempt": task.attempt,
            "ade.worker": task.worker_id or "",
        }
        with self._span(f"run {task.name}", _parent(task.trace), SpanKind.CONSUMER, about) as span:
            token = current_trace.set(_text(span))
            try:
                outcome = await proceed()
            finally:
                current_trace.reset(token)
            if isinstance(outcome, Failed):
                span.set_status(Status(StatusCode.ERROR, outcome.error.message[:500]))
                span.set_attribute("error.type", outcome.error.type)
            return outcome

    def over(self, stores: Stores) -> Stores:
        """Return the stores with a span for every insert of tasks."""
        tasks = cast(TaskStore, _TracedTaskStore(stores.tasks, self))
        blocking = (
            None if stores.blocking is None else cast(BlockingInserts, _TracedBlockingInserts(stores.blocking, self))
        )
        return replace(stores, tasks=tasks, blocking=blocking)

    @contextmanager
    def enqueuing(self, tasks: Sequence[Task]) -> Iterator[list[Task]]:
        """Create one span per trace; yields the tasks to store, each with its trace context."""
        here = trace.get_current_span().get_span_context()
        spans: dict[str | None, Span] = {}
        try:
            for task in tasks:
                if task.trace not in spans:
                    spans[task.trace] = self._enqueue_span(task, tasks, here)
            yield [structs.replace(task, trace=_text(spans[task.trace])) for task in tasks]
        except BaseException as error:
            for span in spans.values():
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            for span in spans.values():
                span.end()

    def _enqueue_span(self, task: Task, tasks: Sequence[Task], here: SpanContext) -> Span:
        together = [each for each in tasks if each.trace == task.trace]
        names = {each.name for each in together}
        about = _about("enqueue", "send", task.queue, task.name if len(names) == 1 else "")
        if len(together) > 1:
            about["messaging.batch.message_count"] = len(together)
        else:
            about["messaging.message.id"] = task.id
        given = read_trace(task.trace)
        is_inside = here.is_valid and (given is None or int(given.trace_id, 16) == here.trace_id)
        parent = contexts.get_current() if is_inside else _parent(task.trace)
        name = f"enqueue {task.name}" if len(names) == 1 else "enqueue"
        return self._tracer.start_span(name, parent, SpanKind.PRODUCER, about)

    @contextmanager
    def answering(self, method: str, scheme: str, path: str, traceparent: str | None) -> Iterator[Span]:
        """Create the span of an HTTP request, below that of its caller if it names one."""
        about = {"http.request.method": _method(method), "url.path": path[:_LONGEST_PATH], "url.scheme": scheme}
        with self._span(_method(method), _parent(traceparent), SpanKind.SERVER, about) as span:
            yield span

    def answered(self, span: Span, method: str, route: str | None, status: int) -> None:
        """Add the route and the status of the response to the span of a request. Only a fault of the server is an
        error, as the conventions say."""
        span.set_attribute("http.response.status_code", status)
        if route is not None:
            span.update_name(f"{_method(method)} {route}")
            span.set_attribute("http.route", route)
        if status >= _SERVER_FAULT:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", str(status))

    @contextmanager
    def _span(self, name: str, parent: Context, kind: SpanKind, about: dict[str, Any]) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name, parent, kind, about, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span


class _TracedTaskStore:
    """A TaskStore with a traced `add`."""

    def __init__(self, real: TaskStore, spans: Spans) -> None:
        self._real = real
        self._spans = spans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        with self._spans.enqueuing(tasks) as traced:
            return await self._real.add(traced)


class _TracedBlockingInserts:
    def __init__(self, real: BlockingInserts, spans: Spans) -> None:
        self._real = real
        self._spans = spans

    def add(self, tasks: Sequence[Task]) -> list[Task] | None:
        with self._spans.enqueuing(tasks) as traced:
            return self._real.add(traced)


def _method(text: str) -> str:
    """The method, or the word that the conventions have for an unknown one: clients can send any text."""
    return text if text in METHODS else "_OTHER"


def _about(verb: str, kind: str, queue: str, name: str) -> dict[str, Any]:
    about: dict[str, Any] = {
        "messaging.system": "ade",
        "messaging.operation.name": verb,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }
    return about | ({"ade.task": name} if name else {})


def _parent(text: str | None) -> Context:
    """Return a context with the span that a trace context names, else an empty one: the worker's own context is
    unrelated.
    """
    place = read_trace(text)
    if place is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if place.is_sampled else TraceFlags.DEFAULT)
    remote = SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(remote), Context())


def _text(span: Span) -> str:
    made = span.get_span_context()
    is_sampled = bool(made.trace_flags & TraceFlags.SAMPLED)
    return written_trace(Trace_ContextSpanContext(f"{made.trace_id:032x}", f"{made.span_id:016x}", is_sampled))


def _sending() -> trace.TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_NAME: "ade"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
