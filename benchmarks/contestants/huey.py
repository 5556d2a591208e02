"""Huey on SQLite: a task queue with worker threads, results and priorities."""

import importlib
import importlib.metadata
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contract import Body, Contestant, measure_length
from benchmarks.pacing import call_at, time_calls, time_threaded_calls


class Huey:
    def describe(self, place: Path) -> Mapping[str, str]:
        connection = _open(place).storage.conn
        [journal] = connection.execute("PRAGMA journal_mode").fetchone()
        [synchronous] = connection.execute("PRAGMA synchronous").fetchone()
        [library] = connection.execute("SELECT sqlite_version()").fetchone()
        return {
            "version": importlib.metadata.version("huey"),
            "sqlite": str(library),
            "in force": f"journal_mode={journal}, synchronous={synchronous} (2 is FULL)",
            "set for this run": "SqliteHuey(fsync=True); consumer with its defaults: 1 thread, polls every "
            "0.1 s growing by 1.15 up to 10 s while idle; no logging",
            "default": "fsync=None: the SQLite library's own setting",
            "its docs recommend": "they call the library's setting a good balance, and fsync=True slower but "
            "more resilient to power loss",
            "enqueue many": "no bulk call; a loop (as its own map() does)",
            "result stored": "yes",
            "killed in mid-task": "the task is lost: it is removed before it runs",
        }

    def enqueue_one_by_one(self, place: Path, texts: Sequence[str]) -> float:
        return time_calls(_task(_open(place), measure_length), texts)

    def enqueue_in_flight(self, place: Path, texts: Sequence[str], callers: int) -> float:
        return time_threaded_calls(_task(_open(place), measure_length), texts, callers)

    def enqueue_many(self, place: Path, texts: Sequence[str], batch: int) -> float:
        task = _task(_open(place), measure_length)
        began = time.perf_counter()
        task.map(texts)
        return time.perf_counter() - began

    def fill(self, place: Path, texts: Sequence[str], priorities: int) -> None:
        huey = _open(place)
        task = _task(huey, measure_length)
        for number, text in enumerate(texts):
            huey.enqueue(task.s(text, priority=number % priorities))

    def drain(self, place: Path, count: int) -> float:
        huey = _open(place)
        _task(huey, measure_length)
        all_done = threading.Event()
        left = count

        @huey.post_execute()  # type: ignore[untyped-decorator]  # Huey carries no types
        def count_down(task: object, value: object, error: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                all_done.set()

        consumer = huey.create_consumer()
        began = time.perf_counter()
        consumer.start()
        all_done.wait()
        took = time.perf_counter() - began
        consumer.stop(graceful=True)
        return took

    def enqueue_at(self, place: Path, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        return call_at(_task(_open(place), measure_length), moments, texts)

    def work(self, place: Path, body: Body) -> None:
        huey = _open(place)
        _task(huey, body)
        huey.create_consumer().run()


def _open(place: Path) -> Any:
    return importlib.import_module("huey").SqliteHuey(filename=str(place / "huey.db"), fsync=True)


def _task(huey: Any, body: Body) -> Any:
    def noop(text: str) -> int:
        return body(text)

    # The registry key has the module in it, so producer and worker must declare the task here.
    declare: Callable[[Body], Any] = huey.task(name="noop")
    return declare(noop)


CONTESTANT: Contestant = Huey()
