"""Servers that are slow, rude, broken or hostile: an error with a sentence, within its time, and nothing left over."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.common.http.connection import ClientRequest, HttpConnection, connect_to
from ade.errors import ServerUnreachable
from tests.common.http.servers import Server, Visit, answer, behave_well, serving
from tests.domain import HttpClient
from tests.servers.certificates import MISSING_OPENSSL, make_certificate, openssl
from tests.servers.ports import ReservedPort

SOON = 1.5  # what a story waits for that never comes
Behaviour = Callable[[Server, Visit], Awaitable[None]]


def saying(*parts: bytes, then: str = "end") -> Behaviour:
    """A server that reads a request, says this, and hangs up so, or waits until the client has."""

    async def behave(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        for part in parts:
            await visit.say(part)
        if then == "wait":
            await visit.gone()
        elif then == "drop":
            visit.drop()

    return behave


async def refused(behave: Behaviour, *, timeout: float = 60.0, most_bytes: int = 1_000_000) -> ServerUnreachable:
    async with serving(behave) as server:
        client = HttpClient(server.url)
        with pytest.raises(ServerUnreachable) as told:
            await client.request("GET", "/", timeout=timeout, most_bytes=most_bytes)
        await client.close()
        assert server.visits == 1
        return told.value


HEAD = b"HTTP/1.1 200 OK\r\n"
BAD = {
    "hangs up at once": ([], "closed the connection before it answered"),
    "hangs up in the head": ([HEAD], "did not send valid HTTP"),
    "cuts a body of known length": ([HEAD + b"content-length: 10\r\n\r\nhalf"], "did not send valid HTTP"),
    "cuts a chunked body": (
        [HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"],
        "did not send valid HTTP",
    ),
    "sends chunks that are none": (
        [HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n"],
        "did not send valid HTTP",
    ),
    "speaks something else": ([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"], "did not send valid HTTP"),
    "names two lengths": (
        [HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxy"],
        "did not send valid HTTP",
    ),
    "sends headers without end": ([HEAD, *[b"x-more: " + b"y" * 1000 + b"\r\n"] * 40], "32,000 bytes of headers"),
    "sends one header without end": ([HEAD + b"x: " + b"y" * 100_000], "32,000 bytes of headers"),
    "sends first answers without end": ([b"HTTP/1.1 103 Early Hints\r\n\r\n"] * 2_000, "32,000 bytes of headers"),
    "switches protocols": ([b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], "did not send valid HTTP"),
    "sends too much": ([HEAD + b"content-length: 2000000\r\n\r\n", b"x" * 2_000_000], "more than 1,000,000 bytes"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_server_that(case: str) -> None:
    parts, sentence = BAD[case]

    error = await refused(saying(*parts))

    assert sentence in error.detail
    assert "127.0.0.1:" in error.detail
    assert error.was_sent


async def test_a_body_that_ends_with_a_reset_connection_is_not_whole() -> None:
    error = await refused(saying(HEAD + b"\r\nuntil the end", then="drop"))

    assert "broke" in error.detail


async def test_a_body_that_ends_with_the_connection_is_whole() -> None:
    async with serving(saying(HEAD + b"\r\nuntil ", b"the end")) as server:
        client = HttpClient(server.url)

        assert (await client.request("GET", "/")).body == b"until the end"
        await client.close()


async def test_early_answers_are_skipped_and_an_answer_without_body_has_none() -> None:
    async with serving(saying(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")) as server:
        client = HttpClient(server.url)

        response = await client.request("GET", "/")

        assert (response.status, response.body) == (204, b"")
        await client.close()


async def test_no_redirect_is_followed_and_nothing_is_unpacked() -> None:
    moved = answer(
        b"\x1f\x8b", status="302 Found", headers="location: http://127.0.0.1:9/\r\ncontent-encoding: gzip\r\n"
    )
    async with serving(saying(moved)) as server:
        client = HttpClient(server.url)

        response = await client.request("GET", "/")

        assert (response.status, response.body, len(server.asked)) == (302, b"\x1f\x8b", 1)
        await client.close()


@pytest.mark.parametrize("said", [[], [HEAD], [HEAD + b"content-length: 5\r\n\r\n", b"hel"]])
async def test_a_server_that_falls_silent_is_waited_for_no_longer_than_asked(said: list[bytes]) -> None:
    error = await refused(saying(*said, then="wait"), timeout=SOON)

    assert (f"did not answer within {SOON} seconds" in error.detail, error.was_sent) == (True, True)


async def test_a_stream_that_falls_silent_ends() -> None:
    async with serving(saying(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n", then="wait")) as server:
        client = HttpClient(server.url)
        async with client.stream("GET", "/", silence=SOON) as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"x"
            with pytest.raises(ServerUnreachable, match="has sent nothing for"):
                await anext(chunks)

        await client.close()


async def test_an_answer_that_comes_before_a_large_body_was_taken_is_read() -> None:
    async def refuse_unread(server: Server, visit: Visit) -> None:
        await visit.say(answer(b"too large", status="413 Content Too Large", headers="connection: close\r\n"))
        await visit.gone()

    async with serving(refuse_unread) as server:
        client = HttpClient(server.url)

        response = await client.request("POST", "/", body=b"x" * 8_000_000)

        assert (response.status, response.body) == (413, b"too large")
        await client.close()


async def test_where_nobody_listens_nothing_was_sent() -> None:
    port = ReservedPort()
    client = HttpClient(f"http://127.0.0.1:{port.number}")

    with pytest.raises(ServerUnreachable, match="no connection to 127") as told:
        await client.request("POST", "/")

    assert not told.value.was_sent
    await client.close()
    port.release()


async def test_a_name_that_does_not_exist_is_told_as_such() -> None:
    client = HttpClient("http://nobody.invalid")

    with pytest.raises(ServerUnreachable, match="its name has no address"):
        await client.request("GET", "/")
    await client.close()


async def test_the_peer_is_judged_before_a_byte_is_sent() -> None:
    judged = []

    def refuse(peer: str) -> None:
        judged.append(peer)
        raise PermissionError("not that one")

    async with serving(behave_well) as server:
        with pytest.raises(PermissionError):
            await connect_to(ip_address("127.0.0.1"), server.port, server_name="example.org", check_peer=refuse)

        assert (judged, server.asked) == (["127.0.0.1"], [])


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server with a certificate for localhost and 127.0.0.1, and of a client that trusts it."""
    if openssl() is None:
        pytest.skip(MISSING_OPENSSL)
    made = make_certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.file, made.key)
    return server, ssl.create_default_context(cafile=str(made.file))


