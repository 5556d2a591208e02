"""persist-queue's SQLiteAckQueue: acknowledged items; the worker loop is ours, as its users write it."""

import importlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place

POLL_SECONDS = 0.005


class PersistQueue:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("persist-queue"),
            "in force": _pragmas(_open(place)),
            "set for this run": "only multithreading=True; worker loop get, run, ack in one thread; across "
            f"processes its blocking get looks every 10 s only, so the worker polls every {POLL_SECONDS} s",
            "its docs recommend": "WAL, its default; auto_commit=False for batches, which this queue refuses; "
            "synchronous is left to the SQLite library",
            "enqueue many": "no bulk call; a loop",
            "result stored": "no result store: acknowledged only, which is less work",
            "killed in mid-task": "the task is given again when the queue is next opened with auto_resume",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        yield BlockingClient(put=_open(place).put)

    @contextmanager
    def watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        def unfinished(tasks: int) -> int:
            # A queue counts what it found when it was opened, so each look opens one.
            queue = _open(place)
            return tasks - int(queue.acked_count())

        yield unfinished

    def work(self, place: Place, body: Body) -> None:
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


def _open(place: Place) -> Any:
    # auto_resume in a producer would hand out the tasks its worker is just running.
    library = importlib.import_module("persistqueue")
    return library.SQLiteAckQueue(str(place.folder / "persist-queue"), multithreading=True, auto_resume=False)


def _pragmas(queue: Any) -> str:
    # No public way to its connection; read only, and only to report what is in force.
    [journal] = queue._putter.execute("PRAGMA journal_mode").fetchone()
    [synchronous] = queue._putter.execute("PRAGMA synchronous").fetchone()
    [library] = queue._putter.execute("SELECT sqlite_version()").fetchone()
    return f"SQLite {library}, journal_mode={journal}, synchronous={synchronous} (2 is FULL)"


EMBEDDED: Contestant = PersistQueue()
