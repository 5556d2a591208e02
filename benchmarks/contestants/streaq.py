"""streaq: asyncio tasks on Redis streams."""

import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from benchmarks.contract import AsyncClient, Body, Contestant, Place, measure_length
from benchmarks.watching import watching

STREAM = "streaq:default:queues:default"


class Streaq:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("streaq"),
            "in force": f"coredis {importlib.metadata.version('coredis')}",
            "set for this run": "Worker with its defaults: 16 tasks at once",
            "its docs recommend": "the defaults; tasks are acknowledged after they ran",
            "enqueue many": "enqueue_many, one call per batch",
            "result stored": "yes, for five minutes",
            "killed in mid-task": "the task is claimed by another worker after a minute",
        }

    @asynccontextmanager
    async def connect(self, place: Place) -> AsyncIterator[AsyncClient]:
        worker, task = _open(place, measure_length)

        async def put(text: str) -> object:
            return await task.enqueue(text)

        async def put_many(texts: Sequence[str]) -> None:
            await worker.enqueue_many([task.enqueue(text) for text in texts])

        async with worker:
            yield AsyncClient(put=put, put_many=put_many)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("XLEN", STREAM))

    def work(self, place: Place, body: Body) -> None:
        worker, _ = _open(place, body)
        worker.run_sync()


def _open(place: Place, body: Body) -> tuple[Any, Any]:
    worker = importlib.import_module("streaq").Worker(redis_url=place.server)

    async def noop(text: str) -> int:
        return body(text)

    return worker, worker.task(name="noop")(noop)


SERVED: Contestant = Streaq()
