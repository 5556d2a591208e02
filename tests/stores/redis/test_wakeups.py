"""Wake-ups through the server: heard by all, missed by nobody for long, and in nobody's way."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from ade.errors import StoreUnsupported
from ade.stores.redis import wakeups as wakeups_module
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.wakeups import TOPICS
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import DONE, RULES, STOP, WORK, DocumentWrite, RedisSettings, open_redis
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.proxy import Proxy
from tests.servers.server import Server
from tests.servers.waiting import until
from tests.stalls import undisturbed
from tests.stores.redis.counting import QUICK


async def listening(url: str) -> RedisWakeups:
    """Hints that have subscribed already; they count that as a ring."""
    wakeups = RedisWakeups(RedisClient.to(url, QUICK))
    for topic in TOPICS:
        await heard(wakeups, topic, wakeups.generation(topic) if topic == WORK else 0)
    return wakeups


async def closed(wakeups: RedisWakeups) -> None:
    wakeups.close()
    await wakeups._link.close()


def messages(server: Server) -> int:
    """How many were published so far, by scripts too."""
    calls: int = server.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]
    return calls


async def heard(wakeups: RedisWakeups, topic: str, seen: int, within_s: float = 60) -> float:
    """How long it took until the topic was rung."""
    began = time.monotonic()
    await wakeups.wait(topic, seen, within_s)
    assert wakeups.generation(topic) > seen, f"{topic} was not heard within {within_s} s"
    return time.monotonic() - began


@pytest.fixture
async def pair(server: Server) -> AsyncIterator[list[RedisWakeups]]:
    """Two processes' worth of hints."""
    wakeups = [await listening(server.url) for _ in range(2)]
    yield wakeups
    for each in wakeups:
        await closed(each)


async def test_who_waits_is_woken_by_another_process(pair: list[RedisWakeups]) -> None:
    here, there = pair
    seen = there.generation(WORK)
    waiting = asyncio.create_task(heard(there, WORK, seen))
    here.notify(WORK)

    assert await waiting < 30


async def test_a_hint_of_one_topic_wakes_nobody_who_waits_for_another(pair: list[RedisWakeups]) -> None:
    here, there = pair
    work, done = there.generation(WORK), there.generation(DONE)
    here.notify(DONE)
    await heard(there, DONE, done)

    assert there.generation(WORK) == work


async def test_what_was_rung_here_is_known_here_at_once(pair: list[RedisWakeups]) -> None:
    here, _ = pair
    seen = here.generation(STOP)

    here.notify(STOP)

    assert here.generation(STOP) > seen


async def test_scripts_and_foreign_programs_ring_with_the_bare_word(pair: list[RedisWakeups], server: Server) -> None:
    here, _ = pair
    seen = here.generation(WORK)
    server.command("PUBLISH", "ade:hints", "no such topic")
    server.command("PUBLISH", "ade:hints", "work")

    assert await heard(here, WORK, seen) < 30


async def test_many_rings_become_few_messages(pair: list[RedisWakeups], server: Server) -> None:
    here, there = pair
    seen = there.generation(WORK)
    before = server.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]

    for _ in range(1000):
        here.notify(WORK)
    await heard(there, WORK, seen)

    assert server.info("commandstats")["cmdstat_publish"]["calls"] - before < 200


async def test_a_ring_after_new_tasks_is_other_news(server: Server) -> None:
    """As when a paused queue is resumed right after something was enqueued to it."""
    stores = await open_redis(server.url, RedisSettings(allow_volatile=True))
    before = messages(server)
    await Scene(stores, TestClock()).add()
    stores.wakeups.notify(WORK)

    until(lambda: messages(server) >= before + 2, "both were told")
    await stores.close()
    assert messages(server) == before + 2


async def test_the_ring_of_a_write_is_told_once_and_the_next_one_again(
    pair: list[RedisWakeups], server: Server
) -> None:
    here, there = pair
    before, seen = messages(server), there.generation(WORK)
    here.published(WORK)
    here.notify(WORK)
    here.notify(WORK)
    await heard(there, WORK, seen)

    assert messages(server) == before + 1


