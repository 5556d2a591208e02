"""Webhook destinations: URL parsing, and the network policy that protects against server-side request forgery.

A URL is parsed once. The sender uses the parsed parts that were checked, so no two parsers can disagree.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from ade.errors import AddressRefused, InvalidWebhook

# Addresses that no webhook may reach: this machine, its local networks, and reserved ranges. A name is resolved and
# checked when the connection is made, never earlier, because it might resolve differently by then.


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# From the IANA special-purpose address registries (RFC 6890 and later), plus cloud metadata addresses.
REFUSED: Sequence[tuple[Network, str]] = [
    (ip_network(text), meaning)
    for text, meaning in (
        ("169.254.169.254/32", "the metadata of a cloud"),
        ("169.254.170.0/24", "the metadata of a cloud"),
        ("100.100.100.200/32", "the metadata of a cloud"),
        ("168.63.129.16/32", "the metadata of a cloud"),
        ("192.0.0.192/32", "the metadata of a cloud"),
        ("fd00:ec2::/32", "the metadata of a cloud"),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a provider's customers"),
        ("127.0.0.0/8", "this machine"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "this machine"),
        ("::ffff:0:0/96", "an IPv4 address in disguise"),
        ("::/96", "an IPv4 address in disguise"),
        ("::ffff:0:0:0/96", "an IPv4 address in disguise"),
        ("64:ff9b::/96", "an IPv4 address in disguise (NAT64)"),
        ("64:ff9b:1::/48", "an IPv4 address in disguise (NAT64)"),
        ("100::/64", "discarded"),
        ("2001::/32", "an IPv4 address in disguise (Teredo)"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "an IPv4 address in disguise (6to4)"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
    )
]
_GLOBAL_V6 = IPv6Network("2000::/3")  # everything else is reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """What webhooks may reach. `allowed` networks are reachable although they are special, for tests and private use.
    `refused` networks are not reachable although they are public, such as your own addresses. `refused` wins.
    """

    allow_http: bool = False
    ports: frozenset[int] = frozenset()  # allowed ports below 1024, in addition to the default port
    allowed: tuple[Network, ...] = ()
    refused: tuple[Network, ...] = ()


PUBLIC = NetworkPolicy()


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks from settings, such as `10.1.0.0/16`. Raises InvalidWebhook."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidWebhook(f"{text[:60]!r} is not a valid network for webhooks: {error}") from None
    return tuple(networks)


def check_address(address: str | Address, reach: NetworkPolicy = PUBLIC) -> Address:
    """Return the address if a webhook may be sent to it. Raises AddressRefused.

    Call it for every address immediately before a connection to that exact address, and for the peer of the established
    connection.
    """
    found = _read(address)
    if any(found in network for network in reach.refused):
        raise AddressRefused(f"no webhook may reach {found}: its network is refused by the settings")
    if any(found in network for network in reach.allowed):
        return found
    meaning = _meaning(found)
    if meaning is not None:
        raise AddressRefused(f"no webhook may reach {found}: it is {meaning}; an administrator can allow its network")
    return found


def _read(address: str | Address) -> Address:
    try:
        found = ip_address(address)
    except ValueError:
        raise AddressRefused(f"{str(address)[:60]!r} is not a network address") from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise AddressRefused(f"no webhook may reach {str(found)[:60]}: its scope is a single link")
    return found


def _meaning(address: Address) -> str | None:
    """Return what is special about an address; None for an ordinary public address."""
    for network, meaning in REFUSED:
        if address in network:
            return meaning
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        return "reserved"
    return None


LONGEST_URL = 2_000
_USUAL_PORTS = {"https": 443, "http": 80}
_FIRST_FREE_PORT, _LAST_PORT = 1024, 65_535
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/?#@]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>[/?].*)?",
    re.IGNORECASE,
)
_VISIBLE = re.compile(r"[!-~]+")  # no spaces, no control characters, nothing beyond ASCII
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_HOST = 253
_PARTS = re.compile(r"[/?&=;]")
_SHORTEST_SECRET = 12  # shorter path parts are ordinary words


class WebhookUrl(Struct, frozen=True, kw_only=True):
    """A parsed URL. `host` is a name that must be resolved and checked, or an address that was checked already."""

    scheme: str
    host: str  # lower case; an IPv6 address without brackets
    port: int
    path: str  # with the query, as in the request line

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _USUAL_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The part that may be disclosed: paths and queries of webhooks are often secrets."""
        return f"{self.scheme}://{self.authority}"


