"""The line to a cluster: partitions on all nodes, found again wherever they go."""

import asyncio

import pytest
from msgspec.structs import replace
from redis.crc import key_slot

from ade.errors import StoreUnavailable
from ade.stores.redis.keys import names_of
from tests.domain import RedisSettings
from tests.servers.binaries import Binary
from tests.servers.cluster import Cluster, Node
from tests.servers.plugin import binary_or_skip
from tests.servers.pool import Pool
from tests.stores.redis.counting import QUICK, Load, count, counted, counted_everywhere, linked


@pytest.fixture
def cluster(server_binary: Binary, server_pool: Pool) -> Cluster:
    return server_pool.cluster(server_binary.kind)


def elsewhere(cluster: Cluster, slot: int) -> Node:
    """A primary that does not have the slot."""
    return next(node for node in cluster.primaries() if node is not cluster.owner_of(slot))


async def test_partitions_are_spread_over_all_primaries(cluster: Cluster) -> None:
    async with linked(cluster.url) as link:
        assert link.partitions == 16
        assert link.names[3].prefix == "ade:{p3}:"

        await asyncio.gather(*(count(link, "x", partition) for partition in range(16)))

        assert {str(link.where(partition)) for partition in range(16)} == {node.address for node in cluster.nodes}
        assert await counted_everywhere(link) == 16
        assert {str(address) for address in await link.primaries()} == {node.address for node in cluster.nodes}


async def test_one_node_that_answers_is_enough_to_find_the_others(cluster: Cluster) -> None:
    async with linked(f"redis+cluster://127.0.0.1:1,{cluster.nodes[2].address}") as link:
        assert [await count(link, "x", partition) for partition in range(16)] == [1] * 16


async def test_no_node_at_all_ends_with_patience_and_says_why() -> None:
    options = RedisSettings(patience_s=0.5)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 does not answer"):
        async with linked("redis+cluster://127.0.0.1:1", options):
            pass


async def test_a_slot_that_has_moved_is_found(cluster: Cluster) -> None:
    async with linked(cluster.url) as link:
        await count(link, "before", 5)
        slot = key_slot(b"{p5}")
        target = elsewhere(cluster, slot)

        cluster.migrate_slot(slot, target)

        assert await count(link, "after", 5) == 2
        assert str(link.where(5)) == target.address


async def test_while_a_slot_moves_reads_are_sent_after_it_and_scripts_wait(cluster: Cluster) -> None:
    async with linked(cluster.url) as link:
        await count(link, "before", 7)
        migration = cluster.migration(key_slot(b"{p7}"), elsewhere(cluster, key_slot(b"{p7}")))
        migration.begin()
        migration.move_all()

        # Two answers of two servers in one call: a key that has moved, and one that is nowhere.
        assert await link.ask(7, ("GET", "ade:{p7}:count"), ("PING",), ("GET", "ade:{p7}:nothing")) == [
            b"1",
            b"PONG",
            None,
        ]
        waiting = asyncio.create_task(count(link, "during", 7))
        assert await link.ask(7, ("GET", "ade:{p7}:count")) == [b"1"]
        assert not waiting.done()
        migration.finish()

        assert await waiting == 2


@pytest.mark.faults
async def test_slots_move_under_load_and_every_request_is_counted_once(cluster: Cluster) -> None:
    async with linked(cluster.url) as link:
        load = Load(link)
        for partition in (0, 1, 2, 3):
            slot = key_slot(f"{{p{partition}}}".encode())
            migration = cluster.migration(slot, elsewhere(cluster, slot))
            migration.begin()
            await load.go_on(2)
            while migration.move(1):
                await load.breathe()
            migration.finish()
            await load.go_on(50)

        assert await load.stop() == await counted_everywhere(link)


@pytest.mark.faults
async def test_replicas_take_over_under_load(server_binary: Binary) -> None:
    with Cluster(server_binary, replicas=1, node_timeout_ms=1000) as cluster:
        async with linked(cluster.url, RedisSettings(command_timeout_s=0.5, confirm_timeout_s=0.4)) as link:
            # Orderly: the old primary goes on as a replica.
            load = Load(link)
            await load.go_on(50)
            slot = key_slot(b"{p0}")
            await asyncio.to_thread(cluster.failover, slot)
            await load.go_on(100)
            assert await load.stop() == await counted_everywhere(link)

            # By a crash: what the replica has is there, and nobody is deaf.
            assert await count(link, "confirmed", 0, confirm=True) > 0
            before = await counted(link, 0)
            load = Load(link)
            victim = await asyncio.to_thread(cluster.kill_primary, slot)
            await load.go_on(1)
            await asyncio.to_thread(cluster.wait_promoted, slot, victim)
            await load.go_on(200)
            await load.stop()
            assert await counted(link, 0) > before
            assert str(link.where(0)) != victim.address


@pytest.mark.faults
async def test_a_node_behind_a_black_hole_holds_up_only_its_own_partitions() -> None:
    with Cluster(binary_or_skip("valkey"), proxied=True, node_timeout_ms=60_000) as cluster:
        async with linked(cluster.url, replace(QUICK, patience_s=120)) as link:
            hidden = cluster.owner_of(key_slot(b"{p0}"))
            behind = [number for number in range(16) if str(link.where(number)) == hidden.public_address]
            others = [number for number in range(16) if number not in behind]
            assert hidden.proxy is not None
            hidden.proxy.blackhole()
            waiting = [asyncio.create_task(count(link, "x", number)) for number in behind]

            async with asyncio.timeout(30):
                assert await asyncio.gather(*(count(link, "x", number) for number in others)) == [1] * len(others)
            with pytest.raises(StoreUnavailable, match=hidden.public_address):
                await link.ask(0, ("PING",), patience_s=1)
            hidden.proxy.heal(forget=True)

            async with asyncio.timeout(60):
                assert await asyncio.gather(*waiting) == [1] * len(behind)


async def test_names_that_are_set_stay_with_their_partition(cluster: Cluster) -> None:
    options = RedisSettings(task_stream="stream:task", partitions=4)
    async with linked(cluster.url, options) as link:
        assert [names.tasks for names in link.names] == [f"{{p{number}}}:stream:task" for number in range(4)]
        for partition, names in enumerate(link.names):
            assert key_slot(names.tasks.encode()) == key_slot(f"{names.prefix}meta".encode())
            await link.ask(partition, ("XADD", names.tasks, "*", "a", "b"))


def test_every_partition_of_the_usual_number_has_a_slot_of_its_own() -> None:
    slots = {key_slot(names_of(QUICK, number).prefix.encode()) for number in range(QUICK.partitions)}

    assert len(slots) == QUICK.partitions
