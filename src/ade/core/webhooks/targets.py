"""URLs of webhooks, taken apart once: what was checked is what the sender uses, so no two readings can differ."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from msgspec import Struct

from ade.core.webhooks.addresses import PUBLIC, Reach, check_address
from ade.core.webhooks.errors import AddressRefused, InvalidWebhook

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
_SHORTEST_SECRET = 12  # shorter parts of a path are words


class Target(Struct, frozen=True, kw_only=True):
    """Where a message goes. `host` is a name, to be resolved and checked, or an address that was checked already."""

    scheme: str
    host: str  # lower case; an IPv6 address without brackets
    port: int
    path: str  # with the query; what the request line says

    @property
    def authority(self) -> str:
        """For the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _USUAL_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """What may be told: paths and queries of webhooks are often secrets."""
        return f"{self.scheme}://{self.authority}"


def check_url(url: str, reach: Reach = PUBLIC) -> Target:
    """The URL taken apart, if webhooks may have it. Raises InvalidWebhook; none of its path is in the sentence."""
    if len(url) > LONGEST_URL or not _VISIBLE.fullmatch(url) or "\\" in url:
        raise InvalidWebhook(
            f"a webhook's URL has at most {LONGEST_URL:,} characters, all of them plain visible ASCII and no backslash;"
            " write other names in their xn-- form, and the rest with %"
        )
    if "#" in url:
        raise InvalidWebhook("a webhook's URL has no fragment: leave out # and what follows")
    if "@" in url.partition("://")[2].partition("/")[0].partition("?")[0]:
        raise InvalidWebhook("a webhook's URL names no user and no password: its messages are signed instead")
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidWebhook("that is no URL of a webhook: write it like https://example.org/hook")
    scheme = _checked_scheme(found["scheme"].lower(), reach)
    rest = found["rest"] or "/"
    return Target(
        scheme=scheme,
        host=_checked_host(found["host"].lower(), reach),
        port=_checked_port(found["port"], scheme, reach),
        path=rest if rest.startswith("/") else f"/{rest}",
    )


def origin_of(url: str) -> str:
    """What may be told of a URL that was checked when it was stored, whatever may be reached by now."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{_PARTS.split(rest, maxsplit=1)[0]}".lower()


def secrets_in_url(url: str) -> list[str]:
    """What of a webhook's URL may be a secret: the whole, all behind the host, and its longer parts."""
    _, *behind = _PARTS.split(url.partition("://")[2], maxsplit=1)
    parts = [part for text in behind for part in _PARTS.split(text) if len(part) >= _SHORTEST_SECRET]
    return [url, *behind, *parts]


def _checked_scheme(scheme: str, reach: Reach) -> str:
    if scheme == "https" or (scheme == "http" and reach.allow_http):
        return scheme
    allowed = "https or http" if reach.allow_http else "https"
    raise InvalidWebhook(f"a webhook's URL begins with {allowed}, not with {scheme[:20]}")


def _checked_port(port: str | None, scheme: str, reach: Reach) -> int:
    number = _USUAL_PORTS[scheme] if port is None else int(port)
    is_usual = number == _USUAL_PORTS[scheme] or number in reach.ports
    if not is_usual and not _FIRST_FREE_PORT <= number <= _LAST_PORT:
        raise InvalidWebhook(f"no webhook may reach port {number}: use {_USUAL_PORTS[scheme]}, or 1024 to 65535")
    return number


def _checked_host(host: str, reach: Reach) -> str:
    """Addresses are judged here, and names when they are resolved. What only some programs read as an address (127.1,
    0x7f000001, 2130706433) is refused."""
    try:
        if host.startswith("["):
            return str(check_address(IPv6Address(host[1:-1]), reach))
        name = host.removesuffix(".")
        labels = name.split(".")
        if len(name) > _LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
            raise InvalidWebhook(f"{host[:100]!r} is no name of a machine")
        if _NUMBER.fullmatch(labels[-1]):
            return str(check_address(IPv4Address(name), reach))
        if labels[-1] == "localhost":
            check_address(IPv4Address("127.0.0.1"), reach)
    except AddressValueError:
        raise InvalidWebhook(
            f"{host[:100]!r} is no network address: write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    except AddressRefused as refused:
        raise InvalidWebhook(refused.detail) from None
    return name
