"""The schema version of a store on Redis: the checks of it, and upgrades after a copy of all keys was made."""

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from ade.errors import StoreError, StoreReadOnly, StoreTooNew, StoreTooOld
from ade.settings.sections import RedisSettings
from ade.stores.ports import UpgradedStore
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.repair import repair

SCHEMA = 1  # stores from before there was a version have 0
_CHECK_EVERY_S = 1.0
_KEYS_PER_STEP = 200


async def check_schema(link: RedisClient) -> None:
    """Raise StoreTooOld or StoreTooNew unless the store has the schema of this release, or is new. Writes nothing."""
    for partition in range(link.partitions):
        version = await _version(link, partition)
        if version is not None and version > SCHEMA:
            raise too_new(version)
        if version is not None and version < SCHEMA:
            raise StoreTooOld(
                f"the store has schema {version}, and this ADE needs schema {SCHEMA}. Nothing was changed",
                advice=StoreTooOld.usual_advice,
            )


def too_new(version: int) -> StoreTooNew:
    """Return the error for a store that a newer version has upgraded."""
    return StoreTooNew(
        f"the store has schema {version}, and this ADE supports schemas up to {SCHEMA}: a newer version has upgraded"
        " it. Upgrade ADE here too, and restart; nothing was changed"
    )


async def _version(link: RedisClient, partition: int) -> int | None:
    """Return the schema version of a partition; None if it has no data yet."""
    [[version, epoch]] = await link.ask(partition, ("HMGET", _meta(link, partition), "schema", "epoch"))
    if version is None:
        return None if epoch is None else 0
    return int(version)


def _meta(link: RedisClient, partition: int) -> str:
    return f"{link.names[partition].prefix}meta"


class SchemaWatch:
    """Finds out within about a second that a newer version has upgraded the store, without delaying a claim."""

    def __init__(self, link: RedisClient) -> None:
        self._link = link
        self._checked_at = time.monotonic()
        self._check: asyncio.Task[None] | None = None
        self._error: StoreTooNew | None = None

    def check(self) -> None:
        """Raise StoreTooNew if that is known, and ask again now and then in the background."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if now - self._checked_at > _CHECK_EVERY_S:
            self._checked_at = now
            self._check = asyncio.create_task(self._look())

    async def _look(self) -> None:
        with suppress(StoreError):  # claims report that the server is away
            version = await _version(self._link, 0)
            if version is not None and version > SCHEMA:
                self._error = too_new(version)


async def upgrade_redis(url: str, settings: RedisSettings, copy_to: Path | None = None) -> UpgradedStore:
    """Upgrade a store to the schema of this release, after all its keys were copied to a file.

    Indexes and counters are rebuilt from the records. Raises StoreTooNew; then nothing was changed.
    """
    link = RedisClient.to(url, settings)
    try:
        versions = [await _version(link, partition) for partition in range(link.partitions)]
        found = [version for version in versions if version is not None]
        before = min(found, default=SCHEMA)
        if max(found, default=SCHEMA) > SCHEMA:
            raise too_new(max(found))
        if before == SCHEMA:
            return UpgradedStore(before=SCHEMA, after=SCHEMA)
        copy = copy_to or _copy_path(before)
        await _copy(link, copy)
        for partition in range(link.partitions):
            await _upgrade_tasks(link, partition)
        await repair(link, Partitions(link))
        for partition in range(link.partitions):
            await link.ask(partition, ("HSET", _meta(link, partition), "schema", SCHEMA))
        return UpgradedStore(before=before, after=SCHEMA, copy=str(copy))
    finally:
        await link.close()


async def _upgrade_tasks(link: RedisClient, partition: int) -> None:
    key, start = f"{link.names[partition].prefix}task:all", 0
    while ids := (await link.ask(partition, ("ZRANGE", key, start, start + _KEYS_PER_STEP - 1)))[0]:
        await link.run("upgrade_tasks", partition, {"ids": [task_id.decode() for task_id in ids]})
        start += len(ids)


def _copy_path(version: int) -> Path:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    token = os.urandom(3).hex()  # several processes can upgrade a store at the same time, each after its own copy
    return Path.cwd() / f"ade-redis.schema{version}-{moment}-{token}.jsonl"


async def _copy(link: RedisClient, path: Path) -> None:
    """Write a JSON line for each key: its name and its contents as from DUMP (both in Base64), and its TTL in ms.

    `RESTORE key ttl contents` writes it back.
    """
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("w", encoding="ascii") as file:
            async for key, ttl, dumped in _dump(link):
                name, contents = base64.b64encode(key).decode(), base64.b64encode(dumped).decode()
                file.write(f"{json.dumps([name, max(ttl, 0), contents])}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise StoreReadOnly(f"the copy {path} cannot be written ({error}). Nothing was changed") from error
    finally:
        unfinished.unlink(missing_ok=True)


async def _dump(link: RedisClient) -> AsyncIterator[tuple[bytes, int, bytes]]:
    """Yield key, TTL, and contents of every key of the store."""
    for address in await link.primaries():
        own = {partition for partition in range(link.partitions) if link.where(partition) == address}
        names = [link.names[partition] for partition in own]
        prefixes = tuple(text.encode() for each in names for text in (each.prefix, each.tasks, each.results, each.dlq))
        cursor = b"0"
        while True:
            [[cursor, keys]] = await link.ask_node(address, ("SCAN", cursor, "COUNT", _KEYS_PER_STEP))
            for key in keys:
                if key.startswith(prefixes):
                    ttl, dumped = await link.ask_node(address, ("PTTL", key), ("DUMP", key))
                    if dumped is not None:  # it can expire meanwhile
                        yield key, ttl, dumped
            if cursor == b"0":
                break
