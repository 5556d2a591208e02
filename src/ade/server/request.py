"""HTTP requests and responses, the access log, the configuration of a server, and the caller of a request."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import parse_qsl

from msgspec import Struct

from ade.accounts.model import Caller
from ade.events.prometheus import METHODS, REQUEST_BOUNDS, Labels, Samples
from ade.events.rollups import Histogram
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
from ade.server.context import Services
from ade.server.credentials import Credentials, check_query, cookie_name, read_credentials
from ade.server.operation import AuthLevel, Route, RouteAccess, TrafficClass, check_access
from ade.server.problems import HttpFault, RequestRefused
from ade.server.rate_limits import RateLimiter
from ade.server.request_body import (
    USUAL,
    RequestLimits,
    check_headers,
    check_length,
    check_parameters,
    check_size,
    check_target,
)

if TYPE_CHECKING:
    from ade.worker.spans import Spans

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_LISTS = frozenset({"accept", "if-match", "if-none-match", "prefer"})  # several headers of one name form one list
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)  # safe in a log, a header, and a URN
CLIENT_GONE = 499  # the client disconnected; the status that nginx logs for it
_MOST_FIELDS = 1_000  # of the parser; check_parameters is stricter


class ClientGone(Exception):
    """The client disconnected before the response."""


class HttpRequest:
    """One request. Its content is untrusted before `check`. Its ID is that of the caller, if that is a valid one."""

    body_s: ClassVar[float] = 60.0  # time limit for receiving a body
    __slots__ = (
        *("_receive", "account", "headers", "host", "id", "method", "named", "pairs", "path", "peer", "route"),
        *("scheme", "status", "target"),
    )

    def __init__(self, scope: Scope, receive: Receive, request_id: str, base_path: str = "") -> None:
        self.id = request_id
        self._receive = receive
        self.method: str = scope["method"]
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        whole = raw.decode("latin-1").partition("?")[0]
        # Below the base path; empty outside of it, where there is nothing.
        self.path = whole if not base_path else whole[len(base_path) :] if whole.startswith(f"{base_path}/") else ""
        self.target = f"{whole}?{query.decode('latin-1')}" if query else whole
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        self.named: dict[str, str] = {}
        for name, value in self.headers:
            lower = name.lower()
            if lower in self.named:
                value = f"{self.named[lower]}, {value}" if lower in _LISTS else self.named[lower]
            self.named[lower] = value
        sent = self.named.get("x-request-id")
        if sent is not None and _REQUEST_ID.fullmatch(sent):
            self.id = sent
        self.host = host_of_target(scope.get("ade.target", b"/").decode("latin-1"))
        self.peer: str | None = scope["client"][0] if scope.get("client") else None
        self.scheme: str = scope["scheme"]
        self.pairs: list[tuple[str, str]] = []
        self.route: str | None = None  # this and the account: for the log, as soon as they are known
        self.account: str | None = None
        self.status = CLIENT_GONE  # unless there is a response

    def check(self, limits: RequestLimits) -> None:
        """Raise RequestRefused for a request that no route accepts."""
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
        except ValueError:  # also bytes that are not UTF-8
            raise RequestRefused(
                HttpFault.BAD_REQUEST, "the query string is not of the form name=value&name=value, in UTF-8"
            ) from None
        check_parameters(self.pairs, limits)

    @property
    def declared_length(self) -> str | None:
        """The length of the body: "0" without a body, None if it is not declared."""
        if "transfer-encoding" in self.named:
            return None
        return self.named.get("content-length", "0")

    async def body(self, limits: RequestLimits) -> bytes:
        """Return the whole body. Raises RequestRefused (413) as soon as it is too large, and ClientGone."""
        if self.declared_length == "0":
            return b""
        check_length(self.named.get("content-length"), limits)
        # Most bodies arrive with their head, and uvicorn knows. A needless timer costs as much as parsing the body.
        if getattr(getattr(self._receive, "__self__", None), "more_body", True) is False:
            return await self._all_parts(limits)
        try:
            async with asyncio.timeout(self.body_s):
                return await self._all_parts(limits)
        except TimeoutError:
            raise RequestRefused(
                HttpFault.REQUEST_TIMEOUT, f"the body did not arrive within {self.body_s:g} s; send it again"
            ) from None

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
        """Return when the client has disconnected. Call it only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class HttpResponse(Struct, frozen=True):
    """A response, either complete or streamed from `stream`."""

    status: int
    body: bytes = b""
    media_type: str | None = "application/json"
    headers: Mapping[str, str] = {}
    stream: AsyncIterator[bytes] | None = None


Which = Literal["off", "errors", "all"]
UNKNOWN = "unknown"  # the path of a request that was rejected before routing
_FIRST_ERROR = 400
_LONGEST_METHOD = 20
log = Log("ade.http.access")


class AccessLog:
    """Logs one line for each request, or only for those that failed.

    No line contains text from the client, except a valid request ID: the path is that of the route, without IDs or
    parameters, and fields are short.
    """

    def __init__(self, which: Literal["errors", "all"]) -> None:
        self._from_status = _FIRST_ERROR if which == "errors" else 0

    async def around(
        self, request: HttpRequest, send: Send, answer: Callable[[HttpRequest, Send], Awaitable[None]]
    ) -> None:
        """Answer a request and log it when the response ends; for a stream, when the stream ends."""
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
    """Forwards messages and counts the bytes."""

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


