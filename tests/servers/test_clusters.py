"""Clusters and sentinels: slots that move, primaries that die, replicas that take over."""

import threading

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.servers.binaries import Binary
from tests.servers.cluster import Cluster
from tests.servers.pool import Pool
from tests.servers.ports import HOST
from tests.servers.sentinel import Sentinels
from tests.servers.server import Options
from tests.servers.waiting import until

pytestmark = pytest.mark.faults

PATIENT = Retry(ConstantBackoff(0.05), 100)  # rides over a failover; SET of one value may be sent twice


def client_of(cluster: Cluster) -> "redis.RedisCluster":
    port = int(cluster.nodes[0].public_address.rpartition(":")[2])
    return redis.RedisCluster(host=HOST, port=port, decode_responses=True, retry=PATIENT)


def test_a_slot_moves_with_its_keys_while_a_client_writes(server_pool: Pool, server_binary: Binary) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    slot = cluster.slot_of("{p1}")
    source = cluster.owner_of(slot)
    target = next(node for node in cluster.primaries() if node is not source)
    with client_of(cluster) as client:
        for number in range(300):
            client.set(f"{{p1}}:{number}", number)
        ended = threading.Event()
        written: list[int] = []

        def write() -> None:
            while not ended.is_set():
                client.set(f"{{p1}}:more:{len(written)}", len(written))
                written.append(len(written))

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(written) > 10, "some load")
        moved = cluster.migrate_slot(slot, target)
        enough = len(written) + 10
        until(lambda: len(written) > enough, "load on the new owner")
        ended.set()
        writer.join()

        assert moved >= 300
        assert cluster.owner_of(slot) is target
        assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 300 + len(written)
        assert client.get("{p1}:299") == "299"
    cluster.migrate_slot(slot, source)


def test_in_the_middle_of_a_migration_keys_of_one_slot_are_on_two_nodes(
    server_pool: Pool, server_binary: Binary
) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    slot = cluster.slot_of("{p2}")
    target = next(node for node in cluster.primaries() if node is not cluster.owner_of(slot))
    with client_of(cluster) as client:
        for number in range(10):
            client.set(f"{{p2}}:{number}", number)
        migration = cluster.migration(slot, target)
        migration.begin()

        assert migration.move(4) == 4

        keys = [f"{{p2}}:{number}" for number in range(10)]
        with pytest.raises(redis.exceptions.TryAgainError):
            migration.source.command("MGET", *keys)
        assert migration.move_all() == 6
        migration.finish()
        cluster.wait_agreed()
        assert client.mget(keys) == [str(number) for number in range(10)]


def test_a_cluster_behind_proxies_is_reached_through_them_alone(server_binary: Binary) -> None:
    with Cluster(server_binary, proxied=True) as cluster, client_of(cluster) as client:
        for number in range(30):
            client.set(f"key:{number}", number)

        for node in cluster.nodes:
            assert node.proxy is not None
            assert node.proxy.connections > 0
            assert node.command("DBSIZE") > 0


@pytest.mark.long
def test_a_replica_takes_over_and_the_old_primary_comes_back_as_its_replica(server_binary: Binary) -> None:
    with Cluster(server_binary, Options(password="secret"), replicas=1, node_timeout_ms=1000) as cluster:
        slot = cluster.slot_of("greeting")
        first = cluster.owner_of(slot)
        first.command("SET", "greeting", "hello")
        first.command("WAIT", 1, 2000)

        second = cluster.failover(slot)
        assert second is not first
        assert cluster.replica_of(second) is first

        assert cluster.kill_primary(slot) is second
        assert cluster.wait_promoted(slot, instead_of=second) is first
        assert first.command("GET", "greeting") == "hello"

        cluster.restart(second)
        assert cluster.replica_of(first) is second


@pytest.mark.long
def test_sentinels_promote_the_replica_of_a_dead_primary(server_binary: Binary) -> None:
    with Sentinels(server_binary) as watched:
        first, second = watched.servers
        first.command("SET", "greeting", "hello")
        first.command("WAIT", 1, 2000)

        assert watched.kill_primary() is first
        assert watched.wait_promoted(instead_of=first) is second
        assert second.command("GET", "greeting") == "hello"

        watched.restart(first)
        assert watched.failover() is first
        assert watched.replica() is second
