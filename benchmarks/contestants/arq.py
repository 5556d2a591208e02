"""arq: asyncio jobs on Redis, found by polling."""

import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from benchmarks.contract import AsyncClient, Body, Contestant, Place
from benchmarks.producing import gathered
from benchmarks.watching import watching

WIDTH = 50  # each call at the same time takes a connection
POLL_SECONDS = 0.01


class Arq:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": importlib.metadata.version("arq"),
            "in force": f"redis-py {importlib.metadata.version('redis')} with hiredis",
            "set for this run": f"poll_delay={POLL_SECONDS}: with its default of 0.5 s a worker takes 10 jobs every "
            "half second; otherwise the defaults, 10 jobs at once",
            "its docs recommend": "the defaults; jobs are taken off the queue when they have succeeded",
            "enqueue many": f"no bulk call; {WIDTH} awaited calls at once",
            "result stored": "yes, for an hour",
            "killed in mid-task": "the job runs again when its mark runs out, after the job timeout and 10 s",
        }

    @asynccontextmanager
    async def connect(self, place: Place) -> AsyncIterator[AsyncClient]:
        pool = await importlib.import_module("arq").create_pool(_settings(place))

        async def put(text: str) -> object:
            return await pool.enqueue_job("noop", text)

        try:
            yield AsyncClient(put=put, put_many=gathered(put, WIDTH))
        finally:
            await pool.aclose()

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return watching(place, lambda wire, tasks: wire.number("ZCARD", "arq:queue"))

    def work(self, place: Place, body: Body) -> None:
        async def noop(context: object, text: str) -> int:
            return body(text)

        library = importlib.import_module("arq.worker")
        functions = [library.func(noop, name="noop")]
        library.Worker(functions=functions, redis_settings=_settings(place), poll_delay=POLL_SECONDS).run()


def _settings(place: Place) -> Any:
    return importlib.import_module("arq.connections").RedisSettings.from_dsn(place.server)


SERVED: Contestant = Arq()
