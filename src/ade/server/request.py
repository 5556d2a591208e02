"""A request as it came in, and the answer to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl

from msgspec import Struct

from ade.accounts.model import Caller
from ade.logs import Log
from ade.server.addresses import (
    SAFE_METHODS,
    Network,
    check_host,
    check_same_host,
    check_same_origin_read,
    check_same_origin_write,
    client_address,
    client_scheme,
    counted_address,
    host_of_target,
    origin_of,
)
from ade.server.credentials import Credentials, check_query, cookie_name, read_credentials
from ade.server.operations import Services
from ade.server.problems import HttpFault, RequestRefused
from ade.server.rate_limiter import RateLimiter
from ade.server.request_body import (
    USUAL,
    RequestLimits,
    check_headers,
    check_length,
    check_parameters,
    check_size,
    check_target,
)
from ade.server.routing import AuthLevel, Route, RouteAccess, TrafficClass, check_access

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_LISTS = frozenset({"accept", "if-match", "if-none-match", "prefer"})  # may come in several lines, which are one list
_MOST_FIELDS = 1_000  # parsed at all; check_parameters is stricter


class ClientGone(Exception):
    """Whoever asked does not wait for the answer any more."""


class HttpRequest:
    """One request. Nothing of it is believed before `check`."""

    body_s: ClassVar[float] = 60.0  # in which a body must come
    __slots__ = (
        *("_receive", "account", "headers", "host", "id", "method", "named", "pairs", "path", "peer", "route"),
        *("scheme", "target"),
    )

    def __init__(self, scope: Scope, receive: Receive, request_id: str) -> None:
        self.id = request_id
        self._receive = receive
        self.method: str = scope["method"]
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        self.path = raw.decode("latin-1").partition("?")[0]
        self.target = f"{self.path}?{query.decode('latin-1')}" if query else self.path
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        self.named: dict[str, str] = {}
        for name, value in self.headers:
            lower = name.lower()
            if lower in self.named:
                value = f"{self.named[lower]}, {value}" if lower in _LISTS else self.named[lower]
            self.named[lower] = value
        self.host = host_of_target(scope.get("ade.target", b"/").decode("latin-1"))
        self.peer: str | None = scope["client"][0] if scope.get("client") else None
        self.scheme: str = scope["scheme"]
        self.pairs: list[tuple[str, str]] = []
        self.route: str | None = None  # and who asks: for the log, as soon as they are known
        self.account: str | None = None

    def check(self, limits: RequestLimits) -> None:
        """Raises RequestRefused for what no route would take."""
        check_target(self.target, limits)
        check_headers(self.headers, limits)
        if self.host is not None:
            check_same_host(self.host, self.named.get("host"))
        _, _, query = self.target.partition("?")
        if not query:
            return
        try:
            self.pairs = parse_qsl(
                query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MOST_FIELDS
            )
        except ValueError:  # also bytes that are no UTF-8
            raise RequestRefused(
                HttpFault.BAD_REQUEST, "the part behind ? is not of the form name=value&name=value, in UTF-8"
            ) from None
        check_parameters(self.pairs, limits)

    @property
    def declared_length(self) -> str | None:
        """Of the body: "0" where there is none, None where it is not said."""
        if "transfer-encoding" in self.named:
            return None
        return self.named.get("content-length", "0")

    async def body(self, limits: RequestLimits) -> bytes:
        """All of it. Raises RequestRefused (413) as soon as it is too much, and ClientGone."""
        if self.declared_length == "0":
            return b""
        check_length(self.named.get("content-length"), limits)
        # Most bodies came with their head. uvicorn knows, and a timer for nothing costs as much as reading the form.
        if getattr(getattr(self._receive, "__self__", None), "more_body", True) is False:
            return await self._all_parts(limits)
        try:
            async with asyncio.timeout(self.body_s):
                return await self._all_parts(limits)
        except TimeoutError:
            raise RequestRefused(HttpFault.BAD_REQUEST, f"the body did not come within {self.body_s:g} s") from None

    async def _all_parts(self, limits: RequestLimits) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part: bytes = message.get("body", b"")
            size += len(part)
            check_size(size, limits)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the client has hung up; to be called once the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class HttpResponse(Struct, frozen=True):
    """The whole answer, or one that goes on for as long as `stream` does."""

    status: int
    body: bytes = b""
    media_type: str | None = "application/json"
    headers: Mapping[str, str] = {}
    stream: AsyncIterator[bytes] | None = None


# One line in the log for each request, where that is wanted: what was asked for, by whom, and how it was answered.
#
# Nothing that a stranger writes gets into it: the path is that of the route, so neither ids nor parameters are told,
# and every field is short.


Which = Literal["off", "errors", "all"]
UNKNOWN = "unknown"  # the path of a request that was refused before its route was found
CLIENT_GONE = 499  # nobody waited for the answer; what other servers write for it too
_FIRST_ERROR = 400
_LONGEST_METHOD = 20
log = Log("ade.http.access")


class AccessLog:
    """Tells of all requests, or of those alone that were refused or failed."""

    def __init__(self, which: Literal["errors", "all"]) -> None:
        self._from_status = _FIRST_ERROR if which == "errors" else 0

    async def around(
        self, request: HttpRequest, send: Send, answer: Callable[[HttpRequest, Send], Awaitable[None]]
    ) -> None:
        """Answer a request, and tell of it when that is over: of a stream, when it has ended."""
        began, sent = perf_counter(), _CountingSend(send)
        try:
            await answer(request, sent)
        finally:
            self._tell(request, sent, perf_counter() - began)

    def _tell(self, request: HttpRequest, sent: "_CountingSend", seconds: float) -> None:
        if sent.status < self._from_status:
            return
        whose = {} if request.account is None else {"account": request.account}
        log.info(
            "http.request",
            method=_method(request.method),
            path=request.route or UNKNOWN,
            status=sent.status,
            ms=round(seconds * 1000, 1),
            bytes=sent.size,
            **whose,
            request=request.id,
        )


class _CountingSend:
    """Passes on what is sent, and counts it."""

    __slots__ = ("_send", "size", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = CLIENT_GONE  # unless something is sent
        self.size = 0  # of the body, in bytes

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.size += len(message["body"])
        await self._send(message)


def _method(text: str) -> str:
    is_plain = len(text) <= _LONGEST_METHOD and text.isascii() and text.isalpha()
    return text if is_plain else UNKNOWN


# What a server has beside its routes: who may be whom, how often, how much, and whether it is about to stop.


Recognise = Callable[[Credentials], Awaitable[Caller | None]]


@dataclass(frozen=True, kw_only=True)
class ServerServices:
    services: Services
    recognise: Recognise
    rates: RateLimiter
    hosts: frozenset[str]
    trusted: tuple[Network, ...] = ()
    limits: RequestLimits = USUAL
    local: Caller | None = None  # whoever asks, where nobody is asked who he is (http.auth = "off")
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    session_lasts_s: int = 86_400
    key_retention_ms: int = 86_400_000
    key_runs_ms: int = 30_000  # after which a request with a key is taken for dead, unless its server says otherwise
    max_subscribers: int = 5_000
    max_subscribers_each: int = 200
    access_log: Which = "off"
    recheck_ms: int = 15_000  # how long a stream goes on for somebody who may not see it any more


# Who asks: from the bytes of a request to somebody who is known, and may do this.


class RequestCaller(Struct, frozen=True):
    """Somebody at the door, known or not."""

    caller: Caller | None
    access: RouteAccess
    credentials: Credentials
    address: str
    cookie: str  # the name of the session cookie for this way to reach us

    @property
    def counted_as(self) -> str:
        """No account has a space in its name."""
        return f"address {counted_address(self.address)}" if self.caller is None else self.caller.user.id


async def visitor(service: ServerServices, request: HttpRequest, route: Route) -> RequestCaller:
    """Raises RequestRefused, NotAuthenticated and NotPermitted."""
    check_query([("", request.path), *request.pairs])
    host = request.named.get("host")
    if route.traffic is not TrafficClass.PROBE:  # which tells nothing, and is asked for by whatever address there is
        check_host(host, service.hosts)
    address = client_address(request.peer, request.headers, service.trusted)
    scheme = client_scheme(request.peer, request.headers, request.scheme, service.trusted)
    shown = request.headers if "cookie" in request.named else _bearer_alone(request)
    credentials = read_credentials(shown, scheme=scheme, host=host, address=address)
    caller = await _caller(service, route, credentials)
    request.account = None if caller is None else caller.user.id
    if not credentials.token:  # also for what is none, as a browser sends it to a proxy that asks for a password
        _check_origin(request, route, credentials, origin_of(scheme, host))
    return RequestCaller(caller, check_access(route, caller), credentials, address, cookie_name(scheme, host))


def _bearer_alone(request: HttpRequest) -> list[tuple[str, str]]:
    sent = request.named.get("authorization")
    return [] if sent is None else [("authorization", sent)]


async def _caller(service: ServerServices, route: Route, credentials: Credentials) -> Caller | None:
    if route.door is AuthLevel.PUBLIC:
        return None  # it makes no difference, so nobody is looked up
    if credentials.token is None and credentials.session is None:
        return service.local
    return await service.recognise(credentials)


def _check_origin(request: HttpRequest, route: Route, credentials: Credentials, own: str) -> None:
    """No page of another site acts through a browser that is signed in, signs it in, or uses an open door. None can
    make one send a token."""
    origin, fetch_site = request.named.get("origin"), request.named.get("sec-fetch-site")
    is_write = route.mutates or request.method not in SAFE_METHODS
    if credentials.session is not None and is_write and route.door is not AuthLevel.PUBLIC:
        check_same_origin_write({own}, origin=origin, fetch_site=fetch_site)
    elif route.mutates or route.door is not AuthLevel.PUBLIC:  # probes may be looked at from anywhere
        check_same_origin_read({own}, origin=origin, fetch_site=fetch_site)
