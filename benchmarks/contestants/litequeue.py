"""litequeue: a queue of texts in one SQLite table; the worker loop is ours, as its users write it."""

import importlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place

POLL_SECONDS = 0.005


class LiteQueue:
    def describe(self, place: Place) -> Mapping[str, str]:
        connection = _open(place).conn
        [journal] = connection.execute("PRAGMA journal_mode").fetchone()
        [synchronous] = connection.execute("PRAGMA synchronous").fetchone()
        [library] = connection.execute("SELECT sqlite_version()").fetchone()
        return {
            "version": importlib.metadata.version("litequeue"),
            "in force": f"SQLite {library}, journal_mode={journal}, synchronous={synchronous} (2 is FULL)",
            "set for this run": "synchronous=FULL on its connection (its default is NORMAL: a power cut may lose the "
            f"last writes); worker loop pop, run, done in one thread, polling every {POLL_SECONDS} s",
            "its docs recommend": "its README says nothing about durability",
            "enqueue many": "no bulk call; put inside its public transaction(), one per batch",
            "result stored": "no result store: marked done only, which is less work",
            "killed in mid-task": "the task stays locked until the user looks for it",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        queue = _open(place)

        def put_many(texts: Sequence[str]) -> None:
            with queue.transaction(mode="IMMEDIATE"):
                for text in texts:
                    queue.put(text)

        yield BlockingClient(put=queue.put, put_many=put_many, not_for_threads="its README says nothing about threads")

    @contextmanager
    def watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        connection = _open(place).conn
        done = int(importlib.import_module("litequeue").MessageStatus.DONE)
        count = "SELECT count(*) FROM Queue WHERE status = ?"
        yield lambda tasks: tasks - int(connection.execute(count, (done,)).fetchone()[0])

    def work(self, place: Place, body: Body) -> None:
        queue = _open(place)
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL_SECONDS)
                continue
            body(message.data)
            queue.done(message.message_id)


def _open(place: Place) -> Any:
    queue = importlib.import_module("litequeue").LiteQueue(str(place.folder / "litequeue.db"))
    queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


EMBEDDED: Contestant = LiteQueue()
