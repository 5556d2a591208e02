"""Huey on SQLite and on Redis: a task queue with worker threads, results and priorities."""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place, measure_length

COMMON = {
    "enqueue many": "no bulk call; a loop (as its own map() does)",
    "result stored": "yes",
    "killed in mid-task": "the task is lost: it is removed before it runs, and there is no other way",
}


class Huey:
    """The same on both stores, but for how it is opened and what is said about that."""

    def __init__(self, open_huey: Callable[[Any, Place], Any], describe: Callable[[Any], Mapping[str, str]]) -> None:
        self._open_huey = open_huey
        self._describe = describe

    def describe(self, place: Place) -> Mapping[str, str]:
        own = self._describe(self._open(place))
        return {"version": importlib.metadata.version("huey"), **own, **COMMON}

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        huey = self._open(place)
        task = _task(huey, measure_length)

        def put_mixed(texts: Sequence[str], priorities: int) -> None:
            for number, text in enumerate(texts):
                huey.enqueue(task.s(text, priority=number % priorities))

        yield BlockingClient(put=task, put_mixed=put_mixed)

    @contextmanager
    def watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        storage = self._open(place).storage
        yield lambda tasks: tasks - int(storage.result_store_size())

    def work(self, place: Place, body: Body) -> None:
        huey = self._open(place)
        _task(huey, body)
        huey.create_consumer().run()

    def _open(self, place: Place) -> Any:
        return self._open_huey(importlib.import_module("huey"), place)


def _task(huey: Any, body: Body) -> Any:
    def noop(text: str) -> int:
        return body(text)

    # The registry key has the module in it, so producer and worker must declare the task here.
    declare: Callable[[Body], Any] = huey.task(name="noop")
    return declare(noop)


def _of_sqlite(huey: Any) -> Mapping[str, str]:
    [journal] = huey.storage.conn.execute("PRAGMA journal_mode").fetchone()
    [synchronous] = huey.storage.conn.execute("PRAGMA synchronous").fetchone()
    [library] = huey.storage.conn.execute("SELECT sqlite_version()").fetchone()
    return {
        "in force": f"SQLite {library}, journal_mode={journal}, synchronous={synchronous} (2 is FULL)",
        "set for this run": "SqliteHuey(fsync=True); consumer with its defaults: 1 thread, polls every "
        "0.1 s growing by 1.15 up to 10 s while idle; no logging",
        "its docs recommend": "they call the SQLite library's own setting a good balance, and fsync=True slower but "
        "more resilient to power loss",
    }


def _of_redis(huey: Any) -> Mapping[str, str]:
    return {
        "in force": f"redis-py {importlib.metadata.version('redis')} with hiredis, blocking={huey.storage.blocking}",
        "set for this run": "RedisHuey(url=...); consumer with its defaults: 1 thread; no logging",
        "its docs recommend": "RedisHuey first of all; it stores results until they are read",
    }


SQLITE: Contestant = Huey(
    lambda library, place: library.SqliteHuey(filename=str(place.folder / "huey.db"), fsync=True), _of_sqlite
)
REDIS: Contestant = Huey(lambda library, place: library.RedisHuey("benchmark", url=place.server), _of_redis)
