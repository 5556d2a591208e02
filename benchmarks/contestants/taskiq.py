"""taskiq on a Redis stream: asyncio tasks that are acknowledged."""

import asyncio
import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from benchmarks.contract import AsyncClient, Body, Contestant, Place, measure_length
from benchmarks.producing import gathered
from benchmarks.watching import watching
from benchmarks.wire import Wire

WIDTH = 50  # each call at the same time takes a connection


class Taskiq:
    def describe(self, place: Place) -> Mapping[str, str]:
        names = ("taskiq", "taskiq-redis", "redis")
        return {
            "version": importlib.metadata.version("taskiq"),
            "in force": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + " with hiredis",
            "set for this run": "RedisStreamBroker with RedisAsyncResultBackend; one receiver in this process with "
            "its defaults: 100 tasks at once (its command line starts two processes)",
            "its docs recommend": "RedisStreamBroker, the only one of its Redis brokers that acknowledges",
            "enqueue many": f"no bulk call; {WIDTH} awaited calls at once",
            "result stored": "yes, until it is deleted",
            "killed in mid-task": "the message is claimed by another worker after 10 minutes",
        }

    @asynccontextmanager
    async def connect(self, place: Place) -> AsyncIterator[AsyncClient]:
        broker, task = _open(place, measure_length)
        await broker.startup()
        try:
            yield AsyncClient(put=task.kiq, put_many=gathered(task.kiq, WIDTH))
        finally:
            await broker.shutdown()

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, _pending)

    def work(self, place: Place, body: Body) -> None:
        broker, _ = _open(place, body)
        asyncio.run(importlib.import_module("taskiq.api").run_receiver_task(broker, run_startup=True))


def _pending(wire: Wire, tasks: int) -> int:
    answer = wire.call("XPENDING", "taskiq", "taskiq")
    return int(str(answer[0])) if isinstance(answer, list) else tasks


def _open(place: Place, body: Body) -> tuple[Any, Any]:
    library = importlib.import_module("taskiq_redis")
    results = library.RedisAsyncResultBackend(redis_url=place.server)
    broker = library.RedisStreamBroker(url=place.server).with_result_backend(results)

    async def noop(text: str) -> int:
        return body(text)

    return broker, broker.register_task(noop, task_name="noop")


SERVED: Contestant = Taskiq()
