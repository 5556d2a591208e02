"""Messages leave the house: to the address that was checked, at most so long and so much, and signed for the world.

The server is real, on loopback, which the stories allow. Only the answers of the name service are made up.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as Receiver
from standardwebhooks.webhooks import WebhookVerificationError

from ade.webhooks.deliveries import READ_BYTES, DeliveryResponse, DeliveryStep, DeliveryTaskArguments
from ade.webhooks.destinations import PUBLIC, REFUSED, NetworkPolicy, WebhookUrl, check_url, networks_of
from ade.webhooks.dispatch import WebhookMessage, WebhookSender, deliver
from ade.webhooks.sender import HEAD_BYTES, DnsResolver, HttpSender
from ade.webhooks.service import create, rotate
from tests.common.http.servers import Server, Visit, answer, serving
from tests.domain import open_stores
from tests.servers.certificates import MISSING_OPENSSL, make_certificate, openssl

HOME = NetworkPolicy(allow_http=True, allowed=networks_of(["127.0.0.0/8"]))
NAME = "hooks.example.invalid"  # no name service knows it: who resolves once more finds nothing
SOON = 1.5
Behaviour = Callable[[Server, Visit], Awaitable[None]]


class Names:
    """A name service whose answer is another one each time it is asked; the last one again and again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def saying(*parts: bytes, then_wait: bool = False) -> Behaviour:
    async def behave(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        for part in parts:
            await visit.say(part)
        if then_wait:
            await visit.gone()

    return behave


def message(port: int, host: str = NAME, path: str = "/hook?key=s3cret", scheme: str = "http") -> WebhookMessage:
    target = WebhookUrl(scheme=scheme, host=host, port=port, path=path)
    return WebhookMessage(
        target=target, headers={"content-type": "application/json", "webhook-id": "msg_1"}, body=b"{}"
    )


def sender(*answers: Sequence[str], total_s: float = 20.0, connect_s: float = 10.0) -> HttpSender:
    return HttpSender(resolve=Names(*(answers or (["127.0.0.1"],))), total_s=total_s, connect_s=connect_s)


async def sent(behave: Behaviour, **options: float) -> DeliveryResponse:
    async with serving(behave) as server:
        return await sender(**options).send(message(server.port), HOME)


async def test_a_message_is_one_post_to_the_path_as_it_is() -> None:
    async with serving(saying(answer(b"thanks", status="202 Accepted"))) as server:
        answered = await sender().send(message(server.port), HOME)

        assert (answered.status, answered.excerpt, answered.error) == (202, b"thanks", "")
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        assert (head.split(b"\r\n"), body) == (
            [
                b"POST /hook?key=s3cret HTTP/1.1",
                f"host: {NAME}:{server.port}".encode(),
                b"content-type: application/json",
                b"webhook-id: msg_1",
                b"connection: close",
                b"content-length: 2",
            ],
            b"{}",
        )


async def test_an_address_is_used_as_it_is_and_nothing_is_resolved() -> None:
    names = Names([])
    async with serving(saying(answer())) as server:
        answered = await HttpSender(resolve=names).send(message(server.port, host="127.0.0.1"), HOME)

    assert (answered.status, names.asked) == (200, [])


# -- where it must never go


SPECIAL = [str(network[1] if network.num_addresses > 1 else network[0]) for network, _ in REFUSED]
SPECIAL += ["::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "fe80::1%lo", "4000::1", ""]


@pytest.mark.parametrize("address", SPECIAL)
async def test_a_name_that_leads_to_a_special_address_is_refused(address: str) -> None:
    answered = await sender([address]).send(message(443, scheme="https"), PUBLIC)

    assert answered.status is None
    assert "no webhook may reach" in answered.error or "not a network address" in answered.error


@pytest.mark.parametrize("disguise", ["::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::"])
async def test_an_allowed_network_is_not_allowed_in_disguise(disguise: str) -> None:
    async with serving(saying(answer())) as server:
        answered = await sender([disguise]).send(message(server.port), HOME)

        assert ("in disguise" in answered.error, server.visits) == (True, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "169.254.169.254", "10.0.0.1"])
async def test_a_target_that_is_such_an_address_is_refused_too(host: str) -> None:
    """Whoever makes the target has checked it; the sender does not count on that."""
    async with serving(saying(answer())) as server:
        answered = await sender().send(message(server.port, host=host), PUBLIC)

        assert ("no webhook may reach" in answered.error, server.visits) == (True, 0)


async def test_an_answer_that_changes_between_the_check_and_the_connection_cannot_matter() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with serving(saying(answer())) as server:
        answered = await HttpSender(resolve=names).send(message(server.port), HOME)

    assert (answered.status, names.asked) == (200, [NAME])


async def test_a_name_that_turns_bad_later_is_refused_then() -> None:
    """What it led to before is not remembered."""
    rebinding = sender(["127.0.0.1"], ["10.0.0.1"])
    async with serving(saying(answer())) as server:
        first, second = [await rebinding.send(message(server.port), HOME) for _ in range(2)]

        assert (first.status, second.status, server.visits) == (200, None, 1)
    assert "private" in second.error


async def test_of_several_addresses_only_those_that_may_be_reached_are_tried() -> None:
    async with serving(saying(answer())) as server:
        answered = await sender(["10.0.0.1", "169.254.169.254", "127.0.0.1"]).send(message(server.port), HOME)

        assert (answered.status, server.visits) == (200, 1)


async def test_the_next_address_is_tried_when_nobody_listens_at_the_first() -> None:
    async with serving(saying(answer())) as server:
        answered = await sender(["127.0.0.9", "127.0.0.1"]).send(message(server.port), HOME)

        assert answered.status == 200


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with serving(saying(answer())) as inside:
        moved = answer(b"", status="307 Temporary Redirect", headers=f"location: {inside.url}/\r\n")
        answered = await sent(saying(moved))

        assert (answered.status, inside.visits) == (307, 0)


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert (await sent(saying(answer()))).status == 200


@pytest.mark.parametrize("url", ["http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://017700000001/"])
async def test_numbers_that_only_some_programs_read_as_addresses_lead_nowhere(url: str) -> None:
    """The rules refuse such a URL. Should one come here all the same, it is a name, and the name's answer is judged."""
    host = url.removeprefix("http://").rstrip("/")
    answered = await HttpSender(resolve=DnsResolver()).send(message(80, host=host), PUBLIC)

    assert answered.status is None


# -- what the other side may do


async def test_a_target_that_says_nothing_is_waited_for_so_long() -> None:
    answered = await sent(saying(then_wait=True), total_s=SOON)

    assert (answered.status, answered.error) == (None, f"it took longer than {SOON} seconds")
    assert answered.duration_ms >= SOON * 1000


async def test_an_answer_that_never_ends_counts_by_its_status_and_only_its_beginning_is_read() -> None:
    left = asyncio.Event()

    async def for_ever(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                await visit.say(b"x" * 10_000)
        finally:
            left.set()

    answered = await sent(for_ever)
    await left.wait()

    assert (answered.status, answered.excerpt, answered.error) == (200, b"x" * READ_BYTES, "")


@pytest.mark.parametrize(
    "body", [b"", b"content-length: 9\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
)
async def test_a_status_counts_even_if_the_rest_is_cut_off(body: bytes) -> None:
    answered = await sent(saying(b"HTTP/1.1 200 OK\r\n" + (body or b"\r\n")))

    assert (answered.status, answered.excerpt) == (200, b"half" if body else b"")


async def test_a_body_that_trickles_does_not_take_longer_than_all_may_take() -> None:
    answered = await sent(saying(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\nwait", then_wait=True), total_s=SOON)

    assert (answered.status, answered.retry_after, answered.excerpt) == (503, "7", b"wait")


async def test_what_is_packed_is_not_unpacked() -> None:
    bomb = b"\x1f\x8b" + b"\x00" * 100

    answered = await sent(saying(answer(bomb, headers="content-encoding: gzip\r\n")))

    assert answered.excerpt == bomb


async def test_headers_without_end_are_not_read_to_their_end() -> None:
    answered = await sent(saying(b"HTTP/1.1 200 OK\r\n", *[b"x: " + b"y" * 996 + b"\r\n"] * (HEAD_BYTES // 1000 + 1)))

    assert (answered.status, "bytes of headers" in answered.error) == (None, True)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"\x16\x03\x01", b"220 mail.example.org\r\n\r\n"])
async def test_what_is_no_answer_is_told_without_the_secret_path(said: bytes) -> None:
    answered = await sent(saying(said) if said else saying())

    assert answered.status is None
    assert NAME in answered.error
    assert "s3cret" not in answered.error


async def test_a_name_without_an_address_and_one_where_nobody_listens() -> None:
    nowhere = await HttpSender(resolve=DnsResolver()).send(message(443), PUBLIC)
    nobody = await sender(["127.0.0.1"]).send(message(1), HOME)

    assert (nowhere.status, "has no address" in nowhere.error) == (None, True)
    assert (nobody.status, "no connection to" in nobody.error) == (None, True)


async def test_a_name_service_that_does_not_answer_costs_no_more_than_a_connection_may() -> None:
    async def silent(name: str) -> Sequence[str]:
        return await asyncio.Future[Sequence[str]]()

    answered = await HttpSender(resolve=silent, connect_s=SOON).send(message(443), HOME)

    assert answered.error == f"no connection to {NAME}:443 within {SOON} seconds"


async def test_one_bad_target_does_not_hold_up_another() -> None:
    async with serving(saying(then_wait=True)) as bad, serving(saying(answer())) as good:
        one = sender(total_s=60)
        stuck = [asyncio.create_task(one.send(message(bad.port), HOME)) for _ in range(50)]

        assert (await asyncio.wait_for(one.send(message(good.port), HOME), 60)).status == 200

        for task in stuck:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*stuck, return_exceptions=True)
        )


# -- TLS


async def test_tls_names_and_checks_the_host_and_not_the_address(tmp_path: Path) -> None:
    if openssl() is None:
        pytest.skip(MISSING_OPENSSL)
    made, asked = make_certificate(tmp_path), []
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(made.file, made.key)
    ours.sni_callback = lambda _connection, name, _context: asked.append(name)
    trusting = HttpSender(resolve=Names(["127.0.0.1"]), tls=ssl.create_default_context(cafile=str(made.file)))
    async with serving(saying(answer()), tls=ours) as server:
        good = await trusting.send(message(server.port, host="localhost", scheme="https"), HOME)
        other = await trusting.send(message(server.port, host=NAME, scheme="https"), HOME)
        stranger = await sender(["127.0.0.1"]).send(message(server.port, host="localhost", scheme="https"), HOME)

        assert (good.status, other.status, stranger.status, len(server.asked)) == (200, None, None, 1)
    assert asked == ["localhost", NAME, "localhost"]
    for refused in (other, stranger):
        assert "its certificate is not accepted" in refused.error


# -- and what the receiver sees


async def test_an_independent_reader_believes_what_was_sent_and_nothing_else() -> None:
    stores = await open_stores("memory://")
    async with serving(saying(answer())) as server:
        webhook = await create(stores, f"http://127.0.0.1:{server.port}/in", ["*"], actor="root", reach=HOME)
        webhook = await rotate(stores, webhook.id, actor="root")  # the old one signs too
        one: WebhookSender = sender()
        seq = await stores.events.last_seq()

        judgement = await deliver(
            stores, one, DeliveryTaskArguments(webhook_id=webhook.id, seq=seq), attempt=1, randomness=0.5, reach=HOME
        )

        assert judgement.step is DeliveryStep.DELIVERED
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    for secret in webhook.secrets:
        assert Receiver(secret.value).verify(body, headers)["type"] == json.loads(body)["type"]
    for forged in (body + b" ", body.replace(b"webhook", b"w3bhook")):
        with pytest.raises(WebhookVerificationError):
            Receiver(webhook.secrets[0].value).verify(forged, headers)
    old = {**headers, "webhook-timestamp": str(int(time.time()) - 600)}
    with pytest.raises(WebhookVerificationError):
        Receiver(webhook.secrets[0].value).verify(body, old)
    await stores.close()


def test_what_the_rules_allow_is_what_is_sent_to() -> None:
    target = check_url("https://Hooks.Example.org./in?x", PUBLIC)

    assert (target.host, target.authority) == ("hooks.example.org", "hooks.example.org")
