"""Primaries die or hand over, slots move, replicas lag: workers and producers go on with whoever is there."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs
from redis.crc import key_slot

from ade import Task
from ade.errors import NotConfirmed
from ade.stores.redis.scripts import script
from tests.domain import RedisSettings
from tests.faults.on_servers import ServerSite, site_on, under_load
from tests.faults.workers import until
from tests.servers.cluster import Cluster
from tests.servers.plugin import binary_or_skip
from tests.servers.ports import HOST
from tests.servers.proxy import Proxy
from tests.servers.sentinel import Sentinels
from tests.servers.server import Server
from tests.servers.waiting import until as wait_until

pytestmark = [pytest.mark.faults]

PARTITIONS = 6
WORK_GOES_ON_S = 25.0
STRONG = RedisSettings(allow_volatile=True, partitions=PARTITIONS, durability="strong")
QUEUES = [f"queue-{number}" for number in range(8)]  # they lie in several partitions
BUSY_SLOT = key_slot(f"ade:{{p{key_slot(QUEUES[0].encode()) % PARTITIONS}}}:".encode())  # of one of them


@pytest.mark.long
async def test_a_cluster_goes_on_with_the_replica_of_a_dead_primary(tmp_path: Path) -> None:
    """What replicas had confirmed is there; the rest may be lost, by the servers' own rules."""
    with Cluster(binary_or_skip("valkey"), replicas=1, node_timeout_ms=1000) as cluster:
        async with site_on(cluster.url, tmp_path, STRONG) as site:
            site.queues = QUEUES
            await site.crew()
            async with under_load(site) as load:
                await asyncio.to_thread(cluster.failover, BUSY_SLOT)
                await load.more()
                killed = await asyncio.to_thread(cluster.kill_primary, BUSY_SLOT)
                await asyncio.to_thread(cluster.wait_promoted, BUSY_SLOT, killed)
                await load.more()
            assert load.acknowledged
            await site.judge(load.acknowledged)


async def test_a_slot_moves_to_and_fro_under_load(tmp_path: Path) -> None:
    settings = structs.replace(STRONG, durability="normal")
    with Cluster(binary_or_skip("valkey")) as cluster:
        async with site_on(cluster.url, tmp_path, settings) as site:
            site.queues = QUEUES
            await site.crew()
            async with under_load(site) as load:
                for _ in range(4):
                    owner = cluster.owner_of(BUSY_SLOT)
                    target = next(node for node in cluster.primaries() if node is not owner)
                    await asyncio.to_thread(cluster.migrate_slot, BUSY_SLOT, target)
                    await load.more()
            assert load.troubles == []
            await site.judge(load.acknowledged)


@pytest.mark.parametrize("name", ["add", "claim", "commit"])
async def test_an_answer_that_a_node_of_the_cluster_gave_in_vain_changes_nothing(tmp_path: Path, name: str) -> None:
    settings = structs.replace(STRONG, durability="normal")
    with Cluster(binary_or_skip("valkey"), proxied=True) as cluster:
        async with site_on(cluster.url, tmp_path, settings) as site:
            site.queues = QUEUES
            await site.crew(lease_s=30.0)  # nothing runs twice because the machine was slow
            async with under_load(site) as load:
                for count in range(1, 5):
                    for node in cluster.nodes:
                        assert node.proxy is not None
                        node.proxy.drop_replies(1, containing=script(name).sha)
                        await asyncio.to_thread(node.proxy.wait_lost, count)
            await site.judge(load.acknowledged)
            assert load.troubles == []
            assert [ran for ran in site.runs().values() if len(ran) > 1] == []


@pytest.mark.long
async def test_work_goes_on_soon_after_a_node_of_the_cluster_was_out_of_reach(tmp_path: Path) -> None:
    settings = structs.replace(STRONG, durability="normal")
    with Cluster(binary_or_skip("valkey"), proxied=True) as cluster:
        path = cluster.owner_of(BUSY_SLOT).proxy
        assert path is not None
        async with site_on(cluster.url, tmp_path, settings) as site:
            site.queues = QUEUES
            await site.crew()
            async with under_load(site) as load:
                path.blackhole()
                await until(lambda: bool(load.troubles), "a producer is told")
                path.heal(forget=True)
                await load.more(within_s=WORK_GOES_ON_S)
                await site.all_hear(WORK_GOES_ON_S)
            await site.judge(load.acknowledged)