async def test_who_follows_is_called_by_another_process(pair: list[RedisWakeups], server: Server) -> None:
    here, _ = pair
    called = asyncio.Event()
    unfollow = here.follow(WORK, called.set)

    server.command("PUBLISH", "ade:hints", "work")

    assert await asyncio.wait_for(called.wait(), 60)
    unfollow()


async def test_who_follows_rules_alone_is_not_woken_by_work(server: Server) -> None:
    """All who enqueue follow the rules, and need not hear of each other's tasks."""
    wakeups, called = RedisWakeups(RedisClient.to(server.url, QUICK)), asyncio.Event()
    wakeups.follow(RULES, called.set)
    await asyncio.wait_for(called.wait(), 60)  # the subscription counts as a ring
    called.clear()
    work = wakeups.generation(WORK)
    server.command("PUBLISH", "ade:hints", "work")
    server.command("PUBLISH", "ade:hints:rules", "rules")
    await asyncio.wait_for(called.wait(), 60)

    assert wakeups.generation(WORK) == work
    assert server.command("PUBSUB", "NUMSUB", "ade:hints")[1] == 0
    await closed(wakeups)


async def test_who_followed_rules_alone_and_waits_for_work_hears_of_it(server: Server) -> None:
    wakeups, called = RedisWakeups(RedisClient.to(server.url, QUICK)), asyncio.Event()
    wakeups.follow(RULES, called.set)
    await asyncio.wait_for(called.wait(), 60)

    await heard(wakeups, WORK, wakeups.generation(WORK))  # to hear of more counts as a ring
    seen = wakeups.generation(WORK)
    server.command("PUBLISH", "ade:hints", "work")

    assert await heard(wakeups, WORK, seen) < 30
    await closed(wakeups)


async def test_changed_rules_are_told_by_scripts_on_their_own_channel(server: Server) -> None:
    stores = await open_redis(server.url, RedisSettings(allow_volatile=True))
    there, called = RedisWakeups(RedisClient.to(server.url, QUICK)), asyncio.Event()
    there.follow(RULES, called.set)
    await asyncio.wait_for(called.wait(), 60)
    called.clear()

    await stores.documents.write([DocumentWrite(kind="story", id="a", body=Raw(b"{}"))])

    assert await asyncio.wait_for(called.wait(), 60)
    await closed(there)
    await stores.close()


async def test_a_loop_that_attends_hears_by_itself(server: Server) -> None:
    """No other thread is involved, and when it attends no more the subscription is made elsewhere."""
    wakeups = RedisWakeups(RedisClient.to(server.url, QUICK))
    attending = asyncio.create_task(wakeups.listen())
    await asyncio.sleep(0)
    for topic in TOPICS:
        await heard(wakeups, topic, 0)
    assert wakeups._link.aside._thread is None

    seen = wakeups.generation(WORK)
    server.command("PUBLISH", "ade:hints", "work")
    await heard(wakeups, WORK, seen)

    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    await heard(wakeups, STOP, wakeups.generation(STOP))  # it counts as a ring that there is a new subscription
    seen = wakeups.generation(WORK)
    server.command("PUBLISH", "ade:hints", "work")
    await heard(wakeups, WORK, seen)
    await closed(wakeups)


async def test_who_waits_on_is_heard_for_when_nobody_attends_any_more(server: Server) -> None:
    """As the one who waits for a result in the process of a worker that has just ended."""
    wakeups = RedisWakeups(RedisClient.to(server.url, QUICK))
    attending = asyncio.create_task(wakeups.listen())
    await asyncio.sleep(0)
    await heard(wakeups, DONE, 0)
    waiting = asyncio.create_task(heard(wakeups, DONE, wakeups.generation(DONE)))
    await asyncio.sleep(0)

    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)

    assert await waiting < 30  # there is a new subscription, which counts as a ring
    await closed(wakeups)


async def test_who_ends_with_the_one_who_attends_is_not_heard_for(server: Server) -> None:
    wakeups = RedisWakeups(RedisClient.to(server.url, QUICK))
    attending = asyncio.create_task(wakeups.listen())
    await asyncio.sleep(0)
    await heard(wakeups, STOP, 0)
    waiting = asyncio.create_task(heard(wakeups, STOP, wakeups.generation(STOP)))
    await asyncio.sleep(0)

    attending.cancel()
    waiting.cancel()
    await asyncio.gather(attending, waiting, return_exceptions=True)

    assert wakeups._link.aside._thread is None
    await closed(wakeups)


