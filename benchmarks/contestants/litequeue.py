"""litequeue: a queue of texts in one SQLite table; the worker loop is ours, as its users write it."""

import importlib
import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contract import Body, Contestant, NotOffered, measure_length
from benchmarks.pacing import call_at, time_calls

POLL_SECONDS = 0.005


class LiteQueue:
    def describe(self, place: Path) -> Mapping[str, str]:
        connection = _open(place).conn
        [journal] = connection.execute("PRAGMA journal_mode").fetchone()
        [synchronous] = connection.execute("PRAGMA synchronous").fetchone()
        [library] = connection.execute("SELECT sqlite_version()").fetchone()
        return {
            "version": importlib.metadata.version("litequeue"),
            "sqlite": str(library),
            "in force": f"journal_mode={journal}, synchronous={synchronous} (2 is FULL)",
            "set for this run": "synchronous=FULL on its connection; worker loop pop, run, done in one "
            f"thread, polling every {POLL_SECONDS} s",
            "default": "synchronous=NORMAL: a power cut may lose the last acknowledged writes",
            "its docs recommend": "its README says nothing about durability",
            "enqueue many": "no bulk call; put inside its public transaction(), one per batch",
            "result stored": "no result store: marked done only, which is less work",
            "killed in mid-task": "the task stays locked until the user looks for it",
        }

    def enqueue_one_by_one(self, place: Path, texts: Sequence[str]) -> float:
        return time_calls(_open(place).put, texts)

    def enqueue_in_flight(self, place: Path, texts: Sequence[str], callers: int) -> float:
        raise NotOffered("its README says nothing about threads")

    def enqueue_many(self, place: Path, texts: Sequence[str], batch: int) -> float:
        queue = _open(place)
        began = time.perf_counter()
        for start in range(0, len(texts), batch):
            with queue.transaction(mode="IMMEDIATE"):
                for text in texts[start : start + batch]:
                    queue.put(text)
        return time.perf_counter() - began

    def fill(self, place: Path, texts: Sequence[str], priorities: int) -> None:
        if priorities > 1:
            raise NotOffered("no priorities")
        self.enqueue_many(place, texts, batch=1000)

    def drain(self, place: Path, count: int) -> float:
        queue = _open(place)
        began = time.perf_counter()
        for _ in range(count):
            message = queue.pop()
            measure_length(message.data)
            queue.done(message.message_id)
        return time.perf_counter() - began

    def enqueue_at(self, place: Path, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        return call_at(_open(place).put, moments, texts)

    def work(self, place: Path, body: Body) -> None:
        queue = _open(place)
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL_SECONDS)
                continue
            body(message.data)
            queue.done(message.message_id)


def _open(place: Path) -> Any:
    queue = importlib.import_module("litequeue").LiteQueue(str(place / "litequeue.db"))
    queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


CONTESTANT: Contestant = LiteQueue()
