"""Whole requests: bytes of a connection, addresses, queries and bodies."""

import asyncio
import json
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import h11
import msgspec
import uvicorn
from uvicorn.server import ServerState

from ade.client.http_transport import query_pairs, target_of
from ade.server.listener import LimitedConnection
from ade.server.request import ClientGone, HttpRequest, Receive, Scope, Send
from ade.server.request_body import USUAL, RequestLimits, depth, read_json
from ade.server.router import Endpoint, MethodNotAllowed, Router
from ade.server.wire_format import body_plan_of
from tests.domain import ROUTES, RequestRefused
from tests.fuzz.paper import PaperTransport, complete
from tests.fuzz.samples import sample
from tests.fuzz.table import let, passes, pieces_of, target

SMALL = RequestLimits(body_bytes=2_000)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """What ADE does with every request, before it looks for a route."""
    request = HttpRequest(scope, receive, "1")
    status = 200
    try:
        request.check(SMALL)
        await request.body(SMALL)
    except RequestRefused as refused:
        status = refused.problem.status
    except ClientGone:
        return
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@cache
def _config() -> uvicorn.Config:
    config = uvicorn.Config(
        _answer,
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        server_header=False,
    )
    config.load()
    return config


async def _visited(pieces: list[bytes]) -> bytes:
    """What a connection answers to these bytes, and hangs up."""
    transport = PaperTransport()
    connection = LimitedConnection(_config(), ServerState(), {}, _loop=asyncio.get_running_loop())
    connection.head_bytes = 3_000
    connection.connection_made(transport)
    for piece in pieces:
        if transport.is_closing():
            break
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    waiting = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if waiting:
        await asyncio.wait(waiting)
    return bytes(transport.written)


def _statuses(written: bytes) -> list[int]:
    """Of all responses in it, as another program reads them."""
    found: list[int] = []
    while written:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(written)
        event = reader.next_event()
        while not isinstance(event, h11.EndOfMessage):
            assert isinstance(event, h11.Response | h11.InformationalResponse | h11.Data), event
            if isinstance(event, h11.Response):
                found.append(event.status_code)
            event = reader.next_event()
        written = reader.trailing_data[0]
    return found


@target(
    "server.listener",
    "server.request",
    "server.request_body",
    seeds=[
        b"\x00GET /api/v1/tasks?limit=5 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x01POST /api/v1/tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x02POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
        b"\x03PUT http://b/x HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"\x04POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"\x05GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    words=[
        "GET ",
        " HTTP/1.1\r\n",
        "\r\n\r\n",
        "Host: a\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ],
)
def connections(data: bytes) -> None:
    """Whatever comes is answered as HTTP has it, and in whatever pieces it comes it is answered in the same way."""
    seed, bytes_sent = data[:1], data[1:]
    if bytes_sent.startswith((b"HEAD", b"CONNECT")) or b"\nHEAD" in bytes_sent or b"\nCONNECT" in bytes_sent:
        return  # whose answers are read in another way
    statuses = _statuses(complete(_visited([bytes_sent] if bytes_sent else [])))
    assert all(100 <= status < 500 for status in statuses)
    _statuses(complete(_visited(pieces_of(bytes_sent, sum(seed)))))


@cache
def _router() -> Router[Endpoint]:
    return Router((route, Endpoint(route)) for route in ROUTES)


@cache
def _endpoints(part: str) -> list[Endpoint]:
    found = [Endpoint(route) for route in ROUTES]
    return [each for each in found if getattr(each.shape, part) is not None]


def _request(target_text: str, body: bytes = b"") -> HttpRequest:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    path, _, query = target_text.partition("?")
    scope = {
        "method": "POST",
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(b"host", b"a"), (b"content-type", b"application/json")],
        "scheme": "http",
    }
    return HttpRequest(scope, receive, "1")


def _addresses() -> Iterator[bytes]:
    for index, route in enumerate(ROUTES):
        values = [f"a{index}" for _ in route.parameters]
        yield f"{route.method} {target_of(route, values)}".encode()
    yield b"GET /api/v1/tasks/%2e%2e%2fa/../b"
    yield b"DELETE /api/v1/agents/a/b/%ff%00"


