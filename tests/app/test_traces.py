"""A trace goes from whoever enqueues through the queue into runs, their children and their processes."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ade import Ade, Context, SyncContext, Unrecoverable
from ade.common.trace_context import read_trace
from ade.errors import InvalidTask, TaskFailed
from ade.settings import Settings
from ade.settings.sections import StoreSettings, TraceSettings, WorkerSettings
from tests.app.traced_tasks import told
from tests.domain import Role
from tests.server.conftest import start_server
from tests.stores.urls import store_url

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
PATIENCE_S = 90


def app(folder: Path, *, enabled: bool) -> Ade:
    store = StoreSettings(url=f"sqlite:///{folder / 'ade.db'}", ballast_mb=0)
    traces, worker = TraceSettings(enabled=enabled), WorkerSettings(lease_guard=False, cpu_processes=1)
    return Ade(settings=Settings(store=store, worker=worker, traces=traces))


@pytest.fixture
def plain(tmp_path: Path) -> Ade:
    return app(tmp_path, enabled=False)


@pytest.fixture
def traced(tmp_path: Path) -> Ade:
    return app(tmp_path, enabled=True)


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """There is one provider in a process, once and for all."""
    made, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


@asynccontextmanager
async def working(ade: Ade) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with ade:
        job = asyncio.create_task(ade.work(stop))
        yield
        stop.set()
        await job


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    return span.parent is not None and span.parent.span_id == parent.context.span_id


async def test_without_opentelemetry_the_text_is_carried_on(plain: Ade) -> None:
    @plain.task
    async def child(ctx: Context) -> str | None:
        return ctx.trace

    @plain.task
    async def parent(ctx: Context) -> list[str | None]:
        return [ctx.trace, (await ctx.enqueue(child)).id]

    @plain.task
    def threaded(ctx: SyncContext) -> str | None:
        return ctx.trace

    processed = plain.task(cpu=True)(told)
    async with working(plain):
        trace_text, child_id = await (await parent.with_options(trace=PARENT).enqueue()).result(timeout=PATIENCE_S)
        assert trace_text == PARENT
        assert await plain.handle(str(child_id)).result(timeout=PATIENCE_S) == PARENT
        assert await (await threaded.with_options(trace=PARENT).enqueue()).result(timeout=PATIENCE_S) == PARENT
        assert await (await threaded.enqueue()).result(timeout=PATIENCE_S) is None
        first = await processed.with_options(trace=PARENT).enqueue()
        assert await first.result(timeout=PATIENCE_S) == [PARENT, PARENT]
        other = await processed.with_options(trace="of another system").enqueue()
        assert await other.result(timeout=PATIENCE_S) == ["of another system", None]


async def test_spans_of_enqueuing_and_running_are_one_trace(traced: Ade, spans: InMemorySpanExporter) -> None:
    @traced.task
    async def child(ctx: Context) -> None: ...

    @traced.task(queue="mail")
    async def parent(ctx: Context) -> str:
        return (await ctx.enqueue(child)).id

    async with working(traced):
        with trace.get_tracer("a program").start_as_current_span("request"):
            task = await parent.enqueue()
        child_id = await task.result(timeout=PATIENCE_S)
        await traced.handle(child_id).result(timeout=PATIENCE_S)

    request, put, ran = named(spans, "request"), named(spans, "enqueue parent"), named(spans, "run parent")
    put_child, ran_child = named(spans, "enqueue child"), named(spans, "run child")
    assert len({trace_of(span) for span in (request, put, ran, put_child, ran_child)}) == 1
    chain = [request, put, ran, put_child, ran_child]
    assert all(is_below(span, above) for above, span in pairwise(chain))
    assert (put.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert ran.attributes is not None
    about = {key: ran.attributes[key] for key in ("messaging.message.id", "messaging.destination.name", "ade.attempt")}
    assert about == {"messaging.message.id": task.id, "messaging.destination.name": "mail", "ade.attempt": 1}


async def test_a_trace_that_was_given_goes_on(traced: Ade, spans: InMemorySpanExporter) -> None:
    processed = traced.task(cpu=True)(told)
    async with working(traced):
        text, variable = await (await processed.with_options(trace=PARENT).enqueue()).result(timeout=PATIENCE_S)

    run = named(spans, "run told")
    place = read_trace(text)
    assert place is not None
    assert run.context is not None
    assert (place.trace_id, place.span_id) == (TRACE, f"{run.context.span_id:016x}"), "the process is below the run"
    assert variable == text


async def test_many_at_once_share_a_span(traced: Ade, spans: InMemorySpanExporter) -> None:
    @traced.task
    async def step(number: int) -> None: ...

    async with traced:
        await traced.enqueue_many([step.call(number) for number in range(5)])
    put = named(spans, "enqueue step")
    assert put.attributes is not None
    assert put.attributes["messaging.batch.message_count"] == 5


async def test_a_failed_run_is_an_error(traced: Ade, spans: InMemorySpanExporter) -> None:
    @traced.task
    async def wrong() -> None:
        raise Unrecoverable("no use")

    async with working(traced):
        with pytest.raises(TaskFailed):
            await (await wrong.enqueue()).result(timeout=PATIENCE_S)
    run = named(spans, "run wrong")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes is not None
    assert run.attributes["error.type"] == "Unrecoverable"


def test_sync_callers_are_traced_too(traced: Ade, spans: InMemorySpanExporter) -> None:
    @traced.task
    async def quick() -> None: ...

    quick.enqueue().wait()
    quick.enqueue().wait()
    traced.close().wait()
    assert [span.name for span in spans.get_finished_spans()] == ["enqueue quick"] * 2


def test_what_is_no_text_is_refused(plain: Ade) -> None:
    @plain.task
    async def quick() -> None: ...

    for wrong in ("", "x" * 201, "two\nlines", "é", 7):
        with pytest.raises(InvalidTask, match="trace must have"):
            quick.with_options(trace=wrong)  # type: ignore[arg-type]  # what is refused


def run_program(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_without_the_extra_it_is_said_what_is_missing() -> None:
    program = """
