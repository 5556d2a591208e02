"""A server is trusted with work only if it cannot lose it in silence."""

import pytest

from ade.errors import StoreUnsupported
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.maintenance import ServerFacts, check_server_version, check_servers
from tests.domain import RedisSettings, open_redis
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import DURABLE, Options, Server, User

STRICT = RedisSettings(patience_s=2, command_timeout_s=1, confirm_timeout_s=0.1)
VOLATILE = RedisSettings(patience_s=2, command_timeout_s=1, confirm_timeout_s=0.1, allow_volatile=True)


async def checked(url: str, options: RedisSettings = STRICT) -> list[ServerFacts]:
    link = RedisClient.to(url, options)
    try:
        return list(await check_servers(link))
    finally:
        await link.close()


async def test_a_server_that_keeps_a_log_is_accepted_and_described(server_binary: Binary, server_pool: Pool) -> None:
    server = server_pool.standalone(server_binary.kind, DURABLE)

    [facts] = await checked(server.url)

    assert facts.address == server.address
    assert facts.product.lower() == server_binary.kind
    assert facts.version.startswith(f"{server_binary.version[0]}.")
    assert (facts.mode, facts.aof, facts.maxmemory, facts.maxmemory_policy) == ("standalone", True, 0, "noeviction")
    assert (facts.replicas, facts.warnings) == (0, ())
    assert server.command("HGET", "ade:meta", "partitions") == "1"


async def test_a_volatile_server_is_refused_unless_it_is_allowed(server_binary: Binary, server_pool: Pool) -> None:
    server = server_pool.standalone(server_binary.kind)

    with pytest.raises(StoreUnsupported, match=r"appendonly.*--allow-volatile"):
        await checked(server.url)
    assert server.command("DBSIZE") == 0

    [facts] = await checked(server.url, VOLATILE)
    assert facts.aof is False


async def test_a_server_that_throws_data_away_is_refused(server_binary: Binary) -> None:
    options = Options(appendonly=True, maxmemory_policy="allkeys-lru")
    with Server(server_binary, options) as server, pytest.raises(StoreUnsupported, match="to noeviction"):
        await checked(server.url)


async def test_where_config_is_forbidden_the_server_is_judged_by_what_it_says(server_binary: Binary) -> None:
    users = (User("ade", "pw", "~ade:* &ade:* +@all -config"),)
    with Server(server_binary, Options(users=users)) as server, pytest.raises(StoreUnsupported, match="appendonly"):
        await checked(server.url)


async def test_a_server_that_says_nothing_is_accepted_with_a_warning(server_binary: Binary) -> None:
    users = (User("ade", "pw", "~ade:* &ade:* +@all -config -info"),)
    with Server(server_binary, Options(users=users)) as server:
        [facts] = await checked(server.url)

    assert len(facts.warnings) == 2
    assert facts.aof is None


async def test_strong_durability_without_replicas_is_warned_about(server_binary: Binary, server_pool: Pool) -> None:
    server = server_pool.standalone(server_binary.kind)
    strong = RedisSettings(durability="strong", replicas=2, allow_volatile=True)

    [facts] = await checked(server.url, strong)

    assert "has 0 replicas, but durability is strong and wants 2" in facts.warnings[0]


def test_an_old_redis_is_refused_and_any_valkey_is_not() -> None:
    def facts(product: str, version: str) -> ServerFacts:
        return ServerFacts(
            address="h:1",
            product=product,
            version=version,
            mode="standalone",
            aof=True,
            maxmemory=0,
            maxmemory_policy="noeviction",
            used_memory=0,
            replicas=0,
        )

    with pytest.raises(StoreUnsupported, match=r"Redis 6\.2\.14"):
        check_server_version(facts("Redis", "6.2.14"))
    for product, version in (("Redis", "7.0.0"), ("Redis", "8.2.1"), ("Valkey", "7.2.5"), ("Redis", "")):
        check_server_version(facts(product, version))


async def test_the_url_must_say_whether_it_is_a_cluster(server_binary: Binary, server_pool: Pool) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    with pytest.raises(StoreUnsupported, match=r"write redis\+cluster://"):
        await checked(cluster.nodes[0].url, VOLATILE)

    server = server_pool.standalone(server_binary.kind)
    with pytest.raises(StoreUnsupported, match=r"not a node of a cluster\. Write redis://"):
        await checked(f"redis+cluster://{server.address}", VOLATILE)


async def test_the_url_must_say_whether_there_are_sentinels(server_binary: Binary, server_pool: Pool) -> None:
    server = server_pool.standalone(server_binary.kind)
    with pytest.raises(StoreUnsupported, match=r"not a sentinel\. Name the sentinels"):
        await checked(f"redis+sentinel://{server.address}/service", VOLATILE)


async def test_a_store_whose_memory_is_full_can_still_be_opened(server_binary: Binary) -> None:
    with Server(server_binary, Options()) as server:
        await checked(server.url, VOLATILE)
        server.command("CONFIG", "SET", "maxmemory", "1")

        stores = await open_redis(server.url, VOLATILE)
        assert await stores.maintenance.check_invariants() == []
        await stores.close()


async def test_every_primary_of_a_cluster_is_checked_and_the_number_of_partitions_is_settled_once(
    server_binary: Binary, server_pool: Pool
) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    with pytest.raises(StoreUnsupported, match="appendonly"):
        await checked(cluster.url)

    facts = await checked(cluster.url, VOLATILE)
    assert {each.address for each in facts} == {node.public_address for node in cluster.nodes}
    assert {each.mode for each in facts} == {"cluster"}

    other = RedisSettings(partitions=8, allow_volatile=True)
    with pytest.raises(StoreUnsupported, match="made with 16 partitions, but 8"):
        await checked(cluster.url, other)
    more = RedisSettings(partitions=32, allow_volatile=True)
    with pytest.raises(StoreUnsupported, match="made with 16 partitions, but 32"):
        await checked(cluster.url, more)
    await checked(cluster.url, VOLATILE)
