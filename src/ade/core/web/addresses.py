"""Where a request comes from. What a header says about that counts only if a proxy we trust has written it.

How it is used: once for each request, with the peer of the connection, all headers, and the setting's list read by
`read_networks` at the start; the answer is what limits count, sessions keep and the log shows.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
Pairs = Sequence[tuple[str, str]]
_MOST_HOPS = 20
_CUSTOMER_BITS = 64
_WITH_PORT = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}|\[([0-9a-fA-F:.]+)\](?::\d{1,5})?", re.ASCII)


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks of proxies. Raises ValueError that names the one that is none."""
    return tuple(ip_network(text.strip()) for text in texts)


def client_address(peer: str | None, headers: Pairs, trusted: Sequence[Network] = ()) -> str:
    """The nearest address that is no proxy of ours; the peer itself unless it is one. Empty: nobody knows.

    X-Forwarded-For is read from the end, because only what our own proxies have added there is true.
    """
    nearest = _address(peer or "")
    if not trusted or nearest is None or not _is_trusted(nearest, trusted):
        return _told(peer or "")
    hops = [hop for name, value in headers if name.lower() == "x-forwarded-for" for hop in value.split(",")]
    for hop in reversed(hops[-_MOST_HOPS:]):
        address = _address(hop.strip())
        if address is None:
            break  # what stands before it cannot be relied on
        nearest = address
        if not _is_trusted(nearest, trusted):
            break
    return str(nearest)


def client_scheme(peer: str | None, headers: Pairs, scheme: str, trusted: Sequence[Network] = ()) -> str:
    """`https` also if a proxy we trust was reached by it; that decides about cookies and our own origin."""
    nearest = _address(peer or "") if trusted else None
    if nearest is None or not _is_trusted(nearest, trusted):
        return scheme
    told = [value.strip().lower() for name, value in headers if name.lower() == "x-forwarded-proto"]
    last = told[-1].rpartition(",")[2].strip() if told else scheme
    return last if last in ("http", "https") else scheme


def counted_address(client: str) -> str:
    """What limits count for somebody unknown. Of IPv6 the first half: one customer has all addresses below it."""
    address = _address(client)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _CUSTOMER_BITS), strict=False))
    return client if address is None else str(address)


def is_loopback(bind: str) -> bool:
    """Whether a server that listens there is reached from this machine alone."""
    address = _address(bind)
    return bind == "localhost" if address is None else address.is_loopback


@lru_cache(maxsize=4_096)  # of every request, and often the same
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """One form for one address: without port, brackets and zone, and an IPv4 one inside IPv6 as what it is."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


@lru_cache(maxsize=4_096)
def _told(peer: str) -> str:
    """A socket in the file system has a name, or none."""
    address = _address(peer)
    return peer if address is None else str(address)


def _is_trusted(address: IPv4Address | IPv6Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)
