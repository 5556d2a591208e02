"""pottery: Redlock, here with one server as everybody else has it."""

import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from benchmarks.contract import AsyncLocks, BlockingLocks, LockConnection, LockContestant, Place

NAME = "repo:app"
LEASE_SECONDS = 30


class PotteryLocks:
    def __init__(self, *, blocking: bool) -> None:
        self._blocking = blocking

    def describe(self, place: Place) -> Mapping[str, str]:
        form = "with Redlock" if self._blocking else "async with AIORedlock"
        return {
            "version": f"{importlib.metadata.version('pottery')}, redis-py {importlib.metadata.version('redis')}",
            "its form": f'`{form}(key="{NAME}", masters={{redis}}, auto_release_time={LEASE_SECONDS})`',
            "set for this run": "the lease, not renewed; one server, where its docs advise five",
            "who is next": "whoever tries first after a release",
            "how a waiter hears of its turn": "it tries after 0 to 0.2 s at random, its default",
            "told besides": "nothing",
        }

    def locks(self, place: Place) -> LockConnection:
        return _blocking_locks(place) if self._blocking else _awaited_locks(place)


@asynccontextmanager
async def _awaited_locks(place: Place) -> AsyncIterator[AsyncLocks]:
    make = importlib.import_module("pottery").AIORedlock
    async with importlib.import_module("redis.asyncio").Redis.from_url(place.server) as redis:
        yield AsyncLocks(lambda agent: make(key=NAME, masters={redis}, auto_release_time=LEASE_SECONDS))


@contextmanager
def _blocking_locks(place: Place) -> Iterator[BlockingLocks]:
    make = importlib.import_module("pottery").Redlock
    with importlib.import_module("redis").Redis.from_url(place.server) as redis:
        yield BlockingLocks(lambda agent: make(key=NAME, masters={redis}, auto_release_time=LEASE_SECONDS))


AWAITED: LockContestant = PotteryLocks(blocking=False)
BLOCKING: LockContestant = PotteryLocks(blocking=True)
