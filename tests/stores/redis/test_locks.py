"""Locks on servers: what a hand-over costs, what a repeated call does, and what is left when everything is lost."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ade.errors import StoreCorrupt
from ade.locks.deadlocks import DeadlockVictimChoice
from ade.stores.ports import LOCK
from ade.stores.redis.client.client import BLOCKING_PATIENCE_S, RedisClient
from ade.stores.redis.event_log import RedisEvents
from ade.stores.redis.locks import RedisLocks
from ade.stores.redis.partitions import Partitions, partition_of_key
from ade.stores.redis.wakeups import RedisWakeups
from ade.testing import TestClock
from tests.domain import LockLimits, LockMode, LockQuery, LockRequest, RedisSettings, parse_url, validate_request
from tests.servers.binaries import Binary
from tests.servers.cluster import Cluster
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.ports import RepeatingLink

READ, WRITE = LockMode.SHARED, LockMode.EXCLUSIVE
DB = "db:main"
OPTIONS = RedisSettings(allow_volatile=True, partitions=4)
MANY = LockLimits(waiters_per_resource=10_000, requests_per_owner=10_000)


class Books:
    """The locks of one store, and a link to it whose calls can be repeated."""

    def __init__(self, link: RepeatingLink, clock: TestClock | None) -> None:
        self.link = link
        self.clock = clock
        self.wakeups = RedisWakeups(link)
        link.clock = clock or link.server_clock
        self.store = RedisLocks(link, self.wakeups)
        self.log = RedisEvents(link, Partitions(link))

    async def ask(
        self,
        who: str,
        mode: LockMode = WRITE,
        *,
        namespace: str = "default",
        wait_ms: int | None = None,
        limits: LockLimits = MANY,
    ) -> LockRequest | None:
        request = validate_request(id=who, owner="all", scope=who, wanted=[(DB, mode)], namespace=namespace)
        return await self.store.acquire(request, wait_ms=wait_ms, limits=limits)

    async def commands(self) -> int:
        """How many commands the server has carried out, those of scripts too."""
        [facts] = await self.link.ask(0, ("INFO", "commandstats"))
        lines = (line for line in facts.decode().splitlines() if line.startswith("cmdstat_"))
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)

    async def told(self) -> list[str]:
        return [event.type for event in await self.log.read(0, 10_000)]

    async def close(self) -> None:
        self.wakeups.close()
        await self.link.close()


def linked(server: Server | Cluster) -> RepeatingLink:
    return RepeatingLink(parse_url(server.url), OPTIONS)


@pytest.fixture
async def books(server_binary: Binary, server_pool: Pool) -> AsyncIterator[Books]:
    opened = Books(linked(server_pool.standalone(server_binary.kind)), TestClock())
    yield opened
    await opened.close()


@pytest.fixture
async def timeless(server_binary: Binary, server_pool: Pool) -> AsyncIterator[Books]:
    """Books for which the server's own time counts."""
    opened = Books(linked(server_pool.standalone(server_binary.kind)), None)
    yield opened
    await opened.close()


async def test_500_wait_and_one_release_is_one_grant_and_few_commands(books: Books) -> None:
    await books.ask("holder")
    for number in range(500):
        await books.ask(f"w{number:03}")
    before = await books.commands()

    await books.store.release("default", ["holder"])

    assert await books.commands() - before < 40
    granted = [one.id for one in await books.store.find(LockQuery()) if one.is_granted]
    assert granted == ["w000"]


async def test_500_readers_are_let_in_together_by_few_commands(books: Books) -> None:
    await books.ask("holder")
    for number in range(500):
        await books.ask(f"r{number:03}", READ)
    before = await books.commands()

    await books.store.release("default", ["holder"])

    assert await books.commands() - before < 80
    assert all(one.is_granted for one in await books.store.find(LockQuery()))


