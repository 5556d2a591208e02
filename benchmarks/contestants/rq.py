"""RQ: jobs on Redis, each run in a forked child."""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place, measure_length
from benchmarks.watching import watching

_body: Body = measure_length


def noop(text: str) -> int:
    """What the jobs name: RQ finds functions by their place in a module."""
    return _body(text)


NOOP = f"{__name__}.{noop.__name__}"


class Rq:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("rq"),
            "in force": f"redis-py {importlib.metadata.version('redis')} with hiredis",
            "set for this run": "Worker, its default, which forks for each job; logging warnings only",
            "its docs recommend": "the defaults",
            "enqueue many": "enqueue_many, one call per batch",
            "result stored": "yes, for 500 s",
            "killed in mid-task": "the job is found abandoned by maintenance and fails, or runs again with Retry",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        queue = _queue(place)

        def put(text: str) -> object:
            return queue.enqueue(NOOP, text)

        def put_many(texts: Sequence[str]) -> None:
            queue.enqueue_many([queue.prepare_data(NOOP, (text,)) for text in texts])

        yield BlockingClient(put=put, put_many=put_many)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: tasks - wire.number("ZCARD", "rq:finished:default"))

    def work(self, place: Place, body: Body) -> None:
        global _body
        _body = body
        queue = _queue(place)
        importlib.import_module("rq").Worker([queue], connection=queue.connection).work(logging_level="WARNING")


def _queue(place: Place) -> Any:
    connection = importlib.import_module("redis").Redis.from_url(place.server)
    return importlib.import_module("rq").Queue(connection=connection)


SERVED: Contestant = Rq()
