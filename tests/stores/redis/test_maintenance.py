"""Health, housekeeping and what is said instead of a backup."""

import logging
from typing import Any

import pytest

from ade.errors import StoreError
from ade.stores.redis import maintenance
from ade.stores.redis.maintenance import IDLE_MS, RESULTS_KEPT_MS, RedisMaintenance
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import RedisSettings, open_redis
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import DURABLE, Options, Server
from tests.servers.waiting import until
from tests.stores.redis.full_partitions import OPTIONS, Village, village


async def _health(server: Server, options: RedisSettings) -> tuple[dict[str, Any], list[str]]:
    stores = await open_redis(server.url, options, TestClock())
    try:
        await Scene(stores, TestClock()).add()
        health = await stores.maintenance.health()
    finally:
        await stores.close()
    return health.facts, health.warnings


async def test_health_tells_what_the_server_is_and_holds(settled: Village) -> None:
    health = await settled.maintenance.health()

    facts = health.facts
    assert (facts["mode"], facts["partitions"], facts["replicas"], facts["aof"]) == ("standalone", 1, 0, False)
    assert (facts["tasks"], facts["running"], facts["dead_letters"]) == (len(settled.tasks), 3, 1)
    assert facts["max_memory_mb"] == "no limit"


async def test_a_durable_server_with_a_worker_gives_no_reason_to_worry(
    server_binary: Binary, server_pool: Pool
) -> None:
    facts, warnings = await _health(server_pool.standalone(server_binary.kind, DURABLE), RedisSettings())

    assert facts["aof"] is True
    assert warnings == ["1 tasks wait in queue default at priority 5; no worker has asked for them yet"]


async def test_little_memory_left_is_a_reason_to_worry(server_binary: Binary, server_pool: Pool) -> None:
    server = server_pool.standalone(server_binary.kind, Options(maxmemory="64mb"))
    server.command("SETRANGE", "somebody", 56_000_000, "x")

    _, warnings = await _health(server, OPTIONS)

    assert any("of its memory" in warning for warning in warnings)


async def test_what_was_switched_off_since_the_start_is_a_reason_to_worry(
    server_binary: Binary, server_pool: Pool
) -> None:
    server = server_pool.standalone(server_binary.kind, DURABLE.plus(dbfilename="blocked.rdb"))
    server.command("CONFIG", "SET", "appendonly", "yes")
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    stores = await open_redis(server.url, RedisSettings(), TestClock())
    try:
        server.command("CONFIG", "SET", "appendonly", "no")
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        (server.folder / "blocked.rdb").mkdir(exist_ok=True)
        server.command("BGSAVE")
        until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "the save to fail", 5)
        warnings = (await stores.maintenance.health()).warnings
    finally:
        await stores.close()

    told = " ".join(warnings)
    assert len(warnings) == 3
    assert "forgets everything" in told
    assert "throws data away" in told
    assert "the last BGSAVE" in told


