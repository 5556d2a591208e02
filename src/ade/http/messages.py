"""A request as it came in, and the answer to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from msgspec import Struct

from ade.core.web.limits import RequestLimits, check_headers, check_length, check_parameters, check_size, check_target
from ade.core.web.origins import check_same_host, host_of_target
from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_LISTS = frozenset({"accept", "if-match", "if-none-match", "prefer"})  # may come in several lines, which are one list
_MOST_FIELDS = 1_000  # parsed at all; check_parameters is stricter


class ClientGone(Exception):
    """Whoever asked does not wait for the answer any more."""


class Request:
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
                Fault.BAD_REQUEST, "the part behind ? is not of the form name=value&name=value, in UTF-8"
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
            raise RequestRefused(Fault.BAD_REQUEST, f"the body did not come within {self.body_s:g} s") from None

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


class Response(Struct, frozen=True):
    """The whole answer, or one that goes on for as long as `stream` does."""

    status: int
    body: bytes = b""
    media_type: str | None = "application/json"
    headers: Mapping[str, str] = {}
    stream: AsyncIterator[bytes] | None = None
