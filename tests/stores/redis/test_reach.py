"""A node of the cluster is away: the work of the others goes on."""

import pytest

from ade.core.errors import StoreCorrupt, StoreUnavailable
from ade.stores.redis.link import Link
from ade.stores.redis.opening import open_redis
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.places import Partitions
from ade.stores.redis.reach import Reach
from tests.conformance.clock import StoryClock
from tests.conformance.scene import Scene
from tests.servers.cluster import Cluster
from tests.servers.plugin import binary_or_skip
from tests.servers.server import PLAIN


def link() -> Link:
    return Link.to("redis://127.0.0.1:1", RedisOptions())


async def test_those_that_answer_are_heard_and_the_others_left_out_for_a_while() -> None:
    asked: list[int] = []

    async def ask(partition: int, _patience_s: float | None) -> str:
        asked.append(partition)
        if partition == 1:
            raise StoreUnavailable("away")
        return f"from {partition}"

    reach = Reach(link())

    assert await reach.each([0, 1, 2], ask) == {0: "from 0", 2: "from 2"}
    assert await reach.each([0, 1, 2], ask) == {0: "from 0", 2: "from 2"}
    assert asked == [0, 1, 2, 0, 2]


async def test_when_nobody_answers_the_caller_is_told() -> None:
    async def ask(_partition: int, _patience_s: float | None) -> str:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await Reach(link()).each([0, 1], ask)


async def test_an_answer_that_is_an_error_is_no_absence() -> None:
    async def ask(_partition: int, _patience_s: float | None) -> str:
        raise StoreCorrupt("spoiled")

    with pytest.raises(StoreCorrupt):
        await Reach(link()).each([0, 1], ask)


@pytest.mark.faults
async def test_tasks_of_other_nodes_are_claimed_and_finished_while_one_node_is_dead() -> None:
    options = PLAIN.plus(cluster_require_full_coverage="no", cluster_allow_reads_when_down="yes")
    with Cluster(binary_or_skip("valkey"), options) as cluster:
        stores = await open_redis(cluster.url, RedisOptions(allow_volatile=True, patience_s=3), None)
        scene = Scene(stores, StoryClock())
        linked = Link.to(cluster.url, RedisOptions())
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
