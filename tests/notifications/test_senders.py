"""Real receivers on loopback: an SMTP server, with and without TLS and passwords, and HTTP servers."""

import json
import ssl
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from ade.settings import SettingsError, load
from ade.testing import TestClock
from tests.common.http.servers import Server, Visit, answer, serving
from tests.domain import DeliveryResponse, NetworkPolicy, networks_of
from tests.notifications.domain import (
    PUBLIC,
    Channel,
    ChannelKind,
    HttpSender,
    NetworkSender,
    Notification,
    NotificationKind,
    Preferences,
    SmtpSettings,
    compose,
    delivery_to,
    mail_of,
    send_mail,
    verify,
)
from tests.notifications.mail_server import PASSWORD, Mailbox, mail_server
from tests.servers.certificates import MISSING_OPENSSL, make_certificate, openssl

LOOPBACK = NetworkPolicy(allow_http=True, allowed=networks_of(["127.0.0.0/8"]))
ITEM = Notification(kind=NotificationKind.REVIEW, at=1_768_000_000_000, seq=1, name="päy <b>", author="ada")
needs_openssl = pytest.mark.skipif(openssl() is None, reason=MISSING_OPENSSL)


def settings(port: int, **fields: Any) -> SmtpSettings:
    known: dict[str, Any] = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "ade@example.org"}
    return SmtpSettings(**(known | fields))


async def mailed(smtp: SmtpSettings) -> DeliveryResponse:
    where = Channel(id="ch_1", kind=ChannelKind.EMAIL, target="rita@example.org")
    message = compose([ITEM], Preferences(account="rita"))
    delivery = delivery_to("rita", where, [ITEM], more=0, now=1_768_000_000_000)
    return await send_mail(smtp, mail_of(where, message, delivery, smtp))


async def test_a_mail_arrives_as_text_and_html() -> None:
    box = Mailbox()
    async with mail_server(box) as port:
        response = await mailed(settings(port))

    assert (response.status, response.error) == (250, "")
    [envelope] = box.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == ("ade@example.org", ["rita@example.org"])
    assert isinstance(envelope.content, bytes)
    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["subject"] == "[ADE] Approval needed: päy <b>"
    text, page = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert page is not None
    assert "Requested by: ada" in text.get_content()
    assert "päy &lt;b&gt;" in page.get_content()


async def test_a_rejected_recipient_is_a_response_with_the_servers_reason() -> None:
    async with mail_server(Mailbox("550 no such user")) as port:
        response = await mailed(settings(port))

    assert (response.status, response.is_good, response.excerpt) == (550, False, b"no such user")


async def test_no_server_and_no_settings_are_responses_too() -> None:
    async with mail_server(Mailbox()) as port:
        pass
    assert "127.0.0.1" in (await mailed(settings(port, timeout_s=1.0))).error
    assert "set smtp.host" in (await mailed(SmtpSettings(sender="ade@example.org"))).error


@needs_openssl
@pytest.mark.parametrize("tls", ["starttls", "ssl"])
async def test_a_password_goes_over_tls_and_comes_from_its_file(tmp_path: Path, tls: str) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    box = Mailbox()
    options: dict[str, Any] = {"authenticator": box.check}
    options |= (
        {"tls": context, "auth_require_tls": False} if tls == "ssl" else {"tls_context": context, "auth_required": True}
    )
    async with mail_server(box, **options) as port:
        smtp = settings(
            port, tls=tls, host="localhost", user="ade", password_file=str(secret), ca_file=str(certificate.file)
        )
        response = await mailed(smtp)
        assert (response.status, response.error) == (250, "")
        secret.write_text("wrong")
        refused = await mailed(smtp)
        assert refused.status == 535
        assert "wrong" not in f"{refused}"
        stranger = await mailed(settings(port, tls=tls, host="localhost"))
        assert "certificate" in stranger.error.lower(), "a certificate of an unknown authority was accepted"

    assert (box.users, len(box.mails)) == (["ade"], 1)