async def test_a_new_waiter_does_not_read_the_line(books: Books) -> None:
    await books.ask("holder")
    for number in range(100):
        await books.ask(f"w{number:03}")
    before = await books.commands()

    await books.ask("one more")

    assert await books.commands() - before < 40


async def test_a_call_whose_answer_was_lost_does_no_harm_when_it_comes_again(books: Books) -> None:
    books.link.loses_answers = True

    held, queued = await books.ask("ada", READ), await books.ask("bob", READ)
    waiter = await books.ask("cy")
    renewed = await books.store.renew("default", ["ada"])
    upgrade = await books.store.upgrade("default", "ada", DB, upgrade_id="up", wait_ms=None)
    victim = await books.store.cure("default", DeadlockVictimChoice("cy"), ("a",))
    taken = await books.store.take_away("default", "bob", reason="stuck", by="operator")
    shared = await books.store.downgrade("default", "ada", DB)
    released = await books.store.release("default", ["ada"])

    assert held is not None
    assert queued is not None
    assert waiter is not None
    assert renewed[0] is not None
    assert upgrade is not None
    assert victim is not None
    assert taken is not None
    assert shared.mode_of(DB) is READ
    assert released == [None], "it was let go of by the call whose answer was lost"
    assert await books.told() == [
        "lock.acquired",
        "lock.acquired",
        "lock.queued",
        "lock.queued",
        "lock.deadlock",
        "lock.lost",
        "lock.upgraded",
        "lock.downgraded",
        "lock.released",
    ]


async def test_tokens_rise_although_everything_was_lost(timeless: Books) -> None:
    before = await timeless.ask("ada")
    await timeless.link.ask(0, ("FLUSHALL",))

    assert await timeless.store.renew("default", ["ada"]) == [None]
    after = await timeless.ask("bob")

    assert before is not None
    assert after is not None
    assert after.is_granted
    assert after.items[0].token > before.items[0].token


async def test_leases_keep_what_was_left_of_them_when_the_servers_clock_goes_back(timeless: Books) -> None:
    held = await timeless.ask("ada")
    assert held is not None
    hour_ms = 3_600_000
    an_hour_ago = (held.lease_until - held.ttl_ms - hour_ms) / 1000
    timeless.link.clock = TestClock(datetime.fromtimestamp(an_hour_ago, UTC))
    earlier = timeless.store
    request = validate_request(id="bob", owner="all", scope="bob", wanted=[(DB, WRITE)])
    waiter = await earlier.acquire(request, wait_ms=None, limits=MANY)

    assert waiter is not None
    assert waiter.is_waiting
    [kept] = await earlier.look("default", ["ada"])
    assert kept is not None
    assert kept.lease_until <= held.lease_until - hour_ms


@pytest.mark.parametrize(
    "family",
    [
        "held:default:db:main",
        "line:default:db:main",
        "request:default",
        "owner:default:all",
        "kind:default:db",
    ],
)
async def test_a_key_of_a_wrong_type_is_named_and_nothing_is_written(books: Books, family: str) -> None:
    key = f"{books.link.names[0].prefix}lock:{family}"
    await books.ask("ada")
    await books.ask("bob")
    await books.link.ask(0, ("DEL", key), ("SET", key, "x"))
    told = await books.told()

    with pytest.raises(StoreCorrupt, match=key):
        await books.ask("cy")
    with pytest.raises(StoreCorrupt, match=key):
        await books.store.release("default", ["ada"])

    assert await books.told() == told


async def test_a_rate_of_a_wrong_type_is_named_and_nothing_is_written(books: Books) -> None:
    key = f"{books.link.names[0].prefix}lock:rate:default:all"
    await books.link.ask(0, ("RPUSH", key, "x"))

    with pytest.raises(StoreCorrupt, match=key):
        await books.ask("ada", limits=LockLimits(acquires=2, acquires_per_ms=1_000))

    assert await books.told() == []


