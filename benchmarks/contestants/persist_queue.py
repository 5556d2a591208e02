"""persist-queue's SQLiteAckQueue: acknowledged items; the worker loop is ours, as its users write it."""

import importlib
import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contract import Body, Contestant, NotOffered, measure_length
from benchmarks.pacing import call_at, time_calls, time_threaded_calls

POLL_SECONDS = 0.005


class PersistQueue:
    def describe(self, place: Path) -> Mapping[str, str]:
        sqlite3 = importlib.import_module("sqlite3")
        return {
            "version": importlib.metadata.version("persist-queue"),
            "sqlite": str(sqlite3.sqlite_version),
            "in force": _pragmas(_open(place)),
            "set for this run": "only multithreading=True; worker loop get, run, ack in one thread; across "
            f"processes its blocking get looks every 10 s only, so the worker polls every {POLL_SECONDS} s",
            "default": "synchronous left to the SQLite library",
            "its docs recommend": "WAL, its default; auto_commit=False for batches, which this queue refuses",
            "enqueue many": "no bulk call; a loop",
            "result stored": "no result store: acknowledged only, which is less work",
            "killed in mid-task": "the task is given again when the queue is next opened with auto_resume",
        }

    def enqueue_one_by_one(self, place: Path, texts: Sequence[str]) -> float:
        return time_calls(_open(place).put, texts)

    def enqueue_in_flight(self, place: Path, texts: Sequence[str], callers: int) -> float:
        return time_threaded_calls(_open(place).put, texts, callers)

    def enqueue_many(self, place: Path, texts: Sequence[str], batch: int) -> float:
        return time_calls(_open(place).put, texts)

    def fill(self, place: Path, texts: Sequence[str], priorities: int) -> None:
        if priorities > 1:
            raise NotOffered("the ack queue has no priorities")
        time_calls(_open(place).put, texts)

    def drain(self, place: Path, count: int) -> float:
        queue = _open(place)
        began = time.perf_counter()
        for _ in range(count):
            item = queue.get(block=False, raw=True)
            measure_length(item["data"])
            queue.ack(id=item["pqid"])
        return time.perf_counter() - began

    def enqueue_at(self, place: Path, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        return call_at(_open(place).put, moments, texts)

    def work(self, place: Path, body: Body) -> None:
        queue = _open(place)
        empty = importlib.import_module("persistqueue").Empty
        while True:
            try:
                item = queue.get(block=False, raw=True)
            except empty:
                time.sleep(POLL_SECONDS)
                continue
            body(item["data"])
            queue.ack(id=item["pqid"])


def _open(place: Path) -> Any:
    # auto_resume in a producer would hand out the tasks its worker is just running.
    library = importlib.import_module("persistqueue")
    return library.SQLiteAckQueue(str(place / "persist-queue"), multithreading=True, auto_resume=False)


def _pragmas(queue: Any) -> str:
    # No public way to its connection; read only, and only to report what is in force.
    [journal] = queue._putter.execute("PRAGMA journal_mode").fetchone()
    [synchronous] = queue._putter.execute("PRAGMA synchronous").fetchone()
    return f"journal_mode={journal}, synchronous={synchronous} (2 is FULL)"


CONTESTANT: Contestant = PersistQueue()
