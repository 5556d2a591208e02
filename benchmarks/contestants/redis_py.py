"""The lock that redis-py brings: one key, whose waiters try again and again."""

import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from benchmarks.contract import AsyncLocks, BlockingLocks, LockConnection, LockContestant, Place

NAME = "repo:app"
LEASE_SECONDS = 30


class RedisPyLocks:
    def __init__(self, *, blocking: bool) -> None:
        self._blocking = blocking

    def describe(self, place: Place) -> Mapping[str, str]:
        form = "with" if self._blocking else "async with"
        return {
            "version": f"{importlib.metadata.version('redis')} with hiredis",
            "its form": f'`{form} redis.lock("{NAME}", timeout={LEASE_SECONDS})`',
            "set for this run": "the lease, not renewed",
            "who is next": "whoever tries first after a release",
            "how a waiter hears of its turn": "it tries every 0.1 s, its default",
            "told besides": "nothing",
        }

    def locks(self, place: Place) -> LockConnection:
        return _blocking_locks(place) if self._blocking else _awaited_locks(place)


@asynccontextmanager
async def _awaited_locks(place: Place) -> AsyncIterator[AsyncLocks]:
    async with importlib.import_module("redis.asyncio").Redis.from_url(place.server) as redis:
        yield AsyncLocks(lambda agent: redis.lock(NAME, timeout=LEASE_SECONDS))


@contextmanager
def _blocking_locks(place: Place) -> Iterator[BlockingLocks]:
    with importlib.import_module("redis").Redis.from_url(place.server) as redis:
        yield BlockingLocks(lambda agent: redis.lock(NAME, timeout=LEASE_SECONDS))


AWAITED: LockContestant = RedisPyLocks(blocking=False)
BLOCKING: LockContestant = RedisPyLocks(blocking=True)
