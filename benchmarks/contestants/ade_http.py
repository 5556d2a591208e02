"""ADE's HTTP interface on both stores, as `ade serve` runs it."""

import importlib.metadata
from collections.abc import Callable, Mapping

from ade import Ade
from ade.accounts.model import Role, User
from ade.accounts.tokens import create_token
from ade.accounts.users import add_user
from ade.composition.server import serve_http, spare_collections
from ade.settings import Settings, load
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.model import Definition, Worker
from ade.worker.supervisor import StopSignals, serve
from benchmarks.contestants.ade import REDIS as REDIS_QUEUE
from benchmarks.contestants.ade import SQLITE as SQLITE_QUEUE
from benchmarks.contract import Contestant, HttpContestant, Place, Site, payload
from benchmarks.cores import told
from benchmarks.http_requests import TASK_NAME
from benchmarks.producing import producer_of

USER = "load"
RATES = ("read", "write", "vote", "work", "lock", "stream")
HOUR_MS = 3_600_000
ASKED_FOR = 200  # so many tasks are asked for in turn


class AdeHttp:
    def __init__(self, url_of: Callable[[Place], str], queue: Contestant) -> None:
        self._url_of = url_of
        self._queue = queue

    def describe(self, place: Place) -> Mapping[str, str]:
        versions = ", ".join(f"{each} {importlib.metadata.version(each)}" for each in ("uvicorn", "uvloop", "msgspec"))
        return {
            "version": f"{importlib.metadata.version('community-ade')}, {versions}",
            "set for this run": "rates off, 5,000 streams for one account; else its defaults, as `ade serve` runs",
            "for each request": "limits, token, permission, rate, form; an event with each new task",
            "stored": "durably before the answer, on SQLite synchronous=FULL",
            "runs on": told(),
        }

    def serve(self, place: Place, stock: int, announce: Callable[[Site], None]) -> int:
        if stock:
            producer_of(self._queue.connect(place)).many([payload(number, 200) for number in range(stock)], 1000)

        async def work(signals: StopSignals) -> int:
            async with Ade(settings=self._settings(place)) as app, serve_http(app) as served:
                spare_collections()
                stores = (await app.open()).stores
                announce(Site(int(served.url.rpartition(":")[2]), await _token(stores), await _ids(stores)))
                await app.work(signals.stop, signals.hurry)
                return await _stored(stores)

        return serve(work)

    def _settings(self, place: Place) -> Settings:
        chosen = {
            "store.url": self._url_of(place),
            "events.audit_url": f"sqlite:///{place.folder / 'audit.db'}",
            "http.port": 0,
            "http.grace_s": 1,
            "http.max_subscribers_each": 5_000,
            **{f"http.{name}_rate": "none" for name in RATES},
        }
        return load(flags=chosen, files=[]).settings


async def _token(stores: Stores) -> str:
    """Of somebody who may do all of this; the name of the tasks becomes known too."""
    now = stores.clock.now()
    worker = Worker(id="elsewhere", hostname="elsewhere", pid=1, started_at=now, version="0", names=(TASK_NAME,))
    await stores.workers.register(worker, [Definition(name=TASK_NAME)], HOUR_MS)
    user = await add_user(stores, User(id=USER, roles=frozenset({Role.OPERATOR})))
    secret, _ = await create_token(stores, user.id, scopes=user.permissions, lasts_ms=HOUR_MS)
    return secret


async def _ids(stores: Stores) -> list[str]:
    return [task.id for task in (await stores.tasks.find(TaskQuery(limit=ASKED_FOR))).tasks]


async def _stored(stores: Stores) -> int:
    return sum(tally.count for tally in await stores.queues.tallies())


SQLITE: HttpContestant = AdeHttp(lambda place: f"sqlite:///{place.folder / 'ade.db'}", SQLITE_QUEUE)
REDIS: HttpContestant = AdeHttp(lambda place: place.server, REDIS_QUEUE)
