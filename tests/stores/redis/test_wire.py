"""The connection itself, against a real server."""

import asyncio
import errno

import pytest

from ade.stores.redis.client.connections import RedisConnection
from ade.stores.redis.client.errors import ServerError
from tests.servers.pool import POOL
from tests.servers.proxy import Proxy


async def line() -> RedisConnection:
    server = POOL.standalone("valkey")
    return await RedisConnection.open("127.0.0.1", server.port, timeout_s=5)


async def test_answers_come_in_the_order_of_the_commands_and_errors_stand_among_them() -> None:
    opened = await line()

    answers = await opened.exchange([("SET", "k", 7), ("GET", "k"), ("LPUSH", "k", 1), ("PING",)])

    assert answers[:2] == [b"OK", b"7"]
    assert isinstance(answers[2], ServerError)
    assert answers[2].code == "WRONGTYPE"
    assert answers[3] == b"PONG"
    assert opened.is_quiet
    opened.close()


async def test_large_answers_arrive_whole() -> None:
    opened = await line()
    content = bytes(range(256)) * 40_000

    await opened.exchange([("SET", "large", content)])

    assert await opened.exchange([("GET", "large")] * 3) == [content] * 3
    opened.close()


async def test_what_the_server_says_by_itself_is_heard() -> None:
    server = POOL.standalone("valkey")
    opened = await RedisConnection.open("127.0.0.1", server.port, timeout_s=5)
    await opened.exchange([("SUBSCRIBE", "news")])
    assert await opened.listen(0.01) is None

    server.command("PUBLISH", "news", "hello")

    assert await opened.listen(5) == [b"message", b"news", b"hello"]
    opened.close()


async def test_a_line_that_is_cut_says_so_to_who_waits_and_to_who_comes_later() -> None:
    server = POOL.standalone("valkey")
    with Proxy(server.port) as proxy:
        opened = await RedisConnection.open("127.0.0.1", proxy.port, timeout_s=5)
        proxy.blackhole()
        waiting = asyncio.create_task(opened.exchange([("PING",)]))
        await asyncio.sleep(0)
        proxy.cut()

        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await opened.exchange([("PING",)])
        assert not opened.is_quiet
        opened.abort()


async def test_a_server_that_is_not_there_is_an_error_of_the_system() -> None:
    with pytest.raises(ConnectionRefusedError):
        await RedisConnection.open("127.0.0.1", 1, timeout_s=5)


async def test_somebody_who_speaks_otherwise_is_not_understood() -> None:
    async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    opened = await RedisConnection.open("127.0.0.1", server.sockets[0].getsockname()[1], timeout_s=5)

    with pytest.raises(ConnectionError):
        await opened.exchange([("PING",)])
    opened.abort()
    server.close()
    await server.wait_closed()


async def test_a_listener_is_told_that_the_line_has_ended_also_when_the_system_calls_it_a_time_out() -> None:
    opened = await line()
    opened.connection_lost(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    with pytest.raises(TimeoutError, match="timed out"):
        await opened.listen(5)
    opened.abort()
