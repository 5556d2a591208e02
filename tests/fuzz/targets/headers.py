"""Headers of requests: who asks, from where, for what."""

from ipaddress import ip_address

import msgspec

from ade.accounts.model import UnsafeBind
from ade.common.trace_context import read_trace, written_trace
from ade.server.addresses import (
    base_url,
    check_bind,
    check_host,
    check_same_host,
    check_same_origin_write,
    client_address,
    client_scheme,
    counted_address,
    host_of_target,
    hosts_of,
    is_loopback,
    origin_of,
    read_networks,
)
from ade.server.credentials import check_query, cookie_name, read_cookie, read_credentials, set_cookie
from ade.server.etags import (
    LONGEST_WAIT_S,
    AnyTag,
    EntityTag,
    check_write,
    is_not_modified,
    read_prefer,
    read_tags,
)
from ade.server.idempotency import fingerprint, own_task_key, place_of, read_key
from ade.server.pagination import read_cursor, write_cursor
from ade.server.request_body import check_media_type, choose_media_type
from tests.domain import RequestRefused
from tests.fuzz.table import header_of, headers_of, let, parts_of, target, text_of

TOKEN = "ade_" + "a" * 43


@target(
    "server.pagination",
    seeds=lambda: (
        [f"{write_cursor('tasks', {}, at)}\n".encode() for at in (0, 12, "x" * 40)]
        + [write_cursor("tasks", {"queue": "q"}, 7).encode() + b"\nq", b"AQ"]
    ),
    words=["AQ", "=", "-", "_"],
)
def cursors(data: bytes) -> None:
    cursor, queue = map(text_of, parts_of(data, 2))
    filters = {"queue": queue} if queue.isascii() else {}
    position = let(lambda: read_cursor("tasks", filters, cursor), RequestRefused)
    if position is not None:
        assert write_cursor("tasks", filters, position) == cursor
        assert let(lambda: read_cursor("locks", filters, cursor), RequestRefused) is None
    if queue.isascii():
        assert read_cursor("tasks", {}, write_cursor("tasks", {}, queue[:200])) == queue[:200]


@target(
    "server.credentials",
    "server.credentials",
    seeds=[
        f"authorization: Bearer {TOKEN}\nhost: localhost:8000",
        "cookie: ade-session-8000=" + "s" * 43 + "; other=1\nhost: localhost:8000",
        "cookie: __Host-ade=" + "s" * 43 + "\nauthorization: Basic YTpi\nhost: ade.example.org",
    ],
    words=["cookie: ", "ade-session", "__Host-ade=", ";", "Bearer ", "authorization: ", "host: localhost:80"],
)
def credentials(data: bytes) -> None:
    headers = headers_of(data)
    host = next((value for name, value in headers if name == "host"), None)
    for scheme in ("http", "https"):
        found = let(lambda: read_credentials(headers, scheme=scheme, host=host), RequestRefused)  # noqa: B023
        if found is None:
            continue
        assert found.token is None or found.session is None
        assert not found.token or len(found.token) < 20 or found.token not in repr(found)
        if found.session is not None:
            name = cookie_name(scheme, host)
            sent = set_cookie(name, found.session, 60).partition(";")[0]
            assert read_cookie([("cookie", sent)], name) == found.session
    let(lambda: check_query(headers), RequestRefused)


@target(
    "server.etags",
    seeds=['"12"', 'W/"12", "13"', "*", ',, "a" ,', '"' + "x" * 100 + '"'],
    words=['W/"', '"', ", ", "*", "\t"],
)
def entity_tags(data: bytes) -> None:
    header = header_of(data)
    tags = let(lambda: read_tags(header), RequestRefused)
    let(lambda: check_write(12, if_match=header), RequestRefused)
    let(lambda: check_write(None, if_none_match=header), RequestRefused)
    is_known = let(lambda: is_not_modified(EntityTag("12"), header), RequestRefused)
    if tags is None:
        assert is_known is None
    elif not isinstance(tags, AnyTag):
        assert read_tags(", ".join(map(str, tags))) == list(tags)
        assert is_known == any(tag.value == "12" for tag in tags)


@target(
    "server.etags",
    seeds=["wait=30, respond-async", 'wait="5"; a=b; c, foo', "respond-async", ";;;,,,"],
    words=["wait=", "respond-async", '"', "\\", ";", ", ", "="],
)
def preferences(data: bytes) -> None:
    header = header_of(data)
    found = read_prefer(header)
    assert found.wait_s is None or 0 <= found.wait_s <= LONGEST_WAIT_S
    assert found.applied is None or read_prefer(found.applied) == found


