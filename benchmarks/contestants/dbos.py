"""DBOS with a SQLite system database: durable workflows on a database-backed queue."""

import fcntl
import importlib
import importlib.metadata
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place, measure_length

QUEUE = "benchmark"
POLL_SECONDS = 0.02


class Dbos:
    def describe(self, place: Place) -> Mapping[str, str]:
        _launch(place, measure_length).destroy()
        with sqlite3.connect(_file(place)) as connection:
            [journal] = connection.execute("PRAGMA journal_mode").fetchone()
        return {
            "version": importlib.metadata.version("dbos"),
            "in force": f"SQLite {sqlite3.sqlite_version}, journal_mode={journal}; synchronous as it comes",
            "set for this run": f"register_queue(polling_interval_sec={POLL_SECONDS}): with its default of 1 s a task "
            "waits half a second; otherwise the defaults",
            "its docs recommend": "SQLite for development, PostgreSQL for production",
            "enqueue many": "no bulk call; a loop",
            "result stored": "yes",
            "killed in mid-task": "the workflow goes on when its program is started again",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        if not _file(place).exists():
            _launch(place, measure_length).destroy()  # only an app makes the tables, a client never does
        client = importlib.import_module("dbos").DBOSClient(system_database_url=_url(place))
        target = {"queue_name": QUEUE, "workflow_name": "noop"}

        def put_mixed(texts: Sequence[str], priorities: int) -> None:
            for number, text in enumerate(texts):
                client.enqueue({**target, "priority": 1 + number % priorities}, text)

        try:
            yield BlockingClient(put=lambda text: client.enqueue(target, text), put_mixed=put_mixed)
        finally:
            client.destroy()

    @contextmanager
    def watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        count = "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"
        connection = sqlite3.connect(_file(place))
        try:
            yield lambda tasks: tasks - int(connection.execute(count).fetchone()[0])
        finally:
            connection.close()

    def work(self, place: Place, body: Body) -> None:
        _launch(place, body)
        signal.pause()


def _launch(place: Place, body: Body) -> Any:
    library = importlib.import_module("dbos").DBOS
    library(config={"name": QUEUE, "system_database_url": _url(place), "log_level": "ERROR", "run_admin_server": False})

    def noop(text: str) -> int:
        return body(text)

    library.workflow(name="noop")(noop)
    # Two programs that make the tables at the same time would stumble over each other.
    with (place.folder / "dbos.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library.launch()
        library.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS)
    return library


def _file(place: Place) -> Any:
    return place.folder / "dbos.sqlite"


def _url(place: Place) -> str:
    return f"sqlite:///{_file(place)}"


EMBEDDED: Contestant = Dbos()
