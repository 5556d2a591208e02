"""A network path that breaks in front of a real server."""

import time
from collections.abc import Iterator

import pytest
import redis

from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.proxy import Proxy
from tests.servers.server import Server
from tests.servers.waiting import until


@pytest.fixture
def server(server_pool: Pool, server_binary: Binary) -> Server:
    return server_pool.standalone(server_binary.kind)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client(server: Server, proxy: Proxy) -> Iterator["redis.Redis"]:
    with server.client(port=proxy.port, socket_timeout=0.2) as client:
        client.ping()
        yield client


def test_a_healthy_path_carries_everything_and_counts_it(proxy: Proxy, client: "redis.Redis") -> None:
    client.set("large", "x" * 1_000_000)

    assert client.get("large") == "x" * 1_000_000
    assert (proxy.connections, proxy.open_connections) == (1, 1)
    assert min(proxy.bytes_to_server, proxy.bytes_to_client) > 1_000_000


def test_a_black_hole_passes_nothing_until_it_is_healed(server: Server, proxy: Proxy, client: "redis.Redis") -> None:
    proxy.blackhole()
    with pytest.raises(redis.TimeoutError):
        client.incr("count")
    with pytest.raises(redis.TimeoutError):  # a new connection: accepted, and then silence
        client.incr("count")
    assert proxy.connections == 2
    assert server.command("GET", "count") is None

    proxy.heal()

    assert client.ping()
    # What was held back arrives in the end, as it does when TCP sends again; the second client had not got so far.
    assert until(lambda: server.command("GET", "count"), "the late command") == "1"


def test_a_path_that_forgot_its_connections_leaves_them_deaf(server: Server, proxy: Proxy) -> None:
    with server.client(port=proxy.port, socket_timeout=0.2, single_connection_client=True) as old:
        old.ping()
        proxy.blackhole()
        proxy.heal(forget=True)

        with server.client(port=proxy.port) as new:
            assert new.ping()
        with pytest.raises(redis.TimeoutError):
            old.ping()


def test_a_cut_closes_connections_and_new_ones_work(proxy: Proxy, client: "redis.Redis") -> None:
    proxy.cut()
    until(lambda: proxy.open_connections == 0, "the proxy to let go")

    assert client.ping()
    assert (proxy.connections, proxy.open_connections) == (2, 1)


def test_a_lost_reply_belongs_to_a_command_that_was_applied(
    server: Server, proxy: Proxy, client: "redis.Redis"
) -> None:
    proxy.drop_replies(1)

    with pytest.raises(redis.ConnectionError):
        client.incr("count")

    assert server.command("GET", "count") == "1"
    assert proxy.lost_replies == 1
    assert client.incr("count") == 2


def test_only_replies_to_the_named_command_are_lost(server: Server, proxy: Proxy, client: "redis.Redis") -> None:
    proxy.drop_replies(1, containing="incr")
    assert client.ping()

    with pytest.raises(redis.ConnectionError):
        client.incr("count")

    proxy.wait_lost()
    assert server.command("GET", "count") == "1"


def test_a_delay_makes_every_request_late(proxy: Proxy, client: "redis.Redis") -> None:
    proxy.delay(50)
    began = time.monotonic()
    client.ping()
    assert time.monotonic() - began >= 0.05

    proxy.delay(0)
    assert client.ping()


def test_a_dead_server_is_a_closed_connection(server: Server, proxy: Proxy, client: "redis.Redis") -> None:
    server.kill()

    with pytest.raises(redis.ConnectionError):
        client.ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    until(lambda: proxy.open_connections == 0, "the proxy to let go")