@target(
    "server.idempotency",
    seeds=["8e03978e-40d5-43dd-bc93-6894a57f9324", '"with quotes"', "a b", '""', "x" * 256],
    words=['"', "\\", " "],
)
def idempotency_keys(data: bytes) -> None:
    header = header_of(data)
    key = let(lambda: read_key(header), RequestRefused)
    if key is not None:
        assert read_key(f'"{key}"') == key
        assert len(place_of("ann", key)) == 64
        assert place_of("ann", key) != place_of("bob", key)
        assert len(own_task_key("ann", key)) <= 500
    assert fingerprint("POST", text_of(data), data) == fingerprint("post", text_of(data), data)


@target(
    "server.request_body",
    seeds=["application/json", "application/json; charset=utf-8", "text/*;q=0.5, */*;q=0.1", "application/JSON;q=2"],
    words=["application/json", "text/event-stream", "*/*", ";q=", "charset=", "utf-8", ", "],
)
def media_types(data: bytes) -> None:
    header = header_of(data)
    offered = ("application/json", "text/event-stream")
    let(lambda: check_media_type(header), RequestRefused)
    chosen = let(lambda: choose_media_type(header, offered), RequestRefused)
    assert chosen is None or chosen in offered


@target(
    "server.addresses",
    seeds=[
        "10.0.0.1\n10.0.0.0/8\nx-forwarded-for: 203.0.113.9, 10.0.0.2\nx-forwarded-proto: https",
        "::ffff:10.0.0.1\n10.0.0.0/8\nx-forwarded-for: [2001:db8::1]:443",
        "fe80::1%eth0\n::/0\nx-forwarded-for: for=_hidden",
        "\n\n",
    ],
    words=["x-forwarded-for: ", "x-forwarded-proto: ", "10.0.0.1", "[::1]", ":80", "%", "/8", ", "],
)
def forwarded_addresses(data: bytes) -> None:
    """What a header says counts only if the peer is trusted, and no word of it becomes anything but an address."""
    first, second, rest = parts_of(data, 3)
    peer, headers = header_of(first), headers_of(rest)
    trusted = let(lambda: read_networks([header_of(second)]), ValueError) or ()
    address = client_address(peer, headers, trusted)
    assert client_address(peer, headers) == client_address(peer, [])
    if address != peer:
        ip_address(address)
    counted_address(address)
    is_loopback(address)
    assert client_scheme(peer, headers, "http", trusted) in ("http", "https")
    assert client_scheme(peer, headers, "http") == "http"


@target(
    "server.addresses",
    "server.addresses",
    seeds=[
        "localhost:8000\nhttp://localhost:8000\nhttp://localhost:8000/api",
        "[::1]:8000\nnull\n/api?a=://b",
        "ADE.example.org.\nhttps://ade.example.org\nhttp://user@host:1/?#",
    ],
    words=["localhost", "[::1]", "://", ":80", ".", "example.org"],
)
def hosts_and_origins(data: bytes) -> None:
    host, origin, address = map(header_of, parts_of(data, 3))
    name = let(lambda: check_host(host, {"localhost", "[::1]", "*.example.org"}), RequestRefused)
    assert name is None or name in ("localhost", "[::1]") or name.endswith(".example.org")
    own = let(lambda: origin_of("http", host), RequestRefused)
    if own is not None:
        assert origin_of("http", own.partition("://")[2]) == own
        check_same_origin_write({own}, origin=own, fetch_site=None)
        let(lambda: check_same_origin_write({own}, origin=origin, fetch_site=origin), RequestRefused)
    named = host_of_target(address)
    if named is not None:
        let(lambda: check_same_host(named, host), RequestRefused)
    let(lambda: check_bind(host, "off"), UnsafeBind)
    base_url(host, 80)
    hosts_of(host, (origin,))


@target(
    "common.trace_context",
    seeds=[
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-later",
    ],
    words=["00-", "ff-", "-01", "0" * 32, "0" * 16],
)
def trace_parents(data: bytes) -> None:
    place = read_trace(header_of(data))
    if place is not None:
        assert read_trace(written_trace(place)) == place
        msgspec.json.encode(place)
