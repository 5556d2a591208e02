"""The short way to store plain tasks leaves behind exactly what the long way does."""

import asyncio
import re
from typing import Any

import msgspec
import pytest

from ade import Task
from ade.errors import StoreCorrupt
from ade.stores.redis.codec import SEQ
from ade.stores.redis.inserts import RedisInserts
from ade.testing import TestClock
from tests.conformance.scene import Scene, raw
from tests.domain import RedisSettings, open_redis
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.ports import Ports, open_ports

_CONTENT = {"hash": "HGETALL", "string": "GET", "set": "SMEMBERS"}
_RANGES = {"zset": ("ZRANGE", 0, -1, "WITHSCORES"), "stream": ("XRANGE", "-", "+")}


@pytest.fixture
def server(server_pool: Pool) -> Server:
    return server_pool.standalone("valkey")


def calls(ports: Ports) -> list[str]:
    return [name for name, *_ in ports.link.sent]


async def _content(ports: Ports, prefix: str, key: str) -> Any:
    [kind] = await ports.link.ask(0, ("TYPE", prefix + key))
    verb, *bounds = _RANGES.get(kind.decode()) or (_CONTENT[kind.decode()],)
    [content] = await ports.link.ask(0, (verb, prefix + key, *bounds))
    if kind != b"hash":
        return content
    fields = dict(sorted(zip(content[::2], content[1::2], strict=True)))
    state = fields.get(b"state")
    return fields if state is None else fields | {b"state": msgspec.msgpack.decode(state)}


async def _everything(ports: Ports, prefix: str, firsts: list[Task]) -> str:
    """All keys, with moments told as distances from the first task of each call."""
    keys = sorted(key.decode().removeprefix(prefix) for key in await ports.keys("*"))
    found = {key: await _content(ports, prefix, key) for key in keys}
    begun = [found[f"task:{task.id}"][b"state"][SEQ - 1] for task in firsts]

    def distance(tick: re.Match[str]) -> str:
        number, base = max((number, base) for number, base in enumerate(begun) if base <= int(tick.group()))
        return f"call {number} + {int(tick.group()) - base}"

    return re.sub(r"(?<![0-9])1[0-9]{15}(?![0-9])", distance, str(found))


async def test_both_ways_leave_the_same_behind(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_ports(server.url, prefix="short:") as short, open_ports(server.url, prefix="long:") as long:
        tasks = [
            short.task(
                queue=f"q{number % 3}",
                priority=number % 4,
                name=f"send:{number % 2}",
                concurrency_key="ann" if number % 5 == 0 else None,
                tags=("a", "b"),
            )
            for number in range(20)
        ]
        for ports in (short, long):
            for portion in (tasks[:12], tasks[12:], tasks[10:14]):  # the last ones are known already
                await ports.tasks.add(portion)
            if ports is short:
                monkeypatch.setattr(RedisInserts, "_add_plain", _never)

        assert calls(short) == ["add_fast_path", "add_fast_path", "add_fast_path", "add"]
        assert calls(long) == ["add", "add", "add"]
        firsts = [tasks[0], tasks[12]]
        assert await _everything(short, "short:", firsts) == await _everything(long, "long:", firsts)


async def _never(*_: object) -> bool:
    return False


async def test_when_the_stream_of_one_task_is_spoiled_none_of_the_call_is_stored(server: Server, ports: Ports) -> None:
    server.command("SET", "ade:queue:tasks:second:5", "of another program")
    first, second = ports.task(queue="first"), ports.task(queue="second")

    with pytest.raises(StoreCorrupt):
        await ports.tasks.add([first, second])

    assert await ports.tasks.get([first.id, second.id]) == [None, None]
    assert await ports.keys("events") == []
    assert await ports.queues.tallies() == []


@pytest.mark.parametrize("key", ["events", "task:all", "queue:levels", "tally"])
async def test_a_refused_task_is_not_called_lost(server: Server, key: str, caplog: pytest.LogCaptureFixture) -> None:
    stores = await open_redis(server.url, RedisSettings(allow_volatile=True), TestClock())
    scene = Scene(stores, TestClock())
    await scene.add()
    server.command("RENAME", f"ade:{key}", "aside")
    server.command("SET", f"ade:{key}", "of another program")
    with pytest.raises(StoreCorrupt):
        await scene.add()
    server.command("RENAME", "aside", f"ade:{key}")

    await stores.maintenance.checkpoint()

    assert "tasks_lost" not in caplog.text
    assert await stores.maintenance.check_invariants() == []
    assert await scene.counts() == {"pending": 1}
    await stores.close()


async def test_large_tasks_of_many_callers_do_not_go_out_in_one_call(ports: Ports) -> None:
    large = raw(f'"{"x" * 120_000}"')

    await asyncio.gather(*(ports.tasks.add([ports.task(args=large)]) for _ in range(200)))

    portions = [len(request["tasks"]) // 5 for name, _, request in ports.link.sent if name == "add_fast_path"]
    assert sum(portions) == 200
    assert max(portions) < 100