@pytest.mark.long
async def test_sentinels_promote_a_replica_under_load(tmp_path: Path) -> None:
    with Sentinels(binary_or_skip("valkey")) as watched:
        async with site_on(watched.url, tmp_path, STRONG) as site:
            await site.crew()
            async with under_load(site) as load:
                await asyncio.to_thread(watched.failover)
                await load.more()
                killed = await asyncio.to_thread(watched.kill_primary)
                await asyncio.to_thread(watched.wait_promoted, killed)
                await load.more()
            assert load.acknowledged
            await site.judge(load.acknowledged)


class LaggingPair:
    """A primary and a replica that can be cut off, behind an address that is switched from one to the other."""

    def __init__(self, primary: Server, replica: Server, line: Proxy, front: Proxy) -> None:
        self.primary, self.replica, self._line, self.front = primary, replica, line, front
        replica.command("REPLICAOF", HOST, line.port)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")

    def cut_off(self) -> None:
        """Everything so far is on the replica, nothing more gets there."""
        assert self.primary.command("WAIT", 1, 5000) == 1
        self._line.blackhole()

    def promote(self) -> None:
        """The primary is gone for good; the replica takes its place without what it never heard of."""
        self.primary.kill()
        self.replica.command("REPLICAOF", "NO", "ONE")
        self.front.target_port = self.replica.port
        self.front.cut()


async def test_a_replica_promoted_with_lag_loses_writes_but_nothing_runs_under_two_leases(tmp_path: Path) -> None:
    binary = binary_or_skip("valkey")
    with (
        Server(binary) as primary,
        Server(binary) as replica,
        Proxy(primary.port) as line,
        Proxy(primary.port) as front,
    ):
        pair = LaggingPair(primary, replica, line, front)
        async with site_on(front.url(primary.url), tmp_path) as site:
            await site.crew()
            async with under_load(site) as load:
                await load.more()
            kept = await site.add(*(site.task(0.2) for _ in range(40)))
            await asyncio.to_thread(pair.cut_off)
            [lost] = await site.add(structs.replace(site.task(60.0), priority=0))
            await until(lambda: lost.id in site.runs(), "the task that will be lost runs")
            await site.all_final([task.id for task in kept])
            front_port_commands = await switch(site, pair)
            await until(lambda: any(lost.id in line for line in site.warnings()), "its worker tells of it")
            await site.judge([*load.acknowledged, *(task.id for task in kept)])
            assert [await site.stores.tasks.get([lost.id])] == [[None]]
            assert front_port_commands < 3000


async def switch(site: ServerSite, pair: LaggingPair) -> int:
    """Promote, and count what the new primary is asked in the first seconds."""
    await asyncio.to_thread(pair.promote)
    before = pair.replica.info("stats")["total_commands_processed"]
    await site.all_hear()
    return int(pair.replica.info("stats")["total_commands_processed"]) - int(before)


async def test_work_that_no_replica_confirms_is_accepted_and_done_and_said_to_be_unconfirmed(tmp_path: Path) -> None:
    binary = binary_or_skip("valkey")
    settings = structs.replace(STRONG, confirm_timeout_s=2.0)
    with Server(binary) as primary, Server(binary) as replica:
        replica.replicate(primary)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")
        async with site_on(primary.url, tmp_path, settings) as site:
            await site.crew(1)
            [confirmed] = await site.add(site.task())
            replica.kill()
            task: Task = site.task()
            for _ in range(2):
                with pytest.raises(NotConfirmed, match="0 of 1 replicas"):
                    await site.add(task)

            await site.judge([confirmed.id, task.id])


async def test_what_is_accepted_without_confirmation_is_accepted_in_every_partition(tmp_path: Path) -> None:
    settings = structs.replace(STRONG, confirm_timeout_s=0.1)
    with Cluster(binary_or_skip("valkey")) as cluster:
        async with site_on(cluster.url, tmp_path, settings) as site:
            tasks = [structs.replace(site.task(), queue=queue) for queue in QUEUES]
            with pytest.raises(NotConfirmed):
                await site.add(*tasks)

            assert [task and task.id for task in await site.stores.tasks.get([task.id for task in tasks])] == [
                task.id for task in tasks
            ]
            await site.crew(1)
            await site.all_final([task.id for task in tasks])
