"""The line to one server: what is sent arrives once, whatever happens on the way, and nobody waits for ever."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from ade.errors import NotConfirmed, StoreCorrupt, StoreError, StoreFull, StoreUnavailable, StoreUnsupported
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.connections import RedisConnection
from ade.stores.redis.scripts import LuaScript
from tests.domain import RedisSettings
from tests.servers.binaries import Binary
from tests.servers.plugin import tls_or_skip
from tests.servers.proxy import Proxy
from tests.servers.server import DURABLE, PLAIN, Options, Server, User
from tests.stalls import undisturbed
from tests.stores.redis.counting import COUNT, PATIENT, QUICK, Load, count, counted, linked
from tests.waiting import until


@pytest.fixture
async def link(server: Server, path: Proxy) -> AsyncIterator[RedisClient]:
    async with linked(path.url(server.url)) as link:
        yield link


async def test_answers_are_as_the_server_gave_them(link: RedisClient) -> None:
    answers = await link.ask(
        0, ("HSET", "h", "a", 1, "b", "two"), ("HGETALL", "h"), ("GET", "nothing"), ("ZADD", "z", 5, "m")
    )

    assert answers == [2, [b"a", b"1", b"b", b"two"], None, 1]


async def test_a_script_the_server_has_forgotten_is_sent_whole(link: RedisClient, server: Server) -> None:
    assert await count(link, "first") == 1

    server.command("SCRIPT", "FLUSH")

    assert await count(link, "second") == 2


async def test_a_reply_lost_after_the_work_was_done_does_not_do_it_twice(
    link: RedisClient, path: Proxy, server: Server
) -> None:
    await count(link, "before")
    path.drop_replies(1, containing="EVALSHA")

    assert await count(link, "lost") == 2

    path.wait_lost()
    done, runs = server.command("MGET", "ade:count", "ade:runs")
    assert int(done) == 2
    assert int(runs) >= 3  # more only if the machine was slow: then it is asked once more


async def test_a_late_answer_is_never_taken_for_that_of_another_command(link: RedisClient, path: Proxy) -> None:
    await link.ask(0, ("SET", "slow", "late"), ("SET", "other", "right"))
    path.delay(700)
    with pytest.raises(StoreUnavailable):
        await link.ask(0, ("GET", "slow"), patience_s=0.5)
    path.delay(0)

    assert await link.ask(0, ("GET", "other")) == [b"right"]


async def test_a_call_into_a_black_hole_ends_with_its_patience_and_says_where(link: RedisClient, path: Proxy) -> None:
    await count(link, "before")
    path.blackhole()

    async def story() -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=path.address):
            await link.ask(0, ("GET", "anything"), patience_s=1)
        assert time.monotonic() - began < 1.5

    await undisturbed(story, stall_s=0.2)


async def test_work_goes_on_when_the_path_is_back_even_if_it_has_forgotten_all_connections(
    link: RedisClient, path: Proxy
) -> None:
    await asyncio.gather(*(count(link, f"before-{number}") for number in range(10)))
    path.blackhole()
    waiting = [asyncio.create_task(count(link, f"during-{number}")) for number in range(10)]
    with pytest.raises(StoreUnavailable):
        await link.ask(0, ("PING",), patience_s=0.5)
    path.heal(forget=True)
    healed = time.monotonic()

    await asyncio.gather(*waiting)  # each is patient for ten seconds

    assert time.monotonic() - healed < 9
    assert await counted(link) == 20


async def test_connections_killed_in_a_loop_lose_nothing(link: RedisClient, server: Server) -> None:
    load = Load(link)
    for _ in range(20):
        server.command("CLIENT", "KILL", "TYPE", "normal")
        await load.go_on(5)

    assert await load.stop() == await counted(link)


async def test_many_calls_share_few_connections(server: Server, path: Proxy) -> None:
    async with linked(path.url(server.url), replace(PATIENT, connections=4)) as link:
        await asyncio.gather(*(count(link, str(number)) for number in range(200)))

        assert await counted(link) == 200
    assert path.connections <= 4


async def test_a_caller_that_gives_up_leaves_no_answer_behind_for_the_next(link: RedisClient, path: Proxy) -> None:
    await link.ask(0, ("SET", "a", "of a"), ("SET", "b", "of b"))
    path.delay(100)
    before = path.requests
    hasty = asyncio.create_task(link.ask(0, ("GET", "a")))
    await asyncio.to_thread(until, lambda: path.requests > before, "the request to be on its way")
    hasty.cancel()
    await asyncio.gather(hasty, return_exceptions=True)
    path.delay(0)

    assert await link.ask(0, ("GET", "b")) == [b"of b"]


@pytest.mark.faults
async def test_a_server_that_is_killed_and_comes_back_has_everything_it_answered_for(server_binary: Binary) -> None:
    with Server(server_binary, DURABLE) as server:
        async with linked(server.url) as link:
            load = Load(link)
            await load.go_on(50)
            server.kill()
            await asyncio.to_thread(server.restart)
            await load.go_on(50)

            assert await load.stop() == await counted(link)


@pytest.mark.faults
async def test_a_server_that_stands_still_is_waited_for(server_binary: Binary) -> None:
    with Server(server_binary) as server:
        async with linked(server.url) as link:
            load = Load(link)
            await load.go_on(20)
            server.pause()
            with pytest.raises(StoreUnavailable):
                await link.ask(0, ("PING",), patience_s=1)
            server.resume()
            await load.go_on(20)

            assert await load.stop() == await counted(link)


# What a server refuses.


async def test_a_full_server_says_so(server_binary: Binary) -> None:
    with Server(server_binary, Options(maxmemory="1")) as server:
        link = RedisClient.to(server.url, QUICK)
        with pytest.raises(StoreFull, match="memory of"):
            await link.run_script(COUNT, 0, {"id": "x"})
        with pytest.raises(StoreFull):
            await link.ask(0, ("SET", "a", "b"))
        await link.close()


async def test_a_crowded_server_is_waited_for(server_binary: Binary) -> None:
    with Server(server_binary, PLAIN.plus(maxclients="10")) as crowded:
        link = RedisClient.to(crowded.url, RedisSettings(patience_s=60))
        await link.ask(0, ("PING",))
        crowded.command("CLIENT", "KILL", "TYPE", "normal")
        crowd = [await RedisConnection.open("127.0.0.1", crowded.port, timeout_s=30) for _ in range(10)]
        waiting = asyncio.create_task(link.ask(0, ("PING",)))
        turned_away = await RedisConnection.open("127.0.0.1", crowded.port, timeout_s=30)
        assert "max number of clients" in str(await turned_away.listen(30))
        assert not waiting.done()

        for line in (*crowd, turned_away):
            line.abort()

        assert await waiting == [b"PONG"]
        await link.close()


async def test_a_key_of_the_wrong_type_is_damage(link: RedisClient) -> None:
    await link.ask(0, ("SET", "ade:seen", "not a set"))

    with pytest.raises(StoreCorrupt, match="wrong type"):
        await count(link, "x")


async def test_any_other_refusal_is_an_error_of_the_store(link: RedisClient) -> None:
    with pytest.raises(StoreError, match="unknown command"):
        await link.ask(0, ("NO-SUCH-COMMAND",))
    with pytest.raises(StoreError):
        await link.run_script(LuaScript("broken", "#!lua\nthis is not Lua"), 0, {})

    assert await count(link, "still works") == 1


async def test_who_may_not_enter_is_told_at_once_and_no_password_is_repeated(server_binary: Binary) -> None:
    users = (User("ade", "s3cret", "~ade:* &ade:* +@all -config"),)
    with Server(server_binary, Options(users=users)) as server:
        for entry in ("", "ade:wr0ng@", ":wr0ng@"):
            link = RedisClient.to(f"redis://{entry}{server.address}", QUICK)
            with pytest.raises(StoreUnsupported, match="does not let us in") as refusal:
                await link.ask(0, ("PING",))
            assert "wr0ng" not in str(refusal.value) + repr(link.place)
            await link.close()

        async with linked(server.url) as link:
            assert await count(link, "x") == 1
            with pytest.raises(StoreUnsupported, match="does not allow"):
                await link.ask(0, ("GET", "foreign:key"))


async def test_an_encrypted_line_needs_a_certificate_that_is_trusted(server_binary: Binary) -> None:
    tls_or_skip(server_binary)
    with Server(server_binary, Options(tls=True, users=(User("ade", "s3cret"),))) as server:
        async with linked(server.url) as link:
            assert await count(link, "x") == 1

        stranger = RedisClient.to(server.url.partition("?")[0], QUICK)
        with pytest.raises(StoreUnsupported, match="not trusted"):
            await stranger.ask(0, ("PING",))
        await stranger.close()

        careless = RedisClient.to(server.url.partition("?")[0] + "?insecure=1", QUICK)
        assert await careless.ask(0, ("PING",)) == [b"PONG"]
        await careless.close()


# Replicas.


ADD_ONCE = LuaScript("add_once", "#!lua\nreturn redis.call('SADD', KEYS[1] .. ':ids', cmsgpack.unpack(ARGV[1]).id)")


async def test_what_a_replica_has_is_confirmed_and_what_it_has_not_is_accepted(server_binary: Binary) -> None:
    with Server(server_binary) as primary, Server(server_binary) as replica, Proxy(primary.port) as path:
        replica.replicate(primary)
        async with linked(path.url(primary.url)) as link, linked(primary.url, PATIENT) as patient:
            await _replicated(patient)
            assert await count(patient, "first", confirm=True) == 1

            replica.pause()
            with pytest.raises(NotConfirmed, match="0 of 1"):
                await count(link, "second", confirm=True)
            assert await counted(link) == 2

            # The same after a lost reply: the second try writes nothing itself, and still nothing is confirmed.
            await link.run_script(ADD_ONCE, 0, {"id": "other"})
            path.drop_replies(1, containing="EVALSHA")
            with pytest.raises(NotConfirmed):
                await link.run_script(ADD_ONCE, 0, {"id": "third"}, confirm=True)
            path.wait_lost()

            replica.resume()
            assert await patient.run_script(ADD_ONCE, 0, {"id": "third"}, confirm=True) == 0


async def _replicated(link: RedisClient) -> None:
    """Wait until the replica follows."""
    async with asyncio.timeout(60):
        while (await link.ask(0, ("INCR", "tries"), ("WAIT", 1, 100)))[1] != 1:
            pass


# Threads, loops and processes.


async def test_a_thread_without_a_loop_calls_too(link: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ade.stores.redis.client.client.script", lambda name: COUNT)
    threads = [asyncio.to_thread(link.run_blocking, "count", 0, {"id": f"{number}"}) for number in range(20)]

    assert sorted(await asyncio.gather(*threads)) == list(range(1, 21))
    assert link.run_blocking("count", 0, {"id": "here"}) == 21


@pytest.mark.faults
async def test_a_blocking_call_gives_up_within_a_heartbeat(
    link: RedisClient, path: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.stores.redis.client.client.script", lambda name: COUNT)
    link.run_blocking("count", 0, {"id": "before"})
    path.blackhole()

    async def story() -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(link.run_blocking, "count", 0, {"id": "during"})
        assert time.monotonic() - began < 4.8

    await undisturbed(story, stall_s=0.2)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # that is what a loop leaves behind which ends without a word
async def test_every_loop_has_connections_of_its_own_and_ended_loops_are_forgotten(server: Server) -> None:
    async with linked(server.url) as link:
        await count(link, "here")

        for number in range(3):
            assert await asyncio.to_thread(asyncio.run, count(link, f"loop {number}")) == number + 2

        assert await counted(link) == 4
        assert len(link._connections._sets) == 2  # this loop's, and the last one's until another comes
    gc.collect()


async def test_after_a_fork_the_link_is_refused(link: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreUnsupported, match="fork"):
            await count(link, "child")
        with pytest.raises(StoreUnsupported, match="fork"):
            link.run_blocking("count", 0, {})

    assert await count(link, "parent") == 1


async def test_a_closed_link_refuses_and_leaves_no_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ade.stores.redis.client.client.script", lambda name: COUNT)
    link = RedisClient.to(server.url, QUICK)
    await link.ask(0, ("PING",))
    await asyncio.to_thread(link.run_blocking, "count", 0, {"id": "x"})
    await link.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await link.ask(0, ("PING",))
    with pytest.raises(StoreUnavailable, match="closed"):
        link.run_blocking("count", 0, {"id": "y"})
    assert "ade-redis" not in {thread.name for thread in threading.enumerate()}
