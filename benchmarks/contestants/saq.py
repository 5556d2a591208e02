"""SAQ: asyncio jobs on Redis."""

import asyncio
import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from benchmarks.contract import AsyncClient, Body, Contestant, Place
from benchmarks.producing import gathered
from benchmarks.watching import watching

WIDTH = 1000


class Saq:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("saq"),
            "in force": f"redis-py {importlib.metadata.version('redis')} with hiredis",
            "set for this run": "Queue.from_url(...); Worker with its defaults: 10 jobs at once, sweep every 60 s",
            "its docs recommend": "the defaults",
            "enqueue many": "no bulk call; a batch of awaited calls at once (as its own map() does)",
            "result stored": "yes, for 10 minutes",
            "killed in mid-task": "the job is swept and runs again if it has retries left",
        }

    @asynccontextmanager
    async def connect(self, place: Place) -> AsyncIterator[AsyncClient]:
        queue = _open(place)
        await queue.connect()

        async def put(text: str) -> object:
            return await queue.enqueue("noop", text=text)

        try:
            yield AsyncClient(put=put, put_many=gathered(put, WIDTH))
        finally:
            await queue.disconnect()

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("ZCARD", "saq:default:incomplete"))

    def work(self, place: Place, body: Body) -> None:
        async def noop(context: object, *, text: str) -> int:
            return body(text)

        async def run() -> None:
            worker = importlib.import_module("saq").Worker(_open(place), functions=[("noop", noop)])
            await worker.start()

        asyncio.run(run())


def _open(place: Place) -> Any:
    return importlib.import_module("saq").Queue.from_url(place.server)


SERVED: Contestant = Saq()
