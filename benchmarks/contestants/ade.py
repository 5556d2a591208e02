"""ADE's queue on both stores. Only this module and `ade_locks` know ADE's Python API."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from ade import Ade, Status
from ade.app.functions import TaskFunction
from benchmarks.contract import AsyncClient, BlockingClient, Body, Connection, Contestant, Place, measure_length

Noop = TaskFunction[[str], int]


class AdeQueue:
    def __init__(self, url_of: Callable[[Place], str], *, blocking: bool = False) -> None:
        self._url_of = url_of
        self._blocking = blocking

    def describe(self, place: Place) -> Mapping[str, str]:
        facts = asyncio.run(self._facts(place))
        told = ("journal_mode", "sqlite_version", "redis_version", "valkey_version", "appendonly", "appendfsync")
        return {
            "version": importlib.metadata.version("community-ade"),
            "in force": ", ".join(f"{name}={facts[name]}" for name in told if name in facts) or "its defaults",
            "set for this run": "nothing: a worker with its defaults, on uvloop; callers "
            + ("without an event loop, each `.wait()`ed for" if self._blocking else "on asyncio's loop"),
            "its docs recommend": "the defaults; on SQLite synchronous=FULL, commits of concurrent callers grouped",
            "enqueue many": "enqueue_many, one call per batch",
            "result stored": "yes, with the task's events",
            "killed in mid-task": "the task runs again when its lease has run out",
        }

    def connect(self, place: Place) -> Connection:
        return self._blocking_client(place) if self._blocking else self._async_client(place)

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        return self._watch(place)

    def work(self, place: Place, body: Body) -> None:
        app, _ = self._app(place, body)
        app.run_worker()

    def _app(self, place: Place, body: Body = measure_length) -> tuple[Ade, Noop]:
        app = Ade(self._url_of(place))

        @app.task(name="noop")
        async def noop(payload: str) -> int:
            return body(payload)

        return app, noop

    async def _facts(self, place: Place) -> Mapping[str, object]:
        app, _ = self._app(place)
        async with app:
            return (await (await app.open()).stores.maintenance.health()).facts

    @asynccontextmanager
    async def _async_client(self, place: Place) -> AsyncIterator[AsyncClient]:
        app, noop = self._app(place)

        async def put_many(texts: Sequence[str]) -> None:
            await app.enqueue_many([noop.call(text) for text in texts])

        async def put_mixed(texts: Sequence[str], priorities: int) -> None:
            levels = [noop.with_options(priority=level) for level in range(priorities)]
            await app.enqueue_many([levels[at % priorities].call(text) for at, text in enumerate(texts)])

        async with app:
            yield AsyncClient(put=noop.enqueue, put_many=put_many, put_mixed=put_mixed)

    @contextmanager
    def _blocking_client(self, place: Place) -> Iterator[BlockingClient]:
        app, noop = self._app(place)
        asyncio.run(self._facts(place))  # makes the store, so that the first call is like the others
        try:
            yield BlockingClient(put=lambda text: noop.enqueue(text).wait())
        finally:
            app.close().wait()

    @contextmanager
    def _watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        app, _ = self._app(place)
        with asyncio.Runner() as runner:
            runner.run(app.__aenter__())
            try:
                yield lambda tasks: tasks - runner.run(_completed(app))
            finally:
                runner.run(app.__aexit__(None, None, None))


async def _completed(app: Ade) -> int:
    tallies = await (await app.open()).stores.queues.tallies()
    return sum(tally.count for tally in tallies if tally.status is Status.COMPLETED)


SQLITE: Contestant = AdeQueue(lambda place: f"sqlite:///{place.folder / 'ade.db'}")
REDIS: Contestant = AdeQueue(lambda place: place.server)
REDIS_BLOCKING: Contestant = AdeQueue(lambda place: place.server, blocking=True)
