"""Celery with Redis as broker and result backend."""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place, measure_length
from benchmarks.watching import watching


class Celery:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("celery"),
            "in force": f"kombu {importlib.metadata.version('kombu')}, "
            f"redis-py {importlib.metadata.version('redis')} with hiredis",
            "set for this run": "task_acks_late=True; worker with its default pool (prefork), --concurrency 1, "
            "logging errors only",
            "its docs recommend": "acks_late for tasks that may run twice; otherwise the defaults",
            "enqueue many": "no bulk call; a loop",
            "result stored": "yes, for a day",
            "killed in mid-task": "the message is given again when the visibility timeout of an hour has passed",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        app, task = _open(place, measure_length)
        with app:
            yield BlockingClient(put=task.delay)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("HLEN", "unacked") + wire.number("LLEN", "celery"))

    def work(self, place: Place, body: Body) -> None:
        app, _ = _open(place, body)
        app.worker_main(["worker", "--concurrency", "1", "--loglevel", "ERROR"])


def _open(place: Place, body: Body) -> tuple[Any, Any]:
    app = importlib.import_module("celery").Celery("benchmark", broker=place.server, backend=place.server)
    app.conf.task_acks_late = True

    def noop(text: str) -> int:
        return body(text)

    return app, app.task(noop, name="noop")


SERVED: Contestant = Celery()