async def test_tls_to_a_name_and_to_a_checked_address(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = contexts
    async with serving(behave_well, tls=ours) as server:
        client = HttpClient(f"https://localhost:{server.port}", tls=theirs)
        assert (await client.request("GET", "/")).body == b"answer 1"
        await client.close()

        connection = await connect_to(ip_address("127.0.0.1"), server.port, server_name="localhost", tls=theirs)
        http = HttpConnection(connection, "localhost")
        http.send(ClientRequest(method="GET", target="/"))
        assert ((await http.head()).status, await http.body(100), connection.peer) == (200, b"answer 2", "127.0.0.1")
        await connection.close()


async def test_a_certificate_for_another_name_or_of_a_stranger_is_refused(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ours, theirs = contexts
    async with serving(behave_well, tls=ours) as server:
        with pytest.raises(ServerUnreachable, match="its certificate is not accepted") as told:
            await connect_to(ip_address("127.0.0.1"), server.port, server_name="example.org", tls=theirs)
        assert not told.value.was_sent

        client = HttpClient(f"https://localhost:{server.port}")
        with pytest.raises(ServerUnreachable, match="its certificate is not accepted"):
            await client.request("GET", "/")
        await client.close()
        assert server.asked == []


async def test_a_server_without_tls_is_told_as_such(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def greet(server: Server, visit: Visit) -> None:
        await visit.say(b"220 mail.example.org at your service\r\n")
        await visit.gone()

    async with serving(greet) as server:
        client = HttpClient(f"https://localhost:{server.port}", tls=contexts[1])

        with pytest.raises(ServerUnreachable, match="TLS failed"):
            await client.request("GET", "/")
        await client.close()


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=6))
def test_whatever_a_server_says_is_an_answer_or_one_kind_of_error(parts: list[bytes]) -> None:
    async def story() -> None:
        async with serving(saying(*parts)) as server:
            client = HttpClient(server.url)
            try:
                await client.request("GET", "/", timeout=60)
            except ServerUnreachable as error:
                assert error.detail.isprintable()  # noqa: PT017 - either way is right
            await client.close()

    asyncio.run(story())
