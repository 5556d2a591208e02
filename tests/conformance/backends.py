"""The stores under test: how each is opened, and how each can be harmed in ways its own API does not allow."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ade.stores.ports import Clock, Stores
from ade.stores.sqlite.tasks import SqliteTasks
from tests.domain import RedisSettings, RedisTasks, StoreSettings, open_redis, open_sqlite
from tests.servers.plugin import binary_or_skip
from tests.servers.pool import POOL


@dataclass(frozen=True)
class Backend:
    """One kind of store."""

    open: Callable[[Path, Clock | None], Awaitable[Stores]]  # without a clock: real time
    damage: Callable[[Stores, str, str], Awaitable[None]]  # make the record of a task unreadable, in one of these ways


@asynccontextmanager
async def sound(stores: Stores) -> AsyncIterator[Stores]:
    """An opened store; at the end of the block its invariants must hold, and it is closed."""
    yield stores
    broken = await stores.maintenance.check_invariants()
    await stores.close()
    assert broken == []


CUT, NOT_TEXT, UNKNOWN_WORD, MISSING = "cut", "not_text", "unknown_word", "missing"
DAMAGES = (CUT, NOT_TEXT, UNKNOWN_WORD, MISSING)


async def _open_memory(_folder: Path, clock: Clock | None) -> Stores:
    return await open_sqlite("memory://", StoreSettings(), clock)


async def _open_file(folder: Path, clock: Clock | None) -> Stores:
    return await open_sqlite(f"sqlite:///{folder / 'ade.db'}", StoreSettings(ballast_mb=0), clock)


_SQLITE_DAMAGES = {
    CUT: "UPDATE task_detail SET detail = substr(detail, 1, 12)",
    NOT_TEXT: "UPDATE task_detail SET detail = CAST(X'7B2266FF00' AS TEXT)",
    UNKNOWN_WORD: "UPDATE task_detail SET detail = json_set(detail, '$.after_failure', 'of a newer version')",
    MISSING: "DELETE FROM task_detail",
}


async def _damage_sqlite(stores: Stores, task_id: str, way: str) -> None:
    assert isinstance(stores.tasks, SqliteTasks)
    statement = f"{_SQLITE_DAMAGES[way]} WHERE seq = (SELECT seq FROM task WHERE id = ?)"
    await stores.tasks._writer.call(lambda connection: connection.execute(statement, (task_id,)).fetchall())


async def _open_valkey(_folder: Path, clock: Clock | None) -> Stores:
    return await open_redis(POOL.standalone("valkey").url, RedisSettings(allow_volatile=True), clock)


async def _open_redis(_folder: Path, clock: Clock | None) -> Stores:
    binary_or_skip("redis")
    return await open_redis(POOL.standalone("redis").url, RedisSettings(allow_volatile=True), clock)


async def _open_cluster(_folder: Path, clock: Clock | None) -> Stores:
    cluster = POOL.cluster("valkey")
    return await open_redis(cluster.url, RedisSettings(allow_volatile=True, partitions=6), clock)


_REDIS_DAMAGES: dict[str, tuple[object, ...]] = {
    CUT: ("HSET", "detail", b'{"id":"019'),
    NOT_TEXT: ("HSET", "detail", b"\x7b\x22\x66\xff\x00"),
    MISSING: ("HDEL", "detail"),
}


async def _damage_redis(stores: Stores, task_id: str, way: str) -> None:
    assert isinstance(stores.tasks, RedisTasks)
    link, places = stores.tasks._link, stores.tasks._places
    partition = await places.of(task_id)
    key = f"{link.names[partition].prefix}task:{task_id}"
    if way == UNKNOWN_WORD:
        [detail] = await link.ask(partition, ("HGET", key, "detail"))
        strange = msgspec.json.decode(detail) | {"after_failure": "of a newer version"}
        await link.ask(partition, ("HSET", key, "detail", msgspec.json.encode(strange)))
        return
    verb, *words = _REDIS_DAMAGES[way]
    await link.ask(partition, (verb, key, *words))


BACKENDS = {
    "memory": Backend(open=_open_memory, damage=_damage_sqlite),
    "sqlite": Backend(open=_open_file, damage=_damage_sqlite),
    "valkey": Backend(open=_open_valkey, damage=_damage_redis),
    "redis": Backend(open=_open_redis, damage=_damage_redis),
    "cluster": Backend(open=_open_cluster, damage=_damage_redis),
}
