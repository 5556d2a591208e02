"""A client and servers that behave well: what is sent, what is kept, what is sent again."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from ade.common.http.pool import HttpClient, origin_of
from ade.errors import InvalidUrl, ServerUnreachable
from tests.common.http.servers import Server, Visit, answer, behave_well, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(behave_well) as running:
        yield running


async def test_a_request_says_where_it_goes_and_how_long_its_body_is(server: Server) -> None:
    client = HttpClient(f"{server.url}/base/")

    response = await client.request("POST", "/tasks?x=1", {"content-type": "application/json"}, b'{"a":1}')

    assert (response.status, response.body, response.header("Content-Length")) == (200, b"answer 1", "8")
    head, _, body = server.asked[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /base/tasks?x=1 HTTP/1.1",
        f"host: 127.0.0.1:{server.port}".encode(),
        b"content-type: application/json",
        b"content-length: 7",
    ]
    assert body == b'{"a":1}'
    await client.close()


async def test_one_connection_serves_one_request_after_the_other(server: Server) -> None:
    client = HttpClient(server.url)

    bodies = [(await client.request("GET", "/")).body for _ in range(3)]

    assert (bodies, server.visits) == ([b"answer 1", b"answer 2", b"answer 3"], 1)
    await client.close()


async def test_requests_at_once_share_as_many_connections_as_there_may_be(server: Server) -> None:
    client = HttpClient(server.url, most_connections=3)

    responses = await asyncio.gather(*(client.request("GET", "/") for _ in range(20)))

    assert sorted(response.body for response in responses) == sorted(f"answer {n}".encode() for n in range(1, 21))
    assert server.visits <= 3
    await client.close()


async def test_a_connection_that_rested_too_long_is_not_used_again(server: Server) -> None:
    now = [0.0]
    client = HttpClient(server.url, keep_s=4.0, clock=lambda: now[0])
    await client.request("GET", "/")
    now[0] = 3.9
    await client.request("GET", "/")
    assert server.visits == 1

    now[0] = 8.0
    await client.request("GET", "/")

    assert server.visits == 2
    await client.close()


async def test_a_connection_the_server_closes_after_each_answer_is_made_anew() -> None:
    async def once(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        await visit.say(answer(headers="connection: close\r\n"))

    async with serving(once) as server:
        client = HttpClient(server.url)
        for _ in range(2):
            assert (await client.request("POST", "/", body=b"x")).body == b"hello"

        assert server.visits == 2
        await client.close()


async def drop_the_second(server: Server, visit: Visit) -> None:
    """On the first connection, the second request gets no answer: the server has closed meanwhile."""
    while asked := await visit.request():
        server.asked.append(asked)
        if visit.number == 1 and len(server.asked) == 2:
            visit.drop()
            return
        await visit.say(answer())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_may_be_done_twice_is_sent_again_when_a_kept_connection_was_closed(method: str) -> None:
    async with serving(drop_the_second) as server:
        client = HttpClient(server.url)
        await client.request("GET", "/")

        assert (await client.request(method, "/again")).status == 200

        assert [asked.split()[1] for asked in server.asked] == [b"/", b"/again", b"/again"]
        await client.close()


async def test_what_may_not_be_done_twice_is_not_sent_again() -> None:
    async with serving(drop_the_second) as server:
        client = HttpClient(server.url)
        await client.request("GET", "/")

        with pytest.raises(ServerUnreachable) as refused:
            await client.request("POST", "/", body=b"pay")

        assert (refused.value.was_sent, len(server.asked)) == (True, 2)
        await client.close()


async def test_what_was_sent_and_could_not_be_sent_again_may_have_been_done() -> None:
    closing = asyncio.Event()

    async def once(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(answer())
        await visit.request()
        closing.set()
        await visit.gone()

    async with serving(once) as server:
        client = HttpClient(server.url)
        await client.request("GET", "/")
        asking = asyncio.create_task(client.request("POST", "/", body=b"pay", is_repeatable=True))
        await closing.wait()

    with pytest.raises(ServerUnreachable, match="no connection") as refused:  # the whole server is gone by now
        await asking

    assert refused.value.was_sent
    await client.close()


async def test_a_caller_can_say_that_a_post_may_be_repeated() -> None:
    async with serving(drop_the_second) as server:
        client = HttpClient(server.url)
        await client.request("GET", "/")

        response = await client.request("POST", "/", {"idempotency-key": "k"}, b"pay", is_repeatable=True)

        assert (response.status, len(server.asked)) == (200, 3)
        await client.close()


async def test_a_fresh_connection_that_is_dropped_is_no_reason_to_ask_again() -> None:
    async def drop(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        visit.drop()

    async with serving(drop) as server:
        client = HttpClient(server.url)

        with pytest.raises(ServerUnreachable):
            await client.request("GET", "/")

        assert len(server.asked) == 1
        await client.close()


async def test_an_answer_nobody_asked_for_is_never_taken_for_the_next_one() -> None:
    async def talk_too_much(server: Server, visit: Visit) -> None:
        while asked := await visit.request():
            server.asked.append(asked)
            await visit.say(answer(b"mine") + answer(b"a stranger's"))

    async with serving(talk_too_much) as server:
        client = HttpClient(server.url)

        bodies = [(await client.request("GET", "/")).body for _ in range(2)]

        assert (bodies, server.visits) == ([b"mine", b"mine"], 2)
        await client.close()


async def test_a_stream_is_read_as_it_comes() -> None:
    may_go_on = asyncio.Event()

    async def stream(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for text in (b"one", b"two"):
            await visit.say(b"3\r\n" + text + b"\r\n")
            await may_go_on.wait()
        await visit.say(b"0\r\n\r\n")
        server.asked.append(await visit.request())

    async with serving(stream) as server:
        client, came = HttpClient(server.url), []
        async with client.stream("GET", "/events", {"accept": "text/event-stream"}) as response:
            assert (response.status, response.header("content-type")) == (200, "text/event-stream")
            async for chunk in response.chunks():
                came.append(chunk)
                may_go_on.set()
        assert came == [b"one", b"two"]

        with pytest.raises(ServerUnreachable):  # the same connection was kept, and this server stops here
            await client.request("POST", "/next")
        assert (server.visits, server.asked[0].split()[1]) == (1, b"/next")
        await client.close()


async def test_a_stream_that_is_left_early_ends_its_connection_and_gives_its_place_back() -> None:
    left = asyncio.Event()

    async def for_ever(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await visit.gone()
        left.set()

    async with serving(for_ever) as server:
        client = HttpClient(server.url, most_connections=1)
        for _ in range(2):
            async with client.stream("GET", "/") as response:
                async for _chunk in response.chunks():
                    break
        await left.wait()

        assert server.visits == 2
        await client.close()


async def test_closing_ends_what_is_under_way() -> None:
    begun = asyncio.Event()

    async def hang(server: Server, visit: Visit) -> None:
        await visit.request()
        begun.set()
        await visit.gone()

    async with serving(hang) as server:
        client = HttpClient(server.url)
        asking = asyncio.create_task(client.request("GET", "/", timeout=None))
        await begun.wait()

        await client.close()

        with pytest.raises(ServerUnreachable):
            await asking
        with pytest.raises(ServerUnreachable, match="closed"):
            await client.request("GET", "/")


@pytest.mark.parametrize(
    ("url", "authority", "prefix"),
    [
        ("http://ade.example.org", "ade.example.org", ""),
        ("https://ade.example.org:443/", "ade.example.org", ""),
        ("https://ade.example.org:8443/team/ade", "ade.example.org:8443", "/team/ade"),
        ("http://[::1]:8000", "[::1]:8000", ""),
    ],
)
def test_an_address_of_a_server_is_taken_apart(url: str, authority: str, prefix: str) -> None:
    origin = origin_of(url)

    assert (origin.authority, origin.prefix) == (authority, prefix)


@pytest.mark.parametrize(
    "url",
    [
        *("", "ade.example.org", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://x/?q", "http://x/#f"),
        *("http://user:pass@x", "http://x/a b", "http://x\r\ny", "http://\u00e4", "http://[::1"),
    ],
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        origin_of(url)

    assert "pass" not in refused.value.detail


async def test_a_header_with_a_line_break_is_refused_and_nothing_is_sent(server: Server) -> None:
    client = HttpClient(server.url)

    with pytest.raises(ValueError, match="not a valid HTTP request"):
        await client.request("GET", "/", {"authorization": "Bearer x\r\nevil: 1"})
    with pytest.raises(ValueError, match="not a valid HTTP request"):
        await client.request("GET", "/ HTTP/1.1\r\nx: ")

    assert server.asked == []
    await client.close()


async def test_a_proxy_of_the_environment_is_not_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    client = HttpClient(server.url)

    assert (await client.request("GET", "/")).status == 200
    await client.close()


def test_it_loads_little() -> None:
    """Commands that speak with a server load it, and are to start at once."""
    program = (
        "import sys, asyncio, ade.errors, ade.common.text; before = set(sys.modules); import ade.common.http.pool;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()

    assert set(loaded) <= {"ade", "copy", "dataclasses", "h11", "ipaddress", "urllib"}
