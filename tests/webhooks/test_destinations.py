"""Where webhooks may go: nowhere inside, however the way is written."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.errors import AddressRefused, InvalidWebhook
from ade.webhooks.destinations import (
    PUBLIC,
    NetworkPolicy,
    WebhookUrl,
    check_address,
    check_url,
    networks_of,
    secrets_in_url,
)
from tests.depth import examples

AT_HOME = NetworkPolicy(allow_http=True, allowed=networks_of(["127.0.0.0/8", "::1/128", "10.1.0.0/16"]))

INSIDE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("100.64.0.1", "100.127.255.255", "169.254.0.1", "169.254.169.254", "169.254.170.2", "100.100.100.200"),
    *("168.63.129.16", "192.0.0.192", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8"),
    *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "64:ff9b:1:ffff::a00:1", "100::1", "2001::1"),
    *("2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1"),
    *("3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "febf::1", "fec0::1", "ff02::1"),
]
OUTSIDE = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700:4700::1111", "2a00:1450::1"]


@pytest.mark.parametrize("address", INSIDE)
def test_no_webhook_goes_inside(address: str) -> None:
    host = f"[{address}]" if ":" in address else address

    with pytest.raises(AddressRefused, match="no webhook may reach"):
        check_address(address)
    with pytest.raises(InvalidWebhook, match="no webhook may reach"):
        check_url(f"https://{host}/")


@pytest.mark.parametrize("address", OUTSIDE)
def test_all_the_world_may_be_reached(address: str) -> None:
    assert check_address(address) == check_address(ip_address(address)) == ip_address(address)
    host = f"[{address}]" if ":" in address else address
    assert check_url(f"https://{host}/").host == address


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
@settings(max_examples=examples(80))
def test_what_may_be_reached_is_global_and_no_disguise(address: IPv4Address | IPv6Address) -> None:
    try:
        check_address(address)
    except AddressRefused:
        return
    assert address.is_global
    assert not address.is_multicast
    if isinstance(address, IPv6Address):
        assert (address.ipv4_mapped, address.sixtofour, address.teredo) == (None, None, None)


@given(st.ip_addresses(v=4))
@settings(max_examples=examples(50))
def test_no_disguise_makes_an_address_better(address: IPv4Address) -> None:
    number = int(address)
    for prefix, shift in (("::ffff:0:0", 0), ("::", 0), ("64:ff9b::", 0), ("2002::", 80)):
        with pytest.raises(AddressRefused):
            check_address(IPv6Address(int(IPv6Address(prefix)) | number << shift))


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "fe80::1%eth0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(text)
    with pytest.raises(AddressRefused):
        check_address("2606:4700:4700::1111%eth0")


def test_networks_can_be_allowed_and_refused() -> None:
    for address in ("127.0.0.1", "::1", "10.1.2.3", "8.8.8.8"):
        check_address(address, AT_HOME)
    for address in ("10.2.0.1", "169.254.169.254", "::ffff:127.0.0.1"):
        with pytest.raises(AddressRefused):
            check_address(address, AT_HOME)
    own = NetworkPolicy(allowed=networks_of(["0.0.0.0/0"]), refused=networks_of(["8.8.8.0/24"]))
    with pytest.raises(AddressRefused, match="settings"):
        check_address("8.8.8.8", own)
    with pytest.raises(InvalidWebhook, match="not a valid network"):
        networks_of(["10.1.2.3/16"])


def test_a_url_is_taken_apart_once() -> None:
    assert check_url("https://Hooks.Example.org.:8443?a=b/c@d") == WebhookUrl(
        scheme="https", host="hooks.example.org", port=8443, path="/?a=b/c@d"
    )
    target = check_url("HTTPS://example.org/a/b?c=%20&d=@")
    assert (target.path, target.authority, target.origin) == ("/a/b?c=%20&d=@", "example.org", "https://example.org")
    v6 = check_url("https://[2606:4700:4700::1111]:8443/")
    assert (v6.host, v6.authority) == ("2606:4700:4700::1111", "[2606:4700:4700::1111]:8443")


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org", "//example.org", "https:example.org", "https://", "https:///x", "https://?x", "ftp://a.b"),
        *("http://example.org/", "file:///etc/passwd", "javascript://x", "gopher://example.org"),
        *("https://user@example.org", "https://user:pass@example.org", "https://example.org@10.0.0.1/"),
        *("https://example.org#x", "https://example.org/#", "https://example.org\\@10.0.0.1", "https://10.0.0.1\\.a.b"),
        *(
            "https://exam ple.org",
            "https://example.org/\r\nX: y",
            "https://example.org/\x00",
            "https://ex\u00e4mple.org",
        ),
        *("https://example.org:0", "https://example.org:22", "https://example.org:25", "https://example.org:65536"),
        *("https://example.org:", "https://example.org:x", "https://example.org:-1", "https://example.org:080000"),
        *("https://127.1", "https://0x7f000001", "https://2130706433", "https://0177.0.0.1", "https://1.2.3.4.5"),
        *(
            "https://127.0.0.1.",
            "https://0x7f.1",
            "https://a.0x7f",
            "https://1",
            "https://localhost",
            "https://a.localhost.",
        ),
        *("https://[::1", "https://::1/", "https://[fe80::1%25eth0]/", "https://[::ffff:127.0.0.1]/", "https://[x]/"),
        *("https://a..b", "https://.a", "https://-a.b", "https://a-.b", "https://%31%32", "https://a*b", "https://a,b"),
        *("https://" + "a" * 64, "https://" + "a." * 127 + "aa", "https://example.org/" + "x" * 2_000),
        *("https://\uff11\uff12\uff17.0.0.1", "https://127\u30020.0.1"),
    ],
)
def test_what_no_webhook_may_have_is_refused(url: str) -> None:
    with pytest.raises(InvalidWebhook):
        check_url(url)


@given(st.text(st.sampled_from("htps:/[]@#?%.0127af-\\ x"), max_size=30))
@settings(max_examples=examples(80))
def test_whatever_is_written_leads_outside_or_nowhere(rest: str) -> None:
    try:
        target = check_url(f"https://{rest}")
    except InvalidWebhook:
        return
    assert not set(target.host) & set("@/\\?#%[] ")
    assert check_url(f"{target.origin}{target.path}") == target
    if target.host.replace(".", "").isdigit() or ":" in target.host:
        check_address(target.host)


def test_at_home_more_is_allowed() -> None:
    assert check_url("http://localhost:8080/x", AT_HOME).origin == "http://localhost:8080"
    assert check_url("http://127.0.0.1/", AT_HOME).port == 80
    assert check_url("https://example.org:444/", NetworkPolicy(ports=frozenset({444}))).port == 444
    with pytest.raises(InvalidWebhook, match="https, not with http"):
        check_url("http://example.org/", PUBLIC)


def test_a_refusal_tells_nothing_of_the_path() -> None:
    for url in ("http://example.org/s3cret", "https://10.0.0.1/s3cret", "https://u:s3cret@example.org/"):
        with pytest.raises(InvalidWebhook) as refused:
            check_url(url)
        assert "s3cret" not in refused.value.detail


def test_what_may_be_a_secret_in_a_url() -> None:
    assert secrets_in_url("https://example.org") == ["https://example.org"]
    url = "https://example.org/hook/T0123456789ab?token=abcdefghijkl&a=b"
    behind = "hook/T0123456789ab?token=abcdefghijkl&a=b"
    assert secrets_in_url(url) == [url, behind, "T0123456789ab", "abcdefghijkl"]