async def test_an_attending_loop_takes_over_from_the_thread(pair: list[RedisWakeups], server: Server) -> None:
    here, _ = pair
    attending = asyncio.create_task(here.listen())
    await heard(here, DONE, here.generation(DONE))
    assert until(lambda: server.command("PUBSUB", "NUMSUB", "ade:hints")[1] == 2, "one subscription of each")

    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)


async def test_any_thread_rings_and_any_loop_waits(pair: list[RedisWakeups]) -> None:
    here, there = pair
    seen = there.generation(WORK)
    waiting = asyncio.create_task(asyncio.to_thread(asyncio.run, heard(there, WORK, seen)))
    await asyncio.to_thread(here.notify, WORK)

    assert await waiting < 30


async def test_a_wait_ends_by_itself_and_closing_lets_everybody_go(pair: list[RedisWakeups]) -> None:
    here, _ = pair
    await here.wait(WORK, here.generation(WORK), 0.01)
    waiting = asyncio.create_task(heard(here, WORK, here.generation(WORK)))
    await asyncio.sleep(0)

    here.close()

    assert await waiting < 30
    here.notify(WORK)  # too late, and in nobody's way


async def test_the_first_subscription_counts_as_a_ring(server: Server) -> None:
    """What happened between looking and subscribing is looked for again."""
    wakeups = RedisWakeups(RedisClient.to(server.url, QUICK))

    assert await heard(wakeups, WORK, wakeups.generation(WORK)) < 30
    await closed(wakeups)


async def test_a_cut_connection_is_made_again_and_counts_as_a_ring(server: Server) -> None:
    with Proxy(server.port) as path:
        wakeups = await listening(path.url(server.url))
        seen = wakeups.generation(DONE)
        path.cut()
        await heard(wakeups, DONE, seen)

        seen = wakeups.generation(WORK)
        server.command("PUBLISH", "ade:hints", "work")
        assert await heard(wakeups, WORK, seen) < 30
        await closed(wakeups)


@pytest.mark.faults
async def test_a_line_that_has_gone_silent_is_noticed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups_module, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(wakeups_module, "SILENT_AFTER_S", 0.6)
    with Proxy(server.port) as path:
        wakeups = await listening(path.url(server.url))
        seen, connections = wakeups.generation(WORK), path.connections
        path.blackhole()
        await asyncio.to_thread(until, lambda: path.connections > connections, "a new connection")
        path.heal(forget=True)

        assert await heard(wakeups, WORK, seen) < 30
        await closed(wakeups)


@pytest.mark.faults
async def test_a_quiet_line_is_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups_module, "PING_EVERY_S", 0.05)
    monkeypatch.setattr(wakeups_module, "SILENT_AFTER_S", 1.0)
    with Proxy(server.port) as path:
        wakeups = await listening(path.url(server.url))

        async def story() -> None:
            connections = path.connections
            await wakeups.wait(WORK, wakeups.generation(WORK), 2)
            assert path.connections == connections

        await undisturbed(story, stall_s=0.2)
        await closed(wakeups)


async def test_in_a_cluster_every_node_hears(server_binary: Binary, server_pool: Pool) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    wakeups = await listening(cluster.url)
    for node in cluster.nodes:
        seen = wakeups.generation(WORK)
        node.command("PUBLISH", "ade:hints", "work")
        assert await heard(wakeups, WORK, seen) < 30
    await closed(wakeups)


async def test_a_server_that_is_away_is_in_nobodys_way() -> None:
    wakeups = RedisWakeups(RedisClient.to("redis://127.0.0.1:1", QUICK))
    began = time.monotonic()
    wakeups.notify(WORK)

    await wakeups.wait(WORK, wakeups.generation(WORK), 0.2)

    assert time.monotonic() - began < 10
    await closed(wakeups)


async def test_after_a_fork_nobody_waits_and_rings_are_not_sent(
    pair: list[RedisWakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        with pytest.raises(StoreUnsupported, match="fork"):
            await pair[0].wait(WORK, 0, 1)
        pair[0].notify(WORK)  # in nobody's way
