"""A node of the cluster is away: the work of the others goes on."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from ade.errors import StoreCorrupt, StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.topology import ReachablePartitions, key_slot
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.scripts import script
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import RedisSettings, open_redis
from tests.servers.cluster import Cluster
from tests.servers.plugin import binary_or_skip
from tests.servers.server import PLAIN
from tests.waiting import eventually

COVERED = PLAIN.plus(cluster_require_full_coverage="no", cluster_allow_reads_when_down="yes")


def link() -> RedisClient:
    return RedisClient.to("redis://127.0.0.1:1", RedisSettings())


async def test_those_that_answer_are_heard_and_the_others_left_out_for_a_while() -> None:
    asked: list[int] = []

    async def ask(partition: int, _patience_s: float | None) -> str:
        asked.append(partition)
        if partition == 1:
            raise StoreUnavailable("away")
        return f"from {partition}"

    reach = ReachablePartitions(link())

    assert await reach.each([0, 1, 2], ask) == {0: "from 0", 2: "from 2"}
    assert await reach.each([0, 1, 2], ask) == {0: "from 0", 2: "from 2"}
    assert asked == [0, 1, 2, 0, 2]


async def test_when_nobody_answers_the_caller_is_told() -> None:
    async def ask(_partition: int, _patience_s: float | None) -> str:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await ReachablePartitions(link()).each([0, 1], ask)


async def test_an_answer_that_is_an_error_is_no_absence() -> None:
    async def ask(_partition: int, _patience_s: float | None) -> str:
        raise StoreCorrupt("spoiled")

    with pytest.raises(StoreCorrupt):
        await ReachablePartitions(link()).each([0, 1], ask)


@pytest.mark.faults
async def test_tasks_of_other_nodes_are_claimed_and_finished_while_one_node_is_dead() -> None:
    options = PLAIN.plus(cluster_require_full_coverage="no", cluster_allow_reads_when_down="yes")
    with Cluster(binary_or_skip("valkey"), options) as cluster:
        stores = await open_redis(cluster.url, RedisSettings(allow_volatile=True, patience_s=3), None)
        scene = Scene(stores, TestClock())
        linked = RedisClient.to(cluster.url, RedisSettings())
        places = Partitions(linked)
        tasks = [scene.task(queue=f"queue-{number}", created_at=0, run_after=0) for number in range(30)]
        await stores.tasks.add(tasks)

        homes = {
            task.id: cluster.owner_of(cluster.slot_of(linked.names[places.of_queue(task.queue)].prefix))
            for task in tasks
        }

        dead = cluster.kill_primary(0)
        claimed = await scene.claim(30)

        lost = {task_id for task_id, home in homes.items() if home is dead}
        assert {task.id for task in claimed} == {task.id for task in tasks} - lost
        assert 0 < len(lost) < 30
        assert await stores.tasks.commit_each([scene.success(task) for task in claimed]) == [None] * len(claimed)
        await linked.close()
        await stores.close()


@pytest.mark.faults
async def test_a_dead_node_holds_up_neither_ends_of_runs_nor_leases_nor_names_without_limits() -> None:
    options = PLAIN.plus(cluster_require_full_coverage="no", cluster_allow_reads_when_down="yes")
    with Cluster(binary_or_skip("valkey"), options) as cluster:
        stores = await open_redis(cluster.url, RedisSettings(allow_volatile=True, patience_s=3, partitions=4), None)
        scene = Scene(stores, TestClock(datetime.fromtimestamp(0, UTC)))
        here, there = await _queues_apart(cluster)
        first, second = await stores.tasks.add([scene.task(queue=queue) for queue in (here, there)])
        running = {task.id: task for task in await scene.claim(2)}
        await scene.add("report", queue=here)
        await stores.tasks.add([scene.task(queue=there, depends_on=(first.id,))])
        held = await scene.claim(names=["report"])
        await scene.define("build", concurrency=5)
        await stores.tasks.add([scene.task(name, queue=here) for name in ("build", "send")])

        dead = cluster.owner_of(cluster.slot_of(_prefix_of(there)))
        dead.kill()

        before = (await scene.get(held[0].id)).lease_until or 0
        runs = {str(task.run_id): task.id for task in (running[second.id], *held)}
        renewal = await asyncio.to_thread(stores.workers.renew, scene.worker("w1"), runs, lease_ms=3_600_000)
        assert (set(renewal.unreached), renewal.gone) == ({running[second.id].run_id}, {})
        assert ((await scene.get(held[0].id)).lease_until or 0) > before + 1_800_000
        await scene.succeed(running[first.id])
        assert await scene.status(first.id) == "completed"
        assert [task.name for task in await scene.claim(5)] == ["send"]

        cluster.restart(dead)
        await stores.close()


@pytest.mark.faults
async def test_every_maintenance_job_is_performed_while_any_one_node_is_dead() -> None:
    with Cluster(binary_or_skip("valkey"), COVERED) as cluster:
        settings = RedisSettings(allow_volatile=True, patience_s=3, partitions=4)
        stores = await open_redis(cluster.url, settings, None)
        jobs = [f"job-{number}" for number in range(8)]  # they are in all partitions

        dead = cluster.kill_primary(cluster.slot_of("ade:{p0}:"))

        assert [job for job in jobs if not await stores.sweeps.take_duty(job, "first", 60_000)] == []
        assert [job for job in jobs if await stores.sweeps.take_duty(job, "second", 60_000)] == []
        assert set(await stores.sweeps.jobs()) == set(jobs)
        began = time.monotonic()
        await stores.sweeps.due(10)
        await stores.sweeps.next_due()
        await stores.sweeps.expire_results(10)
        await stores.sweeps.finished_before(0, 10)
        await stores.effects.prune_effects(0, 10)
        await stores.locks.bury(10)
        await stores.queues.rate_full_at("report")
        assert time.monotonic() - began < 2.0
        cluster.restart(dead)
        await stores.close()


@pytest.mark.faults
async def test_what_a_lost_claim_took_is_returned_without_an_attempt_when_its_node_responds() -> None:
    with Cluster(binary_or_skip("valkey"), COVERED, proxied=True) as cluster:
        stores = await open_redis(cluster.url, RedisSettings(allow_volatile=True, patience_s=3, partitions=4), None)
        scene = Scene(stores, TestClock(datetime.fromtimestamp(0, UTC)))
        here, there = await _queues_apart(cluster)
        await scene.add(queue=there)
        await scene.run()  # the server knows the script from now on
        near, far = await stores.tasks.add([scene.task(queue=queue, max_attempts=1) for queue in (here, there)])
        proxy = cluster.owner_of(cluster.slot_of(_prefix_of(there))).proxy
        assert proxy is not None
        proxy.drop_replies(1_000, containing=script("claim").sha)

        claimed = await scene.claim(2)

        assert [task.id for task in claimed] == [near.id]
        assert (await scene.get(far.id)).status == "running"
        proxy.drop_replies(0)

        async def is_back() -> bool:
            return (await scene.get(far.id)).status == "pending"

        await eventually(is_back, 20.0)
        assert (await scene.get(far.id)).attempt == 0
        assert [task.id for task in await scene.claim(2)] == [far.id]
        await stores.close()


async def _queues_apart(cluster: Cluster) -> tuple[str, str]:
    """Two queues on different nodes, of which the first one has the first partition."""
    home = cluster.owner_of(cluster.slot_of("ade:{p0}:"))
    names = [f"queue-{number}" for number in range(50)]
    nodes = {name: cluster.owner_of(cluster.slot_of(_prefix_of(name))) for name in names}
    here = next(name for name in names if nodes[name] is home)
    return here, next(name for name in names if nodes[name] is not home)


def _prefix_of(queue: str) -> str:
    return f"ade:{{p{key_slot(queue.encode()) % 4}}}:"
