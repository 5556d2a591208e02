"""Webhooks: where they may go, and by what their messages are known; and lines that anchor the audit copy."""

import socket
from base64 import b64encode
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from ade.errors import AddressRefused, AuditBroken, InvalidSignature, InvalidWebhook
from ade.events.audit_anchors import read_anchor, signed_anchor
from ade.events.audit_chain import AuditHead
from ade.webhooks.destinations import check_address, check_url, networks_of, origin_of, secrets_in_url
from ade.webhooks.model import check_known, check_patterns, matches
from ade.webhooks.signatures import SECRET_PREFIX, key_of, signed_headers, verify
from tests.fuzz.table import header_of, headers_of, let, parts_of, passes, target, text_of

SECRET = SECRET_PREFIX + b64encode(b"k" * 32).decode()
SENT = signed_headers("msg_1", 1_790_000_000, b"{}", [SECRET])


@target(
    "webhooks.destinations",
    seeds=[
        "https://example.org/hook?a=b",
        "https://[2606:4700::1111]:8443/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://2130706433",
        "https://[::ffff:169.254.169.254]/latest",
        "https://a.localhost./",
        "http://user@host/",
    ],
    words=[
        "https://",
        "[",
        "]",
        "::",
        "127.0.0.1",
        "0x7f",
        "localhost",
        ".",
        ":443",
        "@",
        "%",
        "xn--",
        "169.254.169.254",
    ],
)
def webhook_urls(data: bytes) -> None:
    """No other reading of a URL that is taken leads to a place that is not for webhooks."""
    url = text_of(data)
    found = let(lambda: check_url(url), InvalidWebhook)
    if found is None:
        return
    assert found.scheme == "https"
    assert found.path.startswith("/")
    assert 0 < found.port < 65_536
    other = urlsplit(url)
    assert (other.hostname or "").removesuffix(".") == found.host or ip_address(other.hostname or "") == ip_address(
        found.host
    )
    assert (other.port or 443) == found.port
    _check_host(found.host)
    assert check_url(f"{found.origin}{found.path}") == found
    assert not set(origin_of(url).partition("://")[2]) & set("/?&=;")
    assert url in secrets_in_url(url)


def _check_host(host: str) -> None:
    """What the system's own readers of addresses make of it is reachable by anybody."""
    for read in (lambda: ip_address(host), lambda: ip_address(socket.inet_aton(host))):
        address = let(read, ValueError, OSError)
        assert address is None or (address.is_global and not address.is_multicast), host


@target(
    "webhooks.destinations",
    seeds=[
        "93.184.216.34\n10.0.0.0/8",
        "::ffff:127.0.0.1\n::/0",
        "64:ff9b::7f00:1\n",
        "fe80::1%eth0\n",
        "2002:7f00:1::\n",
    ],
    words=["::ffff:", "64:ff9b::", "2002:", "127.0.0.1", "10.0.0.0/8", "::1", "%"],
)
def webhook_addresses(data: bytes) -> None:
    first, second = map(text_of, parts_of(data, 2))
    address = let(lambda: check_address(first), AddressRefused)
    assert address is None or (address.is_global and not address.is_multicast)
    let(lambda: networks_of([second]), InvalidWebhook)


@target(
    "webhooks.signatures",
    seeds=["\n".join(f"{name}: {value}" for name, value in SENT.items()), f"webhook-id: a\n{SECRET}", SECRET],
    words=["webhook-id: ", "webhook-timestamp: ", "webhook-signature: ", "v1,", "v1a,", " ", "=", SECRET_PREFIX],
)
def webhook_signatures(data: bytes) -> None:
    """Nobody without the secret makes a message that is believed; whoever has it does."""
    headers = dict(headers_of(data))
    message_id = let(lambda: verify(headers, b"{}", [SECRET], now_s=1_790_000_000), InvalidSignature)
    assert message_id in (None, "msg_1")
    assert let(lambda: verify(headers, b"{ }", [SECRET], now_s=1_790_000_000), InvalidSignature) is None
    let(lambda: key_of(text_of(data)), InvalidWebhook)
    name = header_of(data)[:60]
    made = let(lambda: signed_headers(name, 5, data, [SECRET]), ValueError)
    assert made is None or verify(made, data, [SECRET], now_s=5) == name


@target(
    "webhooks.model",
    seeds=["task.failed\ntask.*", "*", "task.*\nlock.granted", "nothing.at_all"],
    words=["*", ".*", ".", "task", "failed", "_"],
)
def webhook_patterns(data: bytes) -> None:
    wanted = text_of(data).split("\n")
    if passes(lambda: check_patterns(wanted), InvalidWebhook):
        let(lambda: check_known(wanted), InvalidWebhook)
        matches(wanted, "task.failed")


ANCHOR_KEY = b"k" * 32
ANCHOR = signed_anchor(AuditHead(seq=7, hash="0" * 64), ANCHOR_KEY, at=1)


@target(
    "events.audit_anchors",
    seeds=[msgspec.json.encode(ANCHOR).decode(), '{"at":1,"seq":7,"hash":"","signature":"\u00e4"}'],
    words=['"signature":"', '"seq":', "\\ud800", "\u00e4", "{", "}", "1e999"],
)
def audit_anchors(data: bytes) -> None:
    """Only a line with the signature of the key is taken."""
    found = let(lambda: read_anchor(data, "line 1", ANCHOR_KEY), AuditBroken)
    assert found is None or found == ANCHOR
