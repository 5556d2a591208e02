"""Dramatiq: actors run by threads, messages on Redis."""

import importlib
import importlib.metadata
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.contract import BlockingClient, Body, Contestant, Place, measure_length
from benchmarks.watching import watching


class Dramatiq:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("dramatiq"),
            "in force": f"redis-py {importlib.metadata.version('redis')} with hiredis",
            "set for this run": "RedisBroker, Results(RedisBackend), store_results=True; one Worker with its default "
            "of 8 threads, in this process (its command line starts one such process per core)",
            "its docs recommend": "the defaults; messages are acknowledged after they ran",
            "enqueue many": "no bulk call; a loop (as its own group() does)",
            "result stored": "yes, for 10 minutes",
            "killed in mid-task": "the message is queued again when the dead worker's heartbeat is a minute old",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        _, actor = _open(place, measure_length)
        yield BlockingClient(put=actor.send)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("HLEN", "dramatiq:default.msgs"))

    def work(self, place: Place, body: Body) -> None:
        broker, _ = _open(place, body)
        importlib.import_module("dramatiq").Worker(broker).start()
        signal.pause()


def _open(place: Place, body: Body) -> tuple[Any, Any]:
    library = importlib.import_module("dramatiq")
    broker = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=place.server)
    backend = importlib.import_module("dramatiq.results.backends").RedisBackend(url=place.server)
    broker.add_middleware(importlib.import_module("dramatiq.results").Results(backend=backend))

    def noop(text: str) -> int:
        return body(text)

    return broker, library.actor(noop, broker=broker, store_results=True)


SERVED: Contestant = Dramatiq()