async def test_a_server_without_starttls_gets_no_mail() -> None:
    box = Mailbox()
    async with mail_server(box) as port:
        response = await mailed(settings(port, tls="starttls"))

    assert (response.is_good, box.mails) == (False, [])
    assert "STARTTLS" in response.error


@pytest.mark.parametrize(
    "flags",
    [
        {"smtp.host": "mail.example.org"},
        {"smtp.host": "smtp://mail", "smtp.sender": "a@example.org"},
        {"smtp.host": "m", "smtp.sender": "A <a@example.org>"},
        {"smtp.host": "mail.example.org", "smtp.sender": "a@example.org", "smtp.user": "u", "smtp.tls": "none"},
        {"notifications.public_url": "javascript:alert(1)"},
        {"notifications.public_url": "https://example.org/?next=x"},
    ],
)
def test_settings_that_would_leak_or_fail_are_rejected(flags: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        load(flags=flags, files=[])


async def accept(server: Server, visit: Visit) -> None:
    server.asked.append(await visit.request())
    await visit.say(answer(b"ok"))


async def posted(kind: ChannelKind, secret: str | None = None) -> tuple[bytes, dict[str, str], Any, DeliveryResponse]:
    """Send to a real HTTP server. Returns the request line, the headers, the body, and the response."""
    clock = TestClock()
    async with serving(accept) as server:
        where = Channel(id="ch_1", kind=kind, target=f"{server.url}/base/topic", secret=secret)
        message = compose([ITEM], Preferences(account="rita"))
        delivery = delivery_to("rita", where, [ITEM], more=0, now=clock.now())
        sender = NetworkSender(HttpSender(), SmtpSettings(), LOOPBACK, clock.now)
        response = await sender.send(where, message, delivery)
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return first.encode(), headers, json.loads(body), response


@pytest.mark.parametrize("kind", [ChannelKind.SLACK, ChannelKind.TEAMS, ChannelKind.DISCORD])
async def test_chat_services_are_sent_one_post_to_their_url(kind: ChannelKind) -> None:
    line, headers, body, response = await posted(kind)

    assert (line, headers["content-type"]) == (b"POST /base/topic HTTP/1.1", "application/json")
    assert "authorization" not in headers
    assert "p\u00e4y" in json.dumps(body, ensure_ascii=False)
    assert response.is_good


async def test_ntfy_is_published_as_json_with_its_token() -> None:
    line, headers, body, _ = await posted(ChannelKind.NTFY, secret="tk_abc")

    assert (line, headers["authorization"]) == (b"POST /base/ HTTP/1.1", "Bearer tk_abc")
    assert (body["topic"], body["title"]) == ("topic", "Approval needed: päy <b>")


async def test_a_program_can_verify_the_signature() -> None:
    secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    clock = TestClock()
    async with serving(accept) as server:
        where = Channel(id="ch_1", kind=ChannelKind.WEBHOOK, target=f"{server.url}/in", secret=secret)
        delivery = delivery_to("rita", where, [ITEM], more=0, now=clock.now())
        sender = NetworkSender(HttpSender(), SmtpSettings(), LOOPBACK, clock.now)
        await sender.send(where, compose([ITEM], Preferences(account="rita")), delivery)
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert verify(headers, body, [secret], now_s=clock.now() // 1000) == delivery.id


async def test_no_channel_reaches_this_machine_or_its_networks() -> None:
    async with serving(accept) as server:
        where = Channel(id="ch_1", kind=ChannelKind.SLACK, target=f"{server.url}/x")
        delivery = delivery_to("rita", where, [ITEM], more=0, now=0)
        sender = NetworkSender(HttpSender(), SmtpSettings(), PUBLIC, TestClock().now)
        response = await sender.send(where, compose([ITEM], Preferences(account="rita")), delivery)

        assert (response.status, server.asked) == (None, [])
        assert response.error
