"""How a worker's guardian renews leases: it opens the store by itself, and only when it has to."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from ade.agents.model import Agent
from ade.composition.stores import open_stores
from ade.logs import configure
from ade.settings import Settings
from ade.stores.ports import Renewal
from ade.tasks.model import Worker

RENEWER = f"{__name__}:renewer"


class StoreLocation(Struct, frozen=True):
    """Where the records are."""

    url: str
    settings: Settings


class WatchdogStoreSpec(Struct, frozen=True):
    """What the worker tells its guardian."""

    worker: Worker
    lease_ms: int
    store: str
    agent: Agent | None = None


def renewer(about: str) -> Callable[[Mapping[str, str]], Renewal]:
    """A function that renews the leases of some runs (run id -> task id) in the worker's name."""
    told = msgspec.json.decode(about, type=WatchdogStoreSpec)
    place = msgspec.json.decode(told.store, type=StoreLocation)
    configure(place.settings.log.format, place.settings.log.level)  # its lines stand among those of the worker
    stores = asyncio.run(open_stores(place.url, place.settings))

    def renew(runs: Mapping[str, str]) -> Renewal:
        renewal = stores.workers.renew(told.worker, runs, lease_ms=told.lease_ms)
        if told.agent is not None:
            stores.agents.renew(told.agent, list(runs), lease_ms=told.lease_ms)
        return renewal

    return renew