async def test_a_group_that_lags_is_named(settled: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_MUCH_LAG", 2)
    settled.command("XGROUP", "CREATE", "ade:queue:results", "billing", "0", "MKSTREAM")
    await settled.run_out()

    warnings = (await settled.maintenance.health()).warnings

    assert [warning for warning in warnings if warning.startswith("group billing of results is")]


async def test_many_entries_are_named(settled: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_MANY_ENTRIES", 0)

    warnings = (await settled.maintenance.health()).warnings

    assert {warning.partition(" ")[2][:12] for warning in warnings} >= {"entries are ", "dead letters"}


async def test_results_stay_until_every_group_has_read_them(settled: Village) -> None:
    for group in ("billing", "mail"):
        settled.command("XGROUP", "CREATE", "ade:queue:results", group, "0", "MKSTREAM")
    await settled.run_out()
    total = settled.command("XLEN", "ade:queue:results")
    assert isinstance(total, int)
    assert total > 4

    await settled.maintenance.checkpoint()
    assert settled.command("XLEN", "ade:queue:results") == total
    for group, count in (("billing", 4), ("mail", 3)):
        settled.command("XREADGROUP", "GROUP", group, "c", "COUNT", count, "STREAMS", "ade:queue:results", ">")
    await settled.maintenance.checkpoint()
    assert settled.command("XLEN", "ade:queue:results") == total, "read, but not acknowledged"
    for group in ("billing", "mail"):
        entries = settled.command("XRANGE", "ade:queue:results", "-", "+", "COUNT", 3)
        assert isinstance(entries, list)
        for entry_id, _ in entries:
            settled.command("XACK", "ade:queue:results", group, entry_id)
    await settled.maintenance.checkpoint()

    assert settled.command("XLEN", "ade:queue:results") == total - 3


async def test_old_results_go_whoever_has_read_them(settled: Village) -> None:
    settled.command("XADD", "ade:queue:results", "1000-0", "id", "old")
    settled.command("XGROUP", "CREATE", "ade:queue:results", "billing", "0")
    await settled.run_out()
    total = settled.command("XLEN", "ade:queue:results")
    assert isinstance(total, int)

    await settled.maintenance.checkpoint()

    assert RESULTS_KEPT_MS == 7 * 24 * 3600 * 1000
    assert settled.command("XLEN", "ade:queue:results") == total - 1
    assert settled.command("EXISTS", "ade:queue:results") == 1


async def test_streams_and_consumers_that_nobody_uses_are_forgotten(
    settled: Village, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled.run_out()
    streams = settled.keys_like("queue:tasks:*")
    assert IDLE_MS == 24 * 3600 * 1000

    await settled.maintenance.checkpoint()
    assert settled.keys_like("queue:tasks:*") == streams, "they were used today"
    monkeypatch.setattr(maintenance, "IDLE_MS", -1_000_000)
    await settled.maintenance.checkpoint()

    assert settled.keys_like("queue:tasks:*") == []
    settled.tasks.append(await settled.scene.add())
    await settled.run_out()
    assert await settled.unfinished() == []
    assert await settled.maintenance.check_invariants() == []


async def test_who_has_something_pending_is_not_forgotten(settled: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "IDLE_MS", -1_000_000)

    await settled.maintenance.checkpoint()

    assert await settled.maintenance.check_invariants() == []
    await settled.run_out()
    assert await settled.unfinished() == []


async def test_a_checkpoint_puts_back_what_was_lost_and_says_so(
    settled: Village, caplog: pytest.LogCaptureFixture
) -> None:
    settled.lose("queue:leases")

    with caplog.at_level(logging.WARNING, "ade.store"):
        await settled.maintenance.checkpoint()
        await settled.maintenance.checkpoint()

    assert [record.__dict__["event"] for record in caplog.records] == ["store_needs_attention", "store_mended"]
    assert await settled.maintenance.check_invariants() == []


async def test_everything_is_looked_at_now_and_then(settled: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    settled.lose("queue:line:*")  # nothing that a glance could see

    await settled.maintenance.checkpoint()
    assert await settled.maintenance.check_invariants() != []
    monkeypatch.setattr(settled.maintenance, "_next_full_look", 0.0)
    await settled.maintenance.checkpoint()

    assert await settled.maintenance.check_invariants() == []


async def test_a_backup_is_the_server_s_own_business(settled: Village, tmp_path: Any) -> None:
    target = tmp_path / "copy.db"

    with pytest.raises(StoreError, match="BGSAVE"):
        async for _ in settled.maintenance.backup(str(target)):
            pass

    assert not target.exists()


async def test_a_cluster_has_the_same_health(server_binary: Binary, server_pool: Pool) -> None:
    async with village(server_pool.cluster(server_binary.kind)) as built:
        assert isinstance(built.maintenance, RedisMaintenance)
        facts = (await built.maintenance.health()).facts
        await built.maintenance.checkpoint()

    assert (facts["mode"], facts["partitions"], facts["tasks"]) == ("cluster", 4, len(built.tasks))
