"""ADE on SQLite. The only module here that knows ADE's Python API."""

import asyncio
import contextlib
import importlib.metadata
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import uvloop

from ade import Ade, Status
from ade.app.functions import TaskFunction
from benchmarks.contract import Body, Contestant, measure_length

Result = TypeVar("Result")
Noop = TaskFunction[[str], int]
PRIORITIES = 10  # 0 to 9, 0 first


class AdeQueue:
    def describe(self, place: Path) -> Mapping[str, str]:
        facts = asyncio.run(_facts(place))
        return {
            "version": importlib.metadata.version("community-ade"),
            "sqlite": apsw.sqlite_lib_version(),
            "in force": f"journal_mode={facts['journal_mode']}, synchronous=full (the setting's default)",
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
        async def caller(noop: Noop, share: Sequence[str]) -> None:
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
                levels = (
                    [noop] if priorities == 1 else [noop.with_options(priority=level) for level in range(PRIORITIES)]
                )
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
                stop = asyncio.Event()
                worker = asyncio.create_task(app.work(stop))
                await last_has_run.wait()
                # Only now look at the store: counting while it works would slow it down.
                while await _completed(app) < count:  # noqa: ASYNC110  # what is waited for is in the store
                    await asyncio.sleep(0.001)
                took = time.perf_counter() - began
                stop.set()
                await worker
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
        app, _ = _app(place, body)
        app.run_worker()


def _app(place: Path, body: Body) -> tuple[Ade, Noop]:
    app = Ade(f"sqlite:///{_file(place)}")

    @app.task(name="noop")
    async def noop(payload: str) -> int:
        return body(payload)

    return app, noop


@contextlib.asynccontextmanager
async def _opened(place: Path, body: Body) -> AsyncIterator[tuple[Ade, Noop]]:
    """The app and its one task, closed at the end."""
    app, noop = _app(place, body)
    async with app:
        yield app, noop


async def _facts(place: Path) -> Mapping[str, object]:
    async with _opened(place, measure_length) as (app, _):
        return (await (await app.open()).stores.upkeep.health()).facts


def _file(place: Path) -> Path:
    return place / "ade.db"


async def _enqueue_batch(app: Ade, calls: Sequence[tuple[Noop, str]]) -> None:
    await app.enqueue_many([task.call(text) for task, text in calls])


async def _completed(app: Ade) -> int:
    tallies = await (await app.open()).stores.queues.tallies()
    return sum(tally.count for tally in tallies if tally.status is Status.COMPLETED)


def _run_on_uvloop(main: Coroutine[object, object, Result]) -> Result:
    return uvloop.run(main)


CONTESTANT: Contestant = AdeQueue()
