"""ADE on SQLite. The only module here that knows ADE's Python API."""

import asyncio
import contextlib
import importlib
import importlib.metadata
import sqlite3
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.contract import Body, Contestant, measure_length

Result = TypeVar("Result")
PRIORITIES = 10  # 0 to 9, 0 first


class AdeQueue:
    def describe(self, place: Path) -> Mapping[str, str]:
        journal = asyncio.run(_journal_mode(place))
        return {
            "version": importlib.metadata.version("community-ade"),
            "sqlite": str(importlib.import_module("apsw").sqlite_lib_version()),
            "in force": f"journal_mode={journal}; synchronous belongs to each connection and cannot be "
            "read from outside",
            "set for this run": "nothing: a worker with its defaults, on uvloop; callers on asyncio's loop",
            "default": "synchronous=FULL, commits of concurrent callers grouped",
            "its docs recommend": "the defaults",
            "enqueue many": "enqueue_many, one call per batch",
            "result stored": "yes, with the task's events",
            "killed in mid-task": "the task runs again when its lease has run out",
        }

    def enqueue_one_by_one(self, place: Path, texts: Sequence[str]) -> float:
        return self.enqueue_in_flight(place, texts, callers=1)

    def enqueue_in_flight(self, place: Path, texts: Sequence[str], callers: int) -> float:
        async def caller(noop: Any, share: Sequence[str]) -> None:
            for text in share:
                await noop.enqueue(text)

        async def enqueue() -> float:
            async with _opened(place, measure_length) as (_, noop):
                shares = [texts[start::callers] for start in range(callers)]
                began = time.perf_counter()
                await asyncio.gather(*(caller(noop, share) for share in shares))
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def enqueue_many(self, place: Path, texts: Sequence[str], batch: int) -> float:
        async def enqueue() -> float:
            async with _opened(place, measure_length) as (app, noop):
                began = time.perf_counter()
                for start in range(0, len(texts), batch):
                    await _enqueue_batch(app, [(noop, text) for text in texts[start : start + batch]])
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def fill(self, place: Path, texts: Sequence[str], priorities: int) -> None:
        async def enqueue() -> None:
            async with _opened(place, measure_length) as (app, noop):
                # One priority is the default one; more are spread over the whole range.
                levels = [noop] if priorities == 1 else [_urgent(noop, level) for level in range(PRIORITIES)]
                calls = [(levels[number % len(levels)], text) for number, text in enumerate(texts)]
                for start in range(0, len(calls), 1000):
                    await _enqueue_batch(app, calls[start : start + 1000])

        asyncio.run(enqueue())

    def drain(self, place: Path, count: int) -> float:
        async def work() -> float:
            last_has_run = asyncio.Event()
            left = count

            def body(text: str) -> int:
                nonlocal left
                left -= 1
                if left == 0:
                    last_has_run.set()
                return measure_length(text)

            async with _opened(place, body) as (app, _):
                began = time.perf_counter()
                worker = asyncio.create_task(app.run_worker())
                await last_has_run.wait()
                # Only now look at the store: counting while it works would slow it down.
                while await _completed(app) < count:  # noqa: ASYNC110  # what is waited for is in the store
                    await asyncio.sleep(0.001)
                took = time.perf_counter() - began
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
                return took

        return _run_on_uvloop(work())

    def enqueue_at(self, place: Path, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        async def enqueue() -> list[int]:
            calls: list[int] = []
            async with _opened(place, measure_length) as (_, noop):
                began = time.monotonic()
                for moment, text in zip(moments, texts, strict=True):
                    await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
                    calls.append(time.monotonic_ns())
                    await noop.enqueue(text)
            return calls

        return asyncio.run(enqueue())

    def work(self, place: Path, body: Body) -> None:
        async def serve() -> None:
            async with _opened(place, body) as (app, _):
                await app.run_worker()

        _run_on_uvloop(serve())


@contextlib.asynccontextmanager
async def _opened(place: Path, body: Body) -> AsyncIterator[tuple[Any, Any]]:
    """The app and its one task, closed at the end."""
    app = importlib.import_module("ade").Ade(f"sqlite:///{_file(place)}")

    async def noop(payload: str) -> int:
        return body(payload)

    async with app:
        yield app, app.task(name="noop")(noop)


async def _journal_mode(place: Path) -> str:
    async with _opened(place, measure_length) as (_, noop):
        await noop.enqueue("")
        with contextlib.closing(sqlite3.connect(_file(place))) as connection:
            [mode] = connection.execute("PRAGMA journal_mode").fetchone()
            return str(mode)


def _file(place: Path) -> Path:
    return place / "ade.db"


async def _enqueue_batch(app: Any, calls: Sequence[tuple[Any, str]]) -> None:
    await app.enqueue_many([task.call(text) for task, text in calls])


def _urgent(task: Any, priority: int) -> Any:
    return task.with_options(priority=priority)


async def _completed(app: Any) -> int:
    counts = await app.stats()
    return int(counts["completed"])


def _run_on_uvloop(main: Coroutine[Any, Any, Result]) -> Result:
    result: Result = importlib.import_module("uvloop").run(main)
    return result


CONTESTANT: Contestant = AdeQueue()