class RequestMetrics:
    """Counts the requests of one server process, by method and route template, so that no client can add labels."""

    def __init__(self) -> None:
        self._counts: dict[Labels, int] = {}
        self._durations: dict[Labels, tuple[list[int], list[float]]] = {}  # per bucket, and [the sum]

    def note(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request. `route` is None if none was found."""
        labels = (method if method in METHODS else "other", route or UNKNOWN)
        counted = (*labels, str(status))
        self._counts[counted] = self._counts.get(counted, 0) + 1
        buckets, total = self._durations.setdefault(labels, ([0] * (len(REQUEST_BOUNDS) + 1), [0.0]))
        ms = seconds * 1000
        buckets[bisect_left(REQUEST_BOUNDS, ms)] += 1
        total[0] += ms

    def samples(self) -> dict[str, Samples]:
        """Return the current values."""
        durations = {
            labels: Histogram(list(each), round(total[0])) for labels, (each, total) in self._durations.items()
        }
        return {"ade_http_requests_total": dict(self._counts), "ade_http_request_duration_ms": durations}


Recognise = Callable[[Credentials], Awaitable[Caller | None]]


@dataclass(frozen=True, kw_only=True)
class ServerServices:
    """The configuration and the services of a server: authentication, limits, hosts, and shutdown."""

    services: Services
    recognise: Recognise
    rates: RateLimiter
    hosts: frozenset[str]
    trusted: tuple[Network, ...] = ()
    limits: RequestLimits = USUAL
    base_path: str = ""  # prefix of all paths
    local: Caller | None = None  # the caller of every request if http.auth = "off"
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    session_lasts_s: int = 86_400
    key_retention_ms: int = 86_400_000
    key_runs_ms: int = 30_000  # a request with a key is presumed dead after this time without renewal
    max_subscribers: int = 5_000
    max_subscribers_each: int = 200
    access_log: Which = "off"
    requests: RequestMetrics = field(default_factory=RequestMetrics)
    spans: "Spans | None" = None  # if traces are enabled
    recheck_ms: int = 15_000  # how long a stream continues after access was revoked


class RequestCaller(Struct, frozen=True):
    """The caller of a request, authenticated or not, and their access to the route."""

    caller: Caller | None
    access: RouteAccess
    credentials: Credentials
    address: str
    cookie: str  # the name of the session cookie for this scheme and host

    @property
    def counted_as(self) -> str:
        """The key for limits. It cannot collide with an account, whose ID contains no space."""
        return f"address {counted_address(self.address)}" if self.caller is None else self.caller.user.id


async def visitor(service: ServerServices, request: HttpRequest, route: Route) -> RequestCaller:
    """Authenticate and authorize a request. Raises RequestRefused, NotAuthenticated, and NotPermitted."""
    check_query([("", request.path), *request.pairs])
    host = request.named.get("host")
    if route.traffic is not TrafficClass.PROBE:  # probes reveal nothing, and use any host name
        check_host(host, service.hosts)
    address = client_address(request.peer, request.headers, service.trusted)
    scheme = client_scheme(request.peer, request.headers, request.scheme, service.trusted)
    shown = request.headers if "cookie" in request.named else _bearer_alone(request)
    base_path = service.base_path
    credentials = read_credentials(shown, scheme=scheme, host=host, base_path=base_path, address=address)
    caller = await _caller(service, route, credentials)
    request.account = None if caller is None else caller.user.id
    if not credentials.token:  # also for an invalid one: browsers send Basic credentials to a proxy
        _check_origin(request, route, credentials, origin_of(scheme, host))
    access, cookie = check_access(route, caller), cookie_name(scheme, host, base_path)
    return RequestCaller(caller, access, credentials, address, cookie)


def _bearer_alone(request: HttpRequest) -> list[tuple[str, str]]:
    sent = request.named.get("authorization")
    return [] if sent is None else [("authorization", sent)]


async def _caller(service: ServerServices, route: Route, credentials: Credentials) -> Caller | None:
    if route.door is AuthLevel.PUBLIC:
        return None  # saves the lookup
    if credentials.token is None and credentials.session is None:
        return service.local
    return await service.recognise(credentials)


def _check_origin(request: HttpRequest, route: Route, credentials: Credentials, own: str) -> None:
    """Prevent pages of other sites from acting through a browser: with its session, to sign in, or if auth is off.

    They cannot make a browser send a token.
    """
    origin, fetch_site = request.named.get("origin"), request.named.get("sec-fetch-site")
    is_write = route.mutates or request.method not in SAFE_METHODS
    if credentials.session is not None and is_write and route.door is not AuthLevel.PUBLIC:
        check_same_origin_write({own}, origin=origin, fetch_site=fetch_site)
    elif route.mutates or route.door is not AuthLevel.PUBLIC:  # any page can read probes
        check_same_origin_read({own}, origin=origin, fetch_site=fetch_site)
