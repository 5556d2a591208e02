"""Whose page asks, and from where."""

import pytest

from ade.server.addresses import (
    LOOPBACK_HOSTS,
    check_host,
    check_same_origin_read,
    check_same_origin_write,
    client_address,
    client_scheme,
    is_loopback,
    origin_of,
    read_networks,
)
from tests.server.refusals import refused

OWN = {"https://ade.example"}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8000", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:80", "[::1]"),
        ("LocalHost.", "localhost"),
        ("a.ade.example", "a.ade.example"),
    ],
)
def test_a_server_answers_for_its_own_names(host: str, name: str) -> None:
    assert check_host(host, {*LOOPBACK_HOSTS, "*.ade.example"}) == name


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),  # made to lead to 127.0.0.1
        ("localhost.evil.example", 421),
        ("ade.example", 421),
        ("xade.example", 421),
        ("127.0.0.2", 421),
        (None, 400),
        ("", 400),
        ("a b", 400),
        ("localhost, evil.example", 400),
        ("localhost@evil.example", 400),
        ("localhost:x", 400),
        ("http://localhost", 400),
    ],
)
def test_and_for_no_others(host: str | None, status: int) -> None:
    assert refused(lambda: check_host(host, {*LOOPBACK_HOSTS, "*.ade.example"})) == status


@pytest.mark.parametrize(
    ("origin", "site", "may_write", "may_read"),
    [
        ("https://ade.example", "same-origin", True, True),
        ("HTTPS://ADE.example", None, True, True),
        (None, "same-origin", False, True),  # browsers do not say it for reads
        (None, "none", False, True),
        (None, None, False, True),
        (None, "cross-site", False, False),
        ("https://ade.example", "cross-site", False, False),
        ("https://ade.example", "same-site", False, False),
        ("https://evil.example", "same-origin", False, False),
        ("https://evil.example", None, False, False),
        ("http://ade.example", None, False, False),
        ("https://ade.example:444", None, False, False),
        ("https://ade.example.evil.example", None, False, False),
        ("null", None, False, False),
        ("", None, False, False),
    ],
)
def test_a_session_is_used_by_our_own_pages_alone(
    origin: str | None, site: str | None, may_write: bool, may_read: bool
) -> None:
    write = refused(lambda: check_same_origin_write(OWN, origin=origin, fetch_site=site))
    read = refused(lambda: check_same_origin_read(OWN, origin=origin, fetch_site=site))

    assert write == (None if may_write else 403)
    assert read == (None if may_read else 403)


def test_our_origin_is_written_as_browsers_write_it() -> None:
    assert origin_of("http", "Localhost:8000") == "http://localhost:8000"
    assert origin_of("https", "ade.example:443") == "https://ade.example"
    assert origin_of("http", "[::1]:80") == "http://[::1]"


PROXIES = read_networks(["10.0.0.0/8", "::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", ["1.2.3.4"], "203.0.113.9"),  # not one of our proxies: whatever it says
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["1.2.3.4, 203.0.113.9"], "203.0.113.9"),  # the first was made up by the client
        ("10.0.0.1", ["1.2.3.4", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["203.0.113.9, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("::1", ["2001:DB8:0::1"], "2001:db8::1"),
        ("fe80::1%eth0", ["1.2.3.4"], "fe80::1"),
        ("", ["1.2.3.4"], ""),
        (None, ["1.2.3.4"], ""),
    ],
)
def test_only_our_own_proxies_are_believed(peer: str | None, forwarded: list[str], address: str) -> None:
    headers = [("X-Forwarded-For", value) for value in forwarded]

    assert client_address(peer, headers, PROXIES) == address
    if peer:
        assert client_address(peer, headers) == client_address(peer, [])


def test_other_headers_say_nothing_about_addresses() -> None:
    spoofed = [("Forwarded", "for=1.2.3.4"), ("X-Real-IP", "1.2.3.4"), ("CF-Connecting-IP", "1.2.3.4")]

    assert client_address("10.0.0.1", spoofed, PROXIES) == "10.0.0.1"


def test_the_scheme_is_believed_from_the_same() -> None:
    secure = [("X-Forwarded-Proto", "http, https")]

    assert client_scheme("10.0.0.1", secure, "http", PROXIES) == "https"
    assert client_scheme("203.0.113.9", secure, "http", PROXIES) == "http"
    assert client_scheme("10.0.0.1", [("X-Forwarded-Proto", "gopher")], "http", PROXIES) == "http"


def test_loopback_is_known() -> None:
    assert [is_loopback(bind) for bind in ("127.0.0.1", "::1", "localhost", "127.9.9.9")] == [True] * 4
    assert [is_loopback(bind) for bind in ("0.0.0.0", "::", "192.168.1.1", "example.org", "")] == [False] * 5


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        read_networks(["nonsense"])
