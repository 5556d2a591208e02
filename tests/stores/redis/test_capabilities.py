"""Tasks that ask for capabilities, as they lie on the server: in lines that others do not even look at."""

import json
import os

import pytest

from ade import Task
from ade.stores.redis.scripts import script
from tests.conformance.scene import Scene
from tests.servers.pool import Pool
from tests.servers.server import Server

GPU = ("gpu",)
ASKING, PLAIN = "ade:queue:line:default:send+gpu", "ade:queue:line:default:send"


@pytest.fixture
def server(server_pool: Pool) -> Server:
    return server_pool.standalone("valkey")


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


@pytest.mark.parametrize("can", [(), GPU])
async def test_plain_tasks_are_claimed_as_quickly_whoever_else_waits(
    server: Server, scene: Scene, can: tuple[str, ...]
) -> None:
    if not can:
        await scene.add_many(5, needs=GPU)
    plain = await scene.add_many(3)
    server.command("CONFIG", "RESETSTAT")

    assert ids(await scene.claim(3, can=can)) == ids(plain)

    assert "cmdstat_smembers" not in str(server.command("INFO", "commandstats"))  # no claim looked along the lines


async def test_a_line_that_is_empty_is_forgotten_by_the_next_who_looks(server: Server, scene: Scene) -> None:
    task = await scene.add(needs=GPU)
    await scene.cancel(task.id)
    assert server.command("SMEMBERS", "ade:queue:asking")

    await scene.claim(can=GPU)

    assert not server.command("SMEMBERS", "ade:queue:asking")


async def test_one_that_an_older_version_put_among_the_others_comes_back_to_its_line(
    server: Server, scene: Scene
) -> None:
    task = await scene.add(needs=GPU)
    server.command("RENAME", ASKING, PLAIN)
    server.command("SADD", "ade:queue:lines", "default:send")
    other = await scene.add()

    assert ids(await scene.claim(5)) == [other.id]
    assert ids(await scene.claim(5, can=GPU)) == [task.id]


async def test_a_worker_of_another_language_says_what_it_can_do(server: Server, scene: Scene) -> None:
    asking, plain = await scene.add(needs=GPU), await scene.add()

    def claim(**more: object) -> list[str]:
        run_id = os.urandom(16).hex()
        request = {"id": run_id, "worker": "go-1", "run_ids": [run_id], "names": ["send"], "queues": [], **more}
        names = ("ade:queue:tasks", "ade-workers", "ade:queue:results", "ade:queue:dlq")
        text = json.dumps({**request, "lease_ms": 30_000, "now": scene.clock.now(), "steady": scene.clock.steady()})
        _, *records = server.command("EVAL", script("claim").text, 2, "ade:meta", "ade:void", text, 0, 1, *names)
        return [json.loads(record)["id"] for record in records]

    assert claim() == [plain.id]
    assert claim() == []
    assert claim(capabilities=["net"]) == []
    assert claim(capabilities=["net", "gpu"]) == [asking.id]
