"""Where no webhook may go: addresses that mean this machine, its neighbours, or nobody.

A name is judged by what it leads to at the moment of the connection, never before: it may lead elsewhere then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ade.core.webhooks.errors import AddressRefused, InvalidWebhook

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# By the registries of special addresses (RFC 6890 and what came after), and what clouds have put among the others.
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
_GLOBAL_V6 = IPv6Network("2000::/3")  # all else is reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What webhooks may reach. `allowed` networks may be reached although they are special, for tests and at home;
    `refused` ones may not although they are not, such as one's own public addresses. What is refused wins."""

    allow_http: bool = False
    ports: frozenset[int] = frozenset()  # below 1024, beside the usual ones
    allowed: tuple[Network, ...] = ()
    refused: tuple[Network, ...] = ()


PUBLIC = Reach()


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks as settings name them, such as `10.1.0.0/16`. Raises InvalidWebhook."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidWebhook(f"{text[:60]!r} is no network for webhooks: {error}") from None
    return tuple(networks)


def check_address(address: str | Address, reach: Reach = PUBLIC) -> Address:
    """The address, if a webhook may be sent to it. Raises AddressRefused.

    To be asked about every address before a connection is made to that very address, and about the peer of the
    connection once it stands.
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
        raise AddressRefused(f"{str(address)[:60]!r} is no network address") from None
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise AddressRefused(f"no webhook may reach {str(found)[:60]}: it counts on one link only")
    return found


def _meaning(address: Address) -> str | None:
    """What is special about it; None for one that is like any other in the world."""
    for network, meaning in REFUSED:
        if address in network:
            return meaning
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        return "reserved"
    return None
