"""What is cached of documents: for as long as changes are sure to be heard of, and for a second otherwise."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ade.approvals.repository import apply, load
from ade.errors import StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.sqlite.wakeups import FileWakeups
from ade.stores.wakeups import CachedDocument, LocalWakeups
from tests.approvals.rule_changes import PROMISED_S, subscribed, takes_effect
from tests.conformance.backends import BACKENDS
from tests.domain import RULES, Rulebook, Stores, read_rulebook
from tests.servers.pool import POOL
from tests.servers.proxy import Proxy
from tests.stores.redis.counting import QUICK
from tests.stores.sqlite.processes import started
from tests.waiting import eventually

DENYING = read_rulebook({"guard": [{"do": "deny", "reason": "not today"}]})


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, None)
    yield opened
    await opened.close()


class Cache(CachedDocument[Rulebook]):
    """Counts how often it reads; time goes by as told, and besides as it does."""

    def __init__(self, stores: Stores) -> None:
        self.reads, self.passed_s = 0, 0.0

        async def read(given: Stores, _: Rulebook | None) -> Rulebook:
            self.reads += 1
            return await load(given)

        super().__init__(stores, read, clock=lambda: time.monotonic() + self.passed_s)

    async def has_changed(self) -> bool:
        return (await self.current()).version > 0

    async def reads_after(self, seconds: float) -> int:
        """How many more reads it takes to know after some time."""
        self.passed_s += seconds
        before = self.reads
        await self.current()
        return self.reads - before


async def warm(stores: Stores) -> Cache:
    """A cache that has read while changes are heard of."""
    cache = Cache(stores)
    await cache.current()
    await subscribed(stores)
    await cache.current()
    return cache


async def test_what_is_sure_to_be_told_of_is_read_twice_a_minute(stores: Stores) -> None:
    cache = await warm(stores)

    assert await cache.reads_after(2) == 0
    assert await cache.reads_after(27) == 0
    assert await cache.reads_after(1) == 1
    assert await cache.reads_after(29) == 0


async def test_after_a_change_it_is_read_again_at_once(stores: Stores) -> None:
    cache = await warm(stores)
    await apply(stores, DENYING, actor="ada")

    assert cache.fresh() is None
    assert (await cache.current()).version == 1


async def test_any_thread_sees_that_it_has_changed(stores: Stores) -> None:
    cache = await warm(stores)
    assert await asyncio.to_thread(cache.fresh) == Rulebook()
    await apply(stores, DENYING, actor="ada")

    assert await asyncio.to_thread(cache.fresh) is None


async def test_a_change_during_a_read_is_read_too(stores: Stores) -> None:
    cache = await warm(stores)

    async def read_while_it_changes(given: Stores, _: Rulebook | None) -> Rulebook:
        found = await load(given)
        cache._load = read_again
        await apply(stores, DENYING, actor="ada")
        return found

    async def read_again(given: Stores, _: Rulebook | None) -> Rulebook:
        return await load(given)

    cache._load = read_while_it_changes
    stores.wakeups.notify(RULES)

    assert (await cache.current()).version == 0
    assert (await cache.current()).version == 1


async def test_on_a_network_file_system_it_is_read_every_second(tmp_path: Path) -> None:
    opened = await BACKENDS["sqlite"].open(tmp_path, None)
    wakeups = FileWakeups(tmp_path / "ade.db.hints", database=tmp_path / "ade.db", is_remote=True)
    cache = Cache(replace(opened, wakeups=wakeups))
    await cache.current()

    assert await cache.reads_after(0.2) == 0
    assert await cache.reads_after(1) == 1
    assert await cache.reads_after(1) == 1
    await asyncio.to_thread(wakeups.close)
    await opened.close()


async def test_a_change_is_seen_by_any_thread_while_the_loop_is_blocked(tmp_path: Path) -> None:
    """As a worker whose task blocks its loop, while another thread enqueues."""
    here, there = [await BACKENDS["sqlite"].open(tmp_path, None) for _ in range(2)]
    cache = await warm(here)
    await apply(there, DENYING, actor="ada")
    cache.passed_s += 2

    assert cache.fresh() is None
    await asyncio.gather(here.close(), there.close())


async def test_other_writes_cause_no_read(tmp_path: Path) -> None:
    here, there = [await BACKENDS["sqlite"].open(tmp_path, None) for _ in range(2)]
    cache = await warm(here)
    await there.documents.take_rate("a key", 1, 1_000)

    assert await cache.reads_after(2) == 0
    await asyncio.gather(here.close(), there.close())


async def test_a_change_between_two_listeners_is_read(tmp_path: Path) -> None:
    """A worker that ends in a process that goes on."""
    here, there = [await BACKENDS["sqlite"].open(tmp_path, None) for _ in range(2)]
    attending = asyncio.create_task(here.wakeups.listen())
    await asyncio.sleep(0)
    cache = await warm(here)
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    await apply(there, DENYING, actor="ada")

    cache.passed_s += 2
    assert (await cache.current()).version == 1
    await asyncio.gather(here.close(), there.close())


async def test_a_silent_path_counts_as_deaf_within_a_second() -> None:
    """Connections that look open and carry nothing: only what is answered proves that changes are heard."""
    server = POOL.standalone("valkey")
    stores = await BACKENDS["valkey"].open(Path(), None)
    with Proxy(server.port) as path:
        wakeups = RedisWakeups(RedisClient.to(path.url(server.url), QUICK))
        cache = await warm(replace(stores, wakeups=wakeups))
        path.blackhole()

        assert await takes_effect(apply(stores, DENYING, actor="ada"), cache.has_changed) < PROMISED_S
        path.heal(forget=True)
        wakeups.close()
        await wakeups._link.close()
    await stores.close()


async def test_a_change_by_a_program_that_is_killed_right_after_its_commit_is_seen(tmp_path: Path) -> None:
    stores = await BACKENDS["sqlite"].open(tmp_path, None)
    cache = await warm(stores)
    program = [sys.executable, "-W", "ignore", "-m", "tests.stores.killed_after_commit", str(tmp_path / "ade.db")]
    with started(program) as process:
        assert await takes_effect(asyncio.to_thread(process.wait, 60), cache.has_changed) < PROMISED_S
        assert process.returncode < 0
    await stores.close()


class FarWakeups(LocalWakeups):
    """Of a cluster whose first partition can be unreachable: then changes might be missed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.tolerance_s = 300.0

    def lag_s(self, topic: str) -> float:
        return float("inf") if self.is_away else 0.0

    def miss_some(self) -> None:
        """As after a new subscription."""
        self._wake(RULES, is_announced=False)