async def test_the_rate_of_who_asks_no_more_is_forgotten_by_itself(books: Books) -> None:
    key = f"{books.link.names[0].prefix}lock:rate:default:all"
    await books.ask("ada", limits=LockLimits(acquires=2, acquires_per_ms=10_000))

    [left_ms] = await books.link.ask(0, ("PTTL", key))

    assert 60_000 < left_ms <= 65_000, "a minute after all of it is free again"


async def test_what_is_found_by_an_index_does_not_cost_what_else_there_is(books: Books) -> None:
    for number in range(300):
        request = validate_request(
            id=f"r{number:03}", owner=f"o{number % 3}", scope="s", wanted=[(f"db:{number}", WRITE)]
        )
        await books.store.acquire(request, wait_ms=None, limits=MANY)
    await books.store.acquire(
        validate_request(id="x", owner="o0", scope="s", wanted=[("repo:app", WRITE)]), wait_ms=None, limits=MANY
    )
    before = await books.commands()

    [of_kind] = await books.store.find(LockQuery(kind="repo"))
    [of_both] = await books.store.find(LockQuery(namespace="default", kind="repo", owner="o0"))
    few = await books.store.find(LockQuery(owner="o1", limit=5))
    some = await books.store.find(LockQuery(limit=7))

    assert (of_kind.id, of_both.id) == ("x", "x")
    assert [one.id for one in few] == ["r001", "r004", "r007", "r010", "r013"]
    assert len(some) == 7
    assert await books.commands() - before < 30


async def test_an_end_without_a_request_is_forgotten_by_the_sweep(books: Books) -> None:
    await books.link.ask(0, ("ZADD", f"{books.link.names[0].prefix}lock:leases", 1, "default:nobody"))

    assert await books.store.bury(10) == 1
    assert await books.store.bury(10) == 0


async def test_another_process_hears_of_a_hand_over_and_of_nothing_else(books: Books) -> None:
    other = RedisClient(books.link.place, OPTIONS)
    wakeups = RedisWakeups(other)
    try:
        await wakeups.wait(LOCK, wakeups.generation(LOCK), 5)  # the subscription is there
        seen = wakeups.generation(LOCK)
        await books.ask("ada")
        await books.ask("bob")
        await books.store.renew("default", ["ada"])
        assert wakeups.generation(LOCK) == seen

        await books.store.release("default", ["ada"])
        await wakeups.wait(LOCK, seen, 5)

        assert wakeups.generation(LOCK) > seen
    finally:
        wakeups.close()
        await other.close()


async def test_namespaces_are_spread_over_the_partitions_of_a_cluster(server_binary: Binary, server_pool: Pool) -> None:
    link = linked(server_pool.cluster(server_binary.kind))
    books = Books(link, TestClock())
    try:
        names = [f"ns{number}" for number in range(12)]
        for name in names:
            await books.ask(f"holder-of-{name}", namespace=name)

        places = {partition_of_key(name, link.partitions) for name in names}
        keys = [link.ask(place, ("EXISTS", f"{link.names[place].prefix}lock:marks")) for place in places]
        assert len(places) > 1
        assert list(itertools.chain.from_iterable([await key for key in keys])) == [1] * len(places)
        assert len(await books.store.find(LockQuery())) == 12
        assert await books.store.look("ns3", ["holder-of-ns3", "holder-of-ns4"]) != [None, None]
    finally:
        await books.close()


async def test_a_renewal_by_the_lease_thread_has_the_patience_of_a_heartbeat(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews runs too: while the books are out of reach, those must not wait for them."""
    await books.ask("ada")
    run, patience = books.link.run, list[float | None]()

    def noting(*call: Any, **more: Any) -> Any:
        patience.append(more.get("patience_s"))
        return run(*call, **more)

    monkeypatch.setattr(books.link, "run", noting)
    [renewed] = await asyncio.to_thread(books.store.renew_blocking, "default", ["ada"])

    assert renewed is not None
    assert patience == [BLOCKING_PATIENCE_S]