def check_url(url: str, reach: NetworkPolicy = PUBLIC) -> WebhookUrl:
    """Parse a webhook URL and check it. Raises InvalidWebhook, whose message does not contain the path."""
    if len(url) > LONGEST_URL or not _VISIBLE.fullmatch(url) or "\\" in url:
        raise InvalidWebhook(
            f"a webhook's URL has at most {LONGEST_URL:,} characters, all of them plain visible ASCII and no backslash;"
            " write other names in their xn-- form, and the rest with %"
        )
    if "#" in url:
        raise InvalidWebhook("a webhook's URL has no fragment: remove # and everything after it")
    if "@" in url.partition("://")[2].partition("/")[0].partition("?")[0]:
        raise InvalidWebhook("a webhook's URL names no user and no password: its messages are signed instead")
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidWebhook("that is not a webhook URL: write it like https://example.org/hook")
    scheme = _checked_scheme(found["scheme"].lower(), reach)
    rest = found["rest"] or "/"
    return WebhookUrl(
        scheme=scheme,
        host=_checked_host(found["host"].lower(), reach),
        port=_checked_port(found["port"], scheme, reach),
        path=rest if rest.startswith("/") else f"/{rest}",
    )


def origin_of(url: str) -> str:
    """Return the origin of a stored URL without checking it again, because the policy might have changed."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{_PARTS.split(rest, maxsplit=1)[0]}".lower()


def secrets_in_url(url: str) -> list[str]:
    """Return the parts of a URL that might be secrets: all of it, everything after the host, and long parts."""
    _, *behind = _PARTS.split(url.partition("://")[2], maxsplit=1)
    parts = [part for text in behind for part in _PARTS.split(text) if len(part) >= _SHORTEST_SECRET]
    return [url, *behind, *parts]


def _checked_scheme(scheme: str, reach: NetworkPolicy) -> str:
    if scheme == "https" or (scheme == "http" and reach.allow_http):
        return scheme
    allowed = "https or http" if reach.allow_http else "https"
    raise InvalidWebhook(f"a webhook's URL begins with {allowed}, not with {scheme[:20]}")


def _checked_port(port: str | None, scheme: str, reach: NetworkPolicy) -> int:
    number = _USUAL_PORTS[scheme] if port is None else int(port)
    is_usual = number == _USUAL_PORTS[scheme] or number in reach.ports
    if not is_usual and not _FIRST_FREE_PORT <= number <= _LAST_PORT:
        raise InvalidWebhook(f"no webhook may reach port {number}: use {_USUAL_PORTS[scheme]}, or 1024 to 65535")
    return number


def _checked_host(host: str, reach: NetworkPolicy) -> str:
    """Check addresses now; names are checked when they are resolved. Forms that only some programs read as an address
    (127.1, 0x7f000001, 2130706433) are rejected.
    """
    try:
        if host.startswith("["):
            return str(check_address(IPv6Address(host[1:-1]), reach))
        name = host.removesuffix(".")
        labels = name.split(".")
        if len(name) > _LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
            raise InvalidWebhook(f"{host[:100]!r} is not a valid host name")
        if _NUMBER.fullmatch(labels[-1]):
            return str(check_address(IPv4Address(name), reach))
        if labels[-1] == "localhost":
            check_address(IPv4Address("127.0.0.1"), reach)
    except AddressValueError:
        raise InvalidWebhook(
            f"{host[:100]!r} is not a network address: write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    except AddressRefused as refused:
        raise InvalidWebhook(refused.detail) from None
    return name
