"""Stores on Redis as every version wrote them: reading never changes them, an upgrade keeps everything."""

import asyncio
import base64
import gzip
import json
from pathlib import Path

import pytest

from ade.errors import StoreTooNew, StoreTooOld
from ade.settings import Settings
from ade.stores.redis.upgrade import SCHEMA
from tests.domain import ClaimRequest, RedisSettings, open_stores, upgrade_store
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.upgrades.fixture_contents import check_contents
from tests.waiting import eventually

HERE = Path(__file__).parent
SETTINGS = Settings(redis=RedisSettings(allow_volatile=True))
VERSIONS = sorted(int(path.name.split("-")[1].split(".")[0]) for path in HERE.glob("redis-*.jsonl.gz"))


@pytest.fixture
def server(server_pool: Pool) -> Server:
    return server_pool.standalone("redis")


def load(version: int, server: Server) -> None:
    """Write the keys of a fixture to the server."""
    client = server.client()
    for line in gzip.decompress((HERE / f"redis-{version}.jsonl.gz").read_bytes()).decode().splitlines():
        key, dumped = (base64.b64decode(part) for part in json.loads(line))
        client.restore(key, 0, dumped)


def contents(server: Server) -> dict[str, bytes | None]:
    """Return all keys with their contents."""
    client = server.client()
    return {str(key): client.dump(key) for key in client.keys("*")}


def test_every_version_has_a_fixture_of_both_stores() -> None:
    assert [f"sqlite-{version}.sql.gz" for version in VERSIONS] == sorted(path.name for path in HERE.glob("sqlite-*"))


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_old_store_is_refused_unchanged_and_has_everything_after_an_upgrade(
    version: int, server: Server, tmp_path: Path
) -> None:
    load(version, server)
    before = contents(server)
    with pytest.raises(StoreTooOld, match="ade upgrade"):
        await open_stores(server.url, SETTINGS)
    assert contents(server) == before

    done = await upgrade_store(server.url, SETTINGS, tmp_path / "copy.jsonl")

    assert (done.before, done.after, done.copy) == (0, SCHEMA, str(tmp_path / "copy.jsonl"))
    copied = [json.loads(line) for line in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert {base64.b64decode(key).decode(): base64.b64decode(dumped) for key, _, dumped in copied} == before
    stores = await open_stores(server.url, SETTINGS)
    try:
        await check_contents(stores, version)
    finally:
        await stores.close()


async def test_processes_that_upgrade_at_the_same_time_make_a_copy_each(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(VERSIONS[-1], server)
    before = contents(server)
    monkeypatch.chdir(tmp_path)

    done = await asyncio.gather(*(upgrade_store(server.url, SETTINGS) for _ in range(3)))

    copies = [Path(each.copy) for each in done if each.copy is not None]
    assert sorted(copies) == sorted(tmp_path.iterdir())
    for copy in copies:
        keys = {base64.b64decode(json.loads(line)[0]).decode() for line in copy.read_text().splitlines()}
        assert keys >= before.keys()
    stores = await open_stores(server.url, SETTINGS)
    assert await stores.maintenance.check_invariants() == []
    await stores.close()


async def test_claims_of_an_older_version_stop_after_an_upgrade(server: Server) -> None:
    stores = await open_stores(server.url, SETTINGS)
    request = ClaimRequest(worker_id="w1", run_ids=["a" * 32], names=frozenset({"greet"}))
    assert await stores.tasks.claim(request) == []
    server.client().hset("ade:meta", "schema", SCHEMA + 1)

    async def is_refused() -> bool:
        try:
            await stores.tasks.claim(request)
        except StoreTooNew:
            return True
        return False

    await eventually(is_refused, 10)
    with pytest.raises(StoreTooNew, match="newer version"):
        await open_stores(server.url, SETTINGS)
    await asyncio.wait_for(stores.close(), 10)
