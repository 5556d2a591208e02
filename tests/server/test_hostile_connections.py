"""What a stranger tried: connections that give nothing and take nothing, and headers that come too late."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.server.listener import LimitedConnection
from ade.server.request_body import read_json
from tests.domain import HttpRequest, RequestRefused, Role
from tests.server.conftest import ServerHarness

HOST = b"host: localhost\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
LOGIN = b"POST /api/v1/sessions HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"


async def _opened(server: ServerHarness) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))


@pytest.mark.parametrize(
    "said",
    [
        LOGIN + b"content-length: 10\r\n\r\n",  # nothing of the body
        LOGIN + b"content-length: 10\r\n\r\n{",  # a part of it
        LOGIN + b"transfer-encoding: chunked\r\n\r\n0\r\nmore: 1\r\n",  # all of it, but no end
        b"GET /api/v1/openapi.json HTTP/1.1\r\n" + HOST + b"content-length: 10\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\n" + HOST + b"content-length: 1000000\r\n\r\nx",  # answered before it was read
    ],
)
async def test_who_leaves_a_request_half_said_is_hung_up_on(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    for name in ("head_s", "rest_s"):
        monkeypatch.setattr(LimitedConnection, name, 0.1)
    monkeypatch.setattr(HttpRequest, "body_s", 0.1)
    reader, writer = await _opened(sqlite_server)
    writer.write(said)
    answer = await asyncio.wait_for(reader.read(), 60)  # until the server hangs up
    writer.close()
    assert answer.startswith(b"HTTP/1.1 ")  # whoever got as far as that is told why


async def test_an_empty_line_does_not_keep_a_connection_for_ever(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedConnection, "head_s", 0.1)
    reader, writer = await _opened(sqlite_server)
    writer.write(LIVEZ)
    await reader.readuntil(b"}")  # the answer
    writer.write(b"\r\n")  # begins no message
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_who_takes_nothing_of_his_answers_is_hung_up_on(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()
    ended = LimitedConnection.connection_lost

    def connection_lost(self: LimitedConnection, error: Exception | None) -> None:
        ended(self, error)
        lost.set()

    monkeypatch.setattr(LimitedConnection, "connection_lost", connection_lost)
    monkeypatch.setattr(LimitedConnection, "taken_s", 0.1)
    _, writer = await _opened(sqlite_server)
    writer.transport.pause_reading()  # type: ignore[attr-defined] # it is a transport that can
    openapi = b"GET /api/v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    writer.write(openapi * 200)
    assert await asyncio.wait_for(lost.wait(), 60)
    writer.transport.abort()


async def test_what_comes_behind_a_body_is_no_header(sqlite_server: ServerHarness) -> None:
    """A proxy looks at headers, and not at these; and there is no end to how many they may be."""
    reader, writer = await _opened(sqlite_server)
    token = (await sqlite_server.token(Role.AGENT)).encode()
    head = b"GET /api/v1/me HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    writer.write(head + b"0\r\nauthorization: Bearer " + token + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "not_authenticated"


async def test_a_name_that_comes_twice_among_very_many_is_found_at_once(sqlite_server: ServerHarness) -> None:
    """A body may be large, and must not take hours."""
    names = ",".join(f'"n{number}":1' for number in range(300_000))
    async with asyncio.timeout(60):
        answer = await sqlite_server.ask("POST", "/api/v1/tasks", raw=f'{{{names},"n299999":1}}'.encode())
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert "'n299999' twice" in answer.json()["detail"]


async def test_the_end_of_a_body_is_no_head(sqlite_server: ServerHarness) -> None:
    """However large the piece is that it came in."""
    body = b'{"name": "greet", "args": {"text": "' + b"x" * (3 * LimitedConnection.head_bytes) + b'"}}'
    token = (await sqlite_server.token(Role.OPERATOR)).encode()
    head = b"POST /api/v1/tasks HTTP/1.1\r\n" + HOST + b"authorization: Bearer " + token
    head += b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    reader, writer = await _opened(sqlite_server)
    for _ in range(5):
        writer.write(head)
        await asyncio.sleep(0)
        writer.write(body)
        assert b" 201 " in await asyncio.wait_for(reader.readline(), 60)
        length = int((await reader.readuntil(b"\r\n\r\n")).lower().partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
    writer.close()


async def test_strangers_send_little(sqlite_server: ServerHarness) -> None:
    large = b'{"name": "x", "password": "' + b"y" * 65_536 + b'"}'
    answer = await sqlite_server.ask("POST", "/api/v1/sessions", raw=large, by=None)
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert answer.json()["limit"] == 65_536


async def test_a_token_in_the_path_is_not_said_again(sqlite_server: ServerHarness) -> None:
    token = await sqlite_server.token(Role.OPERATOR)
    for method, path in (("GET", f"/api/v1/tasks/{token}"), ("POST", f"/api/v1/queues/{token}/pause")):
        answer = await sqlite_server.ask(method, path)
        assert (answer.status, answer.code) == (400, "bad_request")
        assert token.encode() not in answer.body


async def test_a_body_in_another_encoding_than_chunks_is_refused(sqlite_server: ServerHarness) -> None:
    reader, writer = await _opened(sqlite_server)
    writer.write(LOGIN + b"connection: close\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize("task_id", ["{x}", "a%3Ab", "..", "%7Bt%7D%3A1", "018F0000-0000-7000-8000-000000000000"])
async def test_a_stream_looks_for_no_id_that_is_none(server: ServerHarness, task_id: str) -> None:
    path = f"/api/v1/tasks/{task_id}/output"
    answer = await server.ask("GET", path, headers={"accept": "text/event-stream"})
    assert (answer.status, answer.code) == (404, "unknown_task")


@pytest.mark.parametrize(
    "number", ["1e400", "1E+0400", "-2.5e309", "9" * 250 + "e99", "9" * 99 + "e250", "9" * 310 + ".5", "7" * 401]
)
def test_a_number_that_is_too_large_is_refused_however_it_is_written(number: str) -> None:
    with pytest.raises(RequestRefused):
        read_json(f'{{"a": [{number}]}}'.encode())


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**398), 10**398))
def test_every_other_number_is_read_as_it_is(number: float) -> None:
    assert read_json(json.dumps([number]).encode()) == [number]


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://evil.example/problems/unknown_task", b"localhost", 421),
        (b"http://evil.example/problems/unknown_task", b"evil.example", 421),
        (b"http://evil@localhost/problems/unknown_task", b"localhost", 421),
        (b"http://localhost:99/problems/unknown_task", b"localhost", 421),
        (b"http://LOCALHOST/problems/unknown_task", b"localhost", 200),
        (b"/problems/unknown_task", b"localhost", 200),
    ],
)
async def test_an_address_with_a_host_of_its_own_names_ours(
    sqlite_server: ServerHarness, target: bytes, host: bytes, status: int
) -> None:
    reader, writer = await _opened(sqlite_server)
    writer.write(b"GET " + target + b" HTTP/1.1\r\nconnection: close\r\nhost: " + host + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 %d " % status)


async def _asked(
    server: ServerHarness, path: str, *lines: bytes, method: bytes = b"GET", body: bytes = b""
) -> tuple[int, bytes]:
    token = (await server.token(Role.ADMIN)).encode()
    head = [method + b" " + path.encode() + b" HTTP/1.1", b"host: localhost", b"connection: close"]
    head += [b"authorization: Bearer " + token, b"content-type: application/json", b"content-length: %d" % len(body)]
    reader, writer = await _opened(server)
    writer.write(b"\r\n".join([*head, *lines]) + b"\r\n\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return int(answer.split()[1]), answer


async def test_a_list_in_several_headers_is_one_list(sqlite_server: ServerHarness) -> None:
    await sqlite_server.person("bob", "viewer")
    path = "/api/v1/users/bob"
    tag = (await sqlite_server.ask("GET", path)).headers["etag"].encode()
    assert (await _asked(sqlite_server, path, b'if-none-match: "0"', b"if-none-match: " + tag))[0] == 304
    assert (await _asked(sqlite_server, path, b"accept: text/csv", b"accept: application/json"))[0] == 200
    change = b'{"display_name": "Bob"}'
    for lines, status in (
        ((b"if-match: *", b'if-match: "0"'), 400),
        ((b'if-match: "0"', b'if-match: "99"'), 412),
        ((b'if-match: "0"', b"if-match: " + tag), 200),
    ):
        assert (await _asked(sqlite_server, path, *lines, method=b"PATCH", body=change))[0] == status
    task = await sqlite_server.task()
    status, answer = await _asked(
        sqlite_server, f"/api/v1/tasks/{task['id']}", b"prefer: handling=lenient", b"prefer: wait=0"
    )
    assert status == 200
    assert b"preference-applied" not in answer.lower()  # it did not wait


async def test_figures_until_the_end_of_all_years_are_refused(sqlite_server: ServerHarness) -> None:
    answer = await sqlite_server.ask("GET", "/api/v1/stats/series?until=9999-12-31T23:59:59Z")
    assert (answer.status, answer.code) == (400, "invalid_filter")