import asyncio, sys
sys.modules["opentelemetry"] = None
from ade import Ade
from ade.errors import DriverMissing
from ade.settings import Settings
from ade.settings.sections import StoreSettings, TraceSettings
app = Ade(settings=Settings(store=StoreSettings(url="memory://"), traces=TraceSettings(enabled=True)))
try:
    asyncio.run(app.open())
except DriverMissing as error:
    print(error.code, error.detail)
"""
    said = run_program(program)
    assert said.startswith("driver_missing")
    assert "community-ade[otel]" in said


def test_whoever_wants_no_traces_loads_nothing_for_them() -> None:
    program = """
import asyncio, sys
from ade import Ade, Context
app = Ade("memory://")
@app.task
async def quick(ctx: Context) -> None: ...
async def main():
    stop = asyncio.Event()
    async with app:
        job = asyncio.create_task(app.work(stop))
        await (await quick.enqueue()).result(timeout=30)
        stop.set()
        await job
asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry") or name == "ade.worker.spans"])
"""
    assert run_program(program).strip().splitlines()[-1] == "[]"


async def test_a_request_is_a_span_of_its_caller_and_above_what_it_enqueues(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"traces.enabled": True}) as server:
        made = await server.ask("POST", "/api/v1/tasks", {"name": "greet"}, traceparent=PARENT)
        task_id = made.json()["id"]
        await server.ask("GET", f"/api/v1/tasks/{task_id}")
        await server.ask("GET", "/api/v1/nowhere/at-all")
        await server.ask("GET", "/livez")
        [task] = await server.stores.tasks.get([task_id])

    request, enqueued = named(spans, "POST /api/v1/tasks"), named(spans, "enqueue greet")
    assert trace_of(request) == TRACE
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    assert request.kind is SpanKind.SERVER
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/api/v1/tasks",
        "http.response.status_code": 201,
        "url.path": "/api/v1/tasks",
        "url.scheme": "http",
    }
    assert is_below(enqueued, request)
    assert task is not None
    assert task.trace is not None
    assert TRACE in task.trace
    read = named(spans, "GET /api/v1/tasks/{task_id}")
    assert read.parent is None  # without a traceparent it begins a trace
    assert trace_of(read) != TRACE
    missing = named(spans, "GET")  # no route, so the name has none
    assert (missing.attributes or {})["http.response.status_code"] == 404
    assert missing.status.status_code is StatusCode.UNSET  # a mistake of the client is not an error of the server
    assert not [span for span in spans.get_finished_spans() if "livez" in span.name]


async def test_a_fault_of_the_server_is_an_error_of_its_span(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"traces.enabled": True}) as server:
        await server.token(Role.OPERATOR)
        (tmp_path / "ade.db").unlink()
        assert (await server.ask("GET", "/readyz", by=None)).status == 503
        refused = await server.ask("POST", "/api/v1/tasks", {"name": "greet"})
        assert refused.status >= 500, refused

    request = named(spans, "POST /api/v1/tasks")
    assert request.status.status_code is StatusCode.ERROR
    assert (request.attributes or {})["error.type"] == str(refused.status)