class FarCache(CachedDocument[Rulebook]):
    """A cache of rules in a partition that can be taken away; time goes by as told."""

    def __init__(self, stores: Stores) -> None:
        self.wakeups = FarWakeups()
        self.hangs, self.passed_s, self.version = False, 0.0, 1
        super().__init__(replace(stores, wakeups=self.wakeups), self._load_far, clock=lambda: 1000.0 + self.passed_s)

    async def _load_far(self, _stores: Stores, _known: Rulebook | None) -> Rulebook:
        if self.hangs:
            await asyncio.Event().wait()
        if self.wakeups.is_away:
            raise StoreUnavailable("the first partition does not respond")
        return Rulebook(version=self.version)

    def lose(self, *, hangs: bool = False) -> None:
        self.wakeups.is_away, self.hangs = True, hangs
        self.wakeups.miss_some()


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[FarCache]:
    opened = await BACKENDS["memory"].open(tmp_path, None)
    cache = FarCache(opened)
    assert await cache.latest() == (Rulebook(version=1), False)
    yield cache
    await opened.close()


async def test_rules_that_cannot_be_read_are_used_for_a_while(far: FarCache) -> None:
    far.lose()

    far.passed_s = 299.0
    assert await far.latest() == (Rulebook(version=1), True)
    with pytest.raises(StoreUnavailable):
        await far.current()
    far.passed_s = 301.0
    with pytest.raises(StoreUnavailable):
        await far.latest()


async def test_rules_that_have_changed_are_not_used_although_the_new_ones_cannot_be_read(far: FarCache) -> None:
    far.lose()
    assert await far.latest() == (Rulebook(version=1), True)

    far.wakeups.notify(RULES)

    with pytest.raises(StoreUnavailable):
        await far.latest()


async def test_only_the_first_caller_waits_for_rules_that_cannot_be_read(far: FarCache) -> None:
    far.lose(hangs=True)
    far.passed_s = 2.0
    assert await far.latest() == (Rulebook(version=1), True)

    began = time.monotonic()
    answers = await asyncio.gather(*(far.latest() for _ in range(100)))

    assert answers == [(Rulebook(version=1), True)] * 100
    assert time.monotonic() - began < 0.4


async def test_rules_that_can_be_read_again_are_read(far: FarCache) -> None:
    far.lose()
    far.passed_s = 2.0
    assert await far.latest() == (Rulebook(version=1), True)

    far.wakeups.is_away, far.version = False, 2

    async def is_new() -> bool:
        return await far.latest() == (Rulebook(version=2), False)

    await eventually(is_new, 5.0)
