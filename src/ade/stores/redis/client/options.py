"""Parsing of store URLs for Redis and Valkey. A password never appears in an error, a log line, or a repr."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ade.errors import InvalidUrl

_DIGITS = re.compile(r"[0-9]{1,9}")
_SERVER_PORT = 6379
_SENTINEL_PORT = 26379
_ALIASES = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}  # names in other clients
_TLS_OPTIONS = {"ca", "cert", "key", "insecure"}
_WORDS_FOR_YES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class TopologyKind(StrEnum):
    """A single server, a primary behind sentinels, or a cluster."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class RedisAddress(NamedTuple):
    """The host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedisLogin:
    """An ACL user with a password, or only a password."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS options; the files are PEM files."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLocation:
    """Servers and credentials. `addresses` are the server, the sentinels, or some nodes of the cluster."""

    kind: TopologyKind
    addresses: tuple[RedisAddress, ...]
    login: RedisLogin = RedisLogin()
    db: int = 0
    tls: TlsOptions | None = None
    service: str = ""
    sentinel_login: RedisLogin = RedisLogin()

    def __str__(self) -> str:
        hosts = ",".join(map(str, self.addresses))
        match self.kind:
            case TopologyKind.SERVER:
                return f"{'rediss' if self.tls else 'redis'}://{hosts}/{self.db}"
            case TopologyKind.SENTINEL:
                return f"redis+sentinel://{hosts}/{self.service}/{self.db}"
            case TopologyKind.CLUSTER:
                return f"redis+cluster://{hosts}"


_SCHEMES = {
    "redis": (TopologyKind.SERVER, False),
    "rediss": (TopologyKind.SERVER, True),
    "redis+sentinel": (TopologyKind.SENTINEL, False),
    "redis+cluster": (TopologyKind.CLUSTER, False),
}
_OPTIONS = {
    TopologyKind.SERVER: _TLS_OPTIONS,
    TopologyKind.SENTINEL: {*_TLS_OPTIONS, "tls", "sentinel_username", "sentinel_password"},
    TopologyKind.CLUSTER: {*_TLS_OPTIONS, "tls"},
}
_FORMS = {
    TopologyKind.SERVER: "redis://user:password@host:6379/0",
    TopologyKind.SENTINEL: "redis+sentinel://user:password@host1:26379,host2:26379/service/0",
    TopologyKind.CLUSTER: "redis+cluster://user:password@host1:6379,host2:6379",
}


def parse_url(url: str) -> RedisLocation:
    """Parse a store URL. Raises InvalidUrl with a message that repeats no part that can be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidUrl("the brackets in the store URL do not match; write [::1]:6379 for an IPv6 address") from None
    if parts.scheme not in _SCHEMES:
        raise InvalidUrl(f"the store URL must begin with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}")
    kind, encrypted = _SCHEMES[parts.scheme]
    options = _options(parts, kind)
    login, hosts = _login_and_hosts(parts, kind)
    service, db = _path(parts, kind)
    return RedisLocation(
        kind=kind,
        addresses=tuple(_address(host, kind) for host in hosts),
        login=login,
        db=db,
        tls=_tls(options, encrypted=encrypted or _yes(options, "tls"), plain_scheme=kind is TopologyKind.SERVER),
        service=service,
        sentinel_login=RedisLogin(options.get("sentinel_username"), options.get("sentinel_password")),
    )


def _wrong(what: str, kind: TopologyKind) -> InvalidUrl:
    return InvalidUrl(f"{what} in the store URL. Its form is {_FORMS[kind]}; percent-encode @ : / ? # % in names")


def _options(parts: SplitResult, kind: TopologyKind) -> dict[str, str]:
    if parts.fragment:
        raise _wrong("there is a #", kind)
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _wrong("there is a ? that is not followed by option=value", kind) from None
    options = {_ALIASES.get(name, name): value for name, value in pairs}
    if len(options) < len(pairs):
        raise _wrong("an option is given twice", kind)
    if options.keys() - _OPTIONS[kind]:
        raise _wrong(f"there is an unknown option (known: {', '.join(sorted(_OPTIONS[kind]))})", kind)
    return options


def _login_and_hosts(parts: SplitResult, kind: TopologyKind) -> tuple[RedisLogin, list[str]]:
    entry, _, hosts = parts.netloc.rpartition("@")
    username, _, password = entry.partition(":")
    if username and not password:
        raise _wrong("there is a user without a password", kind)
    if not hosts:
        raise _wrong("there is no host", kind)
    return RedisLogin(unquote(username) or None, unquote(password) or None), hosts.split(",")


def _address(text: str, kind: TopologyKind) -> RedisAddress:
    """`host`, `host:port` or `[address]:port`."""
    default = _SENTINEL_PORT if kind is TopologyKind.SENTINEL else _SERVER_PORT
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(default)
    host = unquote(host.removeprefix("[").removesuffix("]"))
    if not host:
        raise _wrong("a host is empty", kind)
    if not _DIGITS.fullmatch(port) or not 0 < int(port) < 65_536:
        raise _wrong("a port is not a number from 1 to 65535", kind)
    return RedisAddress(host, int(port))


def _path(parts: SplitResult, kind: TopologyKind) -> tuple[str, int]:
    """The Sentinel service name and the database number."""
    words = [unquote(word) for word in parts.path.split("/") if word]
    service = ""
    if kind is TopologyKind.SENTINEL:
        if not words:
            raise _wrong("there is no service name", kind)
        service = words.pop(0)
    if kind is TopologyKind.CLUSTER and words not in ([], ["0"]):
        raise _wrong("a cluster has no databases, but there is a path", kind)
    if kind is TopologyKind.SERVER and "," in parts.netloc.rpartition("@")[2]:
        raise _wrong("several hosts are for redis+cluster:// or redis+sentinel://, but they are", kind)
    if len(words) > 1 or not all(map(_DIGITS.fullmatch, words)):
        raise _wrong("the database is not a number", kind)
    return service, int(words[0]) if words else 0


def _tls(options: dict[str, str], *, encrypted: bool, plain_scheme: bool) -> TlsOptions | None:
    if not encrypted:
        if options.keys() & _TLS_OPTIONS:
            remedy = "rediss://" if plain_scheme else "tls=1"
            raise InvalidUrl(f"the store URL has options for TLS, but the line is not encrypted: use {remedy}")
        return None
    if "key" in options and "cert" not in options:
        raise InvalidUrl("the store URL has key= without cert=; give the certificate that belongs to the key")
    return TlsOptions(
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
        insecure=_yes(options, "insecure"),
    )


def _yes(options: dict[str, str], name: str) -> bool:
    try:
        return _WORDS_FOR_YES[options.get(name, "0").lower()]
    except KeyError:
        raise InvalidUrl(f"{name}= in the store URL must be 1 or 0") from None
