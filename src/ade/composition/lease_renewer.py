"""Lease renewal by the watchdog process of a worker, which opens its own store, and only when needed."""

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
    """The store URL and settings to open a store with."""

    url: str
    settings: Settings


class WatchdogStoreSpec(Struct, frozen=True):
    """The data that a worker passes to its watchdog process."""

    worker: Worker
    lease_ms: int
    store: str
    agent: Agent | None = None


def renewer(about: str) -> Callable[[Mapping[str, str]], Renewal]:
    """Open the store and return a function that renews leases of runs (run ID -> task ID) for the worker."""
    told = msgspec.json.decode(about, type=WatchdogStoreSpec)
    place = msgspec.json.decode(told.store, type=StoreLocation)
    configure(place.settings.log.format, place.settings.log.level)  # its log lines appear among those of the worker
    stores = asyncio.run(open_stores(place.url, place.settings))

    def renew(runs: Mapping[str, str]) -> Renewal:
        renewal = stores.workers.renew(told.worker, runs, lease_ms=told.lease_ms)
        if told.agent is not None:
            stores.agents.renew(told.agent, list(runs), lease_ms=told.lease_ms)
        return renewal

    return renew
