"""Clients that take their time, or never come to an end."""

import asyncio
import resource
import socket
from pathlib import Path

import pytest

from ade.server.listener import LimitedConnection, listen, most_connections
from ade.server.streams import StreamSlots
from tests.domain import Role
from tests.server.conftest import ServerHarness, start_server
from tests.stores.urls import store_url

LIVEZ = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"


async def _opened(server: ServerHarness) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))


async def test_a_head_without_end_is_cut_off(sqlite_server: ServerHarness) -> None:
    reader, writer = await _opened(sqlite_server)
    writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + b"x-more: " + b"y" * LimitedConnection.head_bytes)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"headers_too_large" in answer


async def test_headers_that_are_too_many_are_refused(sqlite_server: ServerHarness) -> None:
    reader, writer = await _opened(sqlite_server)
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(200))
    writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + many + b"\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 431 " in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "said", [b"", b"GET /livez HTTP/1.1\r\nhost:", b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\nGET"]
)
async def test_who_never_finishes_his_head_is_hung_up_on(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(LimitedConnection, "head_s", 0.05)
    reader, writer = await _opened(sqlite_server)
    writer.write(said)
    await asyncio.wait_for(reader.read(), 60)  # until the server hangs up
    writer.close()
    assert (await sqlite_server.ask("GET", "/livez", by=None)).status == 200


async def test_two_requests_in_one_go_are_answered_one_after_the_other(sqlite_server: ServerHarness) -> None:
    reader, writer = await _opened(sqlite_server)
    meaning = LIVEZ.replace(b"livez", b"problems/unknown_task")
    writer.write(LIVEZ + b"\r\n" + meaning + b"connection: close\r\n\r\n")
    answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b'"alive":true') < answers.index(b'"unknown_task"')


async def test_a_body_that_comes_together_with_its_head_is_no_part_of_it(sqlite_server: ServerHarness) -> None:
    body = b'{"name": "greet", "args": {"text": "' + b"x" * (2 * LimitedConnection.head_bytes) + b'"}}'
    for _ in range(3):
        made = await sqlite_server.ask("POST", "/api/v1/tasks", raw=body)
        assert made.status == 201, made


async def test_strangers_do_not_take_all_files_that_a_server_may_have_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < most_connections() < before[0] or before[0] == resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1_024), before[1]))
    try:
        assert most_connections() == 768
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    monkeypatch.setattr("ade.server.listener.most_connections", lambda: 3)
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        assert (await server.ask("GET", "/livez", by=None)).status == 200  # the client keeps its connection
        taken = [await _opened(server) for _ in range(5)]
        told = [await asyncio.wait_for(_answered(*each), 60) for each in taken]
        assert (await server.ask("GET", "/livez", by=None)).status == 200
        for _, writer in taken:
            writer.close()
    assert told == [True, True, False, False, False]


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the server talks over this connection."""
    try:
        writer.write(LIVEZ + b"\r\n")
        return bool(await reader.read(1))
    except ConnectionError:
        return False


async def _said_by(server: ServerHarness, target: str, accept: str = "*/*") -> bytes:
    token = await server.token(Role.VIEWER)
    head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\naccept: {accept}\r\n\r\n"
    return head.encode()


async def test_requests_do_not_pile_up_behind_one_that_waits(sqlite_server: ServerHarness) -> None:
    """Each read of a connection may bring ten thousand small ones, and memory is not for who says much."""
    task = await sqlite_server.task()
    reader, writer = await _opened(sqlite_server)
    many = (LIVEZ + b"\r\n") * (LimitedConnection.most_in_line + 2)
    writer.write(await _said_by(sqlite_server, f"/api/v1/tasks/{task['id']}?wait=60") + many)
    answer = await asyncio.wait_for(reader.read(), 60)  # until the server hangs up
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await sqlite_server.ask("GET", "/livez", by=None)).status == 200


async def test_who_does_not_take_the_end_of_his_last_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is so little that the server could go on writing."""
    lost, ended = asyncio.Event(), LimitedConnection.connection_lost

    def connection_lost(self: LimitedConnection, error: Exception | None) -> None:
        ended(self, error)
        lost.set()

    def listen_with_little_room(host: str, port: int) -> socket.socket:
        made = listen(host, port)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)  # or else the machine takes all of it
        return made

    monkeypatch.setattr("ade.composition.server.listen", listen_with_little_room)
    monkeypatch.setattr(LimitedConnection, "connection_lost", connection_lost)
    monkeypatch.setattr(LimitedConnection, "taken_s", 0.1)
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        task = await server.task(args={"text": "x" * 40_000})
        said = await _said_by(server, f"/api/v1/tasks/{task['id']}?whole=true")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
            client.sendall(said.replace(b"\r\nhost", b"\r\nconnection: close\r\nhost"))
            assert await asyncio.wait_for(lost.wait(), 60)


async def test_what_is_no_http_does_not_get_into_an_answer(sqlite_server: ServerHarness) -> None:
    reader, writer = await _opened(sqlite_server)
    writer.write(await _said_by(sqlite_server, "/api/v1/events", "text/event-stream"))
    await asyncio.wait_for(reader.readuntil(b"retry: "), 60)
    writer.write(b"this is none\r\n\r\n")
    rest = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert b"HTTP/1.1" not in rest


async def test_a_stream_ends_with_its_connection_though_something_stands_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back, give_back = asyncio.Event(), StreamSlots.give_back

    def noticed(self: StreamSlots, who: str) -> None:
        give_back(self, who)
        given_back.set()

    monkeypatch.setattr(StreamSlots, "give_back", noticed)
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.heartbeat_s": 1}) as server:
        reader, writer = await _opened(server)
        writer.write(await _said_by(server, "/api/v1/events", "text/event-stream") + LIVEZ + b"\r\n")
        await asyncio.wait_for(reader.readuntil(b"retry: "), 60)
        writer.transport.abort()
        assert await asyncio.wait_for(given_back.wait(), 60)