@target("server.router", "server.operation", seeds=_addresses, words=["/api/v1/", "%2f", "%ff", "..", "//", "HEAD "])
def paths(data: bytes) -> None:
    method, _, path = data.decode("latin-1").partition(" ")
    found = let(lambda: _router().find(method, path), RequestRefused, MethodNotAllowed)
    if found is not None:
        route, values = found.endpoint.route, found.values
        assert len(values) == len(route.parameters)
        assert all(value.isprintable() or value for value in values)
        again = _router().find(route.method, target_of(route, values))
        assert again.values == values or again.endpoint is not found.endpoint


def _queries() -> Iterator[bytes]:
    for index, endpoint in enumerate(_endpoints("query")):
        assert endpoint.shape.query is not None
        yield bytes([index]) + "&".join(f"{name}=1" for name in endpoint.shape.query.__struct_fields__).encode()
        yield bytes([index]) + b"limit=5&cursor=AQ&since=2026-01-31T12:00:00Z"


@target(
    "server.router",
    seeds=_queries,
    words=["limit=", "cursor=", "&", ",", "%2C", "true", "nan", "inf", "2026-01-31T12:00:00Z", "since=", "status="],
)
def queries(data: bytes) -> None:
    """A query that is taken can be written again, and means the same."""
    endpoints = _endpoints("query")
    endpoint = endpoints[sum(data[:1]) % len(endpoints)]
    request = _request(f"/?{data[1:].decode('latin-1')}")
    if not passes(lambda: request.check(USUAL), RequestRefused):
        return
    form = let(lambda: endpoint.read_query(request.pairs), RequestRefused)
    if form is not None:
        _check_finite(form)
        again = [(name, value) for name, value in query_pairs(form) if value]
        assert endpoint.read_query(again) == form or any("," in value or not value for _, value in request.pairs)


def _bodies() -> Iterator[bytes]:
    for index, endpoint in enumerate(_endpoints("body")):
        assert endpoint.shape.body is not None
        yield bytes([index]) + json.dumps(sample(body_plan_of(endpoint.shape.body).wire)).encode()


@target(
    "server.wire_format",
    "server.router",
    seeds=_bodies,
    words=['{"', '":', "[", "]", "}", "null", "true", "NaN", "1e400", "\\ud800", "\\u0000", '"2026-01-31T12:00:00Z"'],
)
def bodies(data: bytes) -> None:
    """A body that is taken can be written again, and means the same."""
    endpoints = _endpoints("body")
    endpoint = endpoints[sum(data[:1]) % len(endpoints)]
    found = let(lambda: complete(endpoint.read_body(_request("/", data[1:]), USUAL)), RequestRefused)
    form = None if found is None else found[1]
    if form is not None:
        _check_finite(form)
        written = msgspec.json.encode(body_plan_of(type(form)).out(form))
        assert complete(endpoint.read_body(_request("/", written), USUAL))[1] == form


@target(
    "server.request_body",
    seeds=['{"a": [1, 2.5e3, "\\u00e9", null, true]}', '{"a": 1, "a": 2}', "[[[[]]]]", '"\\ud83d\\ude42"', "1e400"],
    words=["{", "[", '"', "\\", "\\u", "d800", "0000", "NaN", "-Infinity", "e+999", '"]"', '\\"'],
)
def json_values(data: bytes) -> None:
    """No body is read in two ways, and its depth is never underrated."""
    value = let(lambda: read_json(data), RequestRefused)
    assert _depth(value) <= max(depth(data), 0)
    if value is not None:
        assert read_json(json.dumps(value).encode()) == value
        assert msgspec.json.decode(data) == value or _has_large_number(value)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _has_large_number(value: object) -> bool:
    """Of whole numbers that need more than 64 bits, msgspec makes others."""
    if isinstance(value, dict):
        return any(map(_has_large_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_large_number, value))
    return isinstance(value, int | float) and abs(value) >= 2**63


def _check_finite(value: Any) -> None:
    for each in msgspec.to_builtins(value).values() if isinstance(value, msgspec.Struct) else ():
        assert not isinstance(each, float) or math.isfinite(each), value
