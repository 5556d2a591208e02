"""Other programs read outcomes and dead letters with plain Redis commands, under the names they expect."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from ade import Ade, Status
from ade.settings import Settings
from tests.domain import RedisSettings, StoreSettings
from tests.servers.pool import POOL
from tests.servers.server import DURABLE

PATIENCE_S = 90
USUAL = RedisSettings()
OWN = RedisSettings(
    task_stream="stream:task", group="cg:workers", result_stream="stream:result", dlq_stream="stream:dlq"
)
NAMES = {
    "usual": ("ade:queue:tasks", "ade-workers", "ade:queue:results", "ade:queue:dlq"),
    "own": ("stream:task", "cg:workers", "stream:result", "stream:dlq"),
}


@pytest.fixture
async def reader() -> AsyncIterator[Redis]:
    server: Redis = Redis.from_url(POOL.standalone("valkey", DURABLE).url, decode_responses=True, protocol=2)
    yield server
    await server.aclose()


def app(settings: RedisSettings, url: str) -> Ade:
    ade = Ade(settings=Settings(store=StoreSettings(url=url), redis=settings))

    @ade.task()
    async def double(number: int) -> int:
        return 2 * number

    @ade.task(max_attempts=1)
    async def explode(fuse: str) -> None:
        raise ValueError(f"{fuse} burnt down")

    return ade


@pytest.fixture(params=["usual", "own"])
async def named(request: pytest.FixtureRequest, reader: Redis) -> AsyncIterator[tuple[Ade, tuple[str, str, str, str]]]:
    pool = reader.connection_pool.connection_kwargs
    url = f"redis://{pool['host']}:{pool['port']}/0"
    async with app(USUAL if request.param == "usual" else OWN, url) as ade:
        yield ade, NAMES[request.param]


async def read(server: Redis, stream: str, group: str) -> list[tuple[str, dict[str, str]]]:
    """What the group has not seen yet, acknowledged."""
    answer: Any = await server.xreadgroup(group, "reader-1", {stream: ">"}, count=100)
    entries: list[tuple[str, dict[str, str]]] = answer[0][1] if answer else []
    if entries:
        await server.xack(stream, group, *(entry for entry, _ in entries))
    return entries


async def listed(server: Redis, stream: str) -> list[dict[str, str]]:
    """The fields of all entries of a stream."""
    entries: Any = await server.xrange(stream)
    return [fields for _, fields in entries]


async def test_a_group_gets_one_entry_for_each_final_outcome(
    reader: Redis, named: tuple[Ade, tuple[str, str, str, str]]
) -> None:
    ade, (_, _, results, _) = named
    before = await ade.enqueue("double", {"number": 0}, delay=3600)
    await before.cancel()  # nobody has made the stream: nothing is written
    assert await reader.exists(results) == 0
    await reader.xgroup_create(results, "orchestrator", "0", mkstream=True)

    async with ade.worker():
        good = await ade.enqueue("double", {"number": 21})
        assert await good.result(timeout=PATIENCE_S) == 42
        bad = await ade.enqueue("explode", {"fuse": "short"})
        assert (await bad.wait(timeout=PATIENCE_S)).status is Status.FAILED
    told = [fields for _, fields in await read(reader, results, "orchestrator")]

    assert [(each["id"], each["name"], each["queue"], each["status"], each["attempt"]) for each in told] == [
        (good.id, "double", "default", "completed", "1"),
        (bad.id, "explode", "default", "failed", "1"),
    ]
    outcomes = [json.loads(each["outcome"]) for each in told]
    assert outcomes[0] == {"result": 42}
    assert outcomes[1]["error"]["message"] == "short burnt down"
    assert int(told[0]["at"]) == (await good.get()).finished_at
    assert await read(reader, results, "orchestrator") == []


async def test_a_dead_letter_lies_in_its_stream_until_somebody_deals_with_it(
    reader: Redis, named: tuple[Ade, tuple[str, str, str, str]]
) -> None:
    ade, (_, _, _, dlq) = named
    async with ade.worker():
        handles = [await ade.enqueue("explode", {"fuse": fuse}) for fuse in ("long", "short")]
        for handle in handles:
            await handle.wait(timeout=PATIENCE_S)
    await reader.xgroup_create(dlq, "mourners", "0")
    letters = sorted((fields for _, fields in await read(reader, dlq, "mourners")), key=lambda each: each["id"])

    assert [each["id"] for each in letters] == sorted(handle.id for handle in handles)
    assert {(each["name"], each["queue"], each["attempts"]) for each in letters} == {("explode", "default", "1")}
    assert json.loads(letters[0]["detail"])["args"] == {"fuse": "long"}
    assert json.loads(letters[0]["outcome"])["error"]["type"] == "ValueError"
    assert int(letters[0]["failed_at"]) == (await handles[0].get()).finished_at

    stores = (await ade.open()).stores
    await stores.sweeps.prune([handles[0].id])
    assert [fields["id"] for fields in await listed(reader, dlq)] == [handles[1].id]


async def test_ready_tasks_lie_in_the_stream_and_under_the_group_that_were_named(
    reader: Redis, named: tuple[Ade, tuple[str, str, str, str]]
) -> None:
    ade, (tasks, group, _, _) = named
    handle = await ade.enqueue("double", {"number": 1}, queue="sums", priority=2)
    stream = f"{tasks}:sums:2"

    assert await listed(reader, stream) == [{"id": handle.id, "name": "double"}]
    async with ade.worker():
        await handle.result(timeout=PATIENCE_S)
    assert [each["name"] for each in await reader.xinfo_groups(stream)] == [group]
    assert await reader.xlen(stream) == 0
    assert await (await ade.open()).stores.maintenance.check_invariants() == []
