"""The HTTP transport: it sends calls to a server, retries them, and raises its problems as errors."""

import asyncio
import os
import random
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from ade import VERSION
from ade.accounts.model import NotAuthenticated
from ade.client.api.routes import CLIENT_ROUTES
from ade.client.responses import (
    FIRST_REDIRECT,
    content_of,
    follow_events,
    follow_output,
    problem_of,
    problem_of_stream,
    read_answer,
)
from ade.client.transport import (
    EventSubscriptionRequest,
    OperationCall,
    RetryLimits,
    is_repeatable,
    pause_after_break,
    pause_after_problem,
)
from ade.common.http.pool import ClientResponse, HttpClient, HttpOrigin, StreamedResponse, origin_of
from ade.errors import InvalidUrl, ServerUnreachable
from ade.events.feed_items import Gap
from ade.events.model import Event
from ade.server.addresses import is_loopback
from ade.server.operation import ClientRoute
from ade.server.pagination import RawContent
from ade.server.problems import error_of, error_of_refusal, refused_fields
from ade.server.wire_format import to_wire
from ade.tasks.model import OutputLine

if TYPE_CHECKING:
    import ssl


VARIABLE = "ADE_TOKEN"
_SIGNS_IN = frozenset({"sign_in", "use_login_link", "change_own_password"})
_SIGNS_OUT = frozenset({"sign_out", "sign_out_everywhere"})
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


def token_of(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the given token, or that of the environment. Raises NotAuthenticated for a malformed one."""
    token = given if given is not None else environment.get(VARIABLE) or None
    if token is not None and not _TOKEN.fullmatch(token):
        where = "the token" if given is not None else VARIABLE
        raise NotAuthenticated(f"{where} is not a token: a token is ASCII without spaces")
    return token


def check_plain(origin: HttpOrigin, *, allow_plain: bool, what: str = "token") -> None:
    """Raise InvalidUrl before a token or password is sent in plaintext to another machine."""
    if origin.scheme == "https" or allow_plain or is_loopback(origin.host):
        return
    raise InvalidUrl(
        f"the {what} would go to http://{origin.authority} unencrypted; use https://, or a tunnel to this machine;"
        " if you trust the network, set allow_plain=True, or client.allow_plain in the settings"
    )


def target_of(route: ClientRoute, values: Sequence[str] = (), query: Struct | None = None) -> str:
    """Return the request target. Every value becomes one path segment, percent-encoded."""
    path = route.path
    for name, value in zip(route.parameters, values, strict=True):
        path = path.replace(f"{{{name}}}", quote(value, safe=""), 1)
    pairs = () if query is None else query_pairs(query)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def query_pairs(query: Struct) -> list[tuple[str, str]]:
    """Return a query as parameters: one for each list item, none for absent fields."""
    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return [(name, _text(each)) for name, value in said.items() for each in _items(value)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_NOT_FOUND = 404
_encode = msgspec.json.Encoder().encode


class PreparedRequest(Struct, frozen=True, kw_only=True):
    """A request, and whether it can be sent twice."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    timeout_s: float
    is_repeatable: bool


class HttpTransport:
    """Sends calls to one server, from any number of event loops, each with its own connections.

    After `sign_in` it acts in that login session, in place of the token, until `sign_out`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        timeout_s: float = 30.0,
        patience: RetryLimits | None = None,
        allow_plain: bool = False,
        most_connections: int = 100,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self.url = url
        self.patience = patience or RetryLimits()
        self.sleep = sleep
        self.randomness = randomness
        self._token = token_of(token)
        self._session: str | None = None  # the cookie
        self._allow_plain = allow_plain
        self._tls = tls
        self._timeout_s = timeout_s
        self._most_connections = most_connections
        self._clients: dict[asyncio.AbstractEventLoop, HttpClient] = {}
        origin = origin_of(url)
        if self._token is not None:
            check_plain(origin, allow_plain=allow_plain)

    def __repr__(self) -> str:
        return f"HttpTransport({self.url!r})"  # without the token

    async def call(self, ask: OperationCall) -> Any:
        if ask.operation in _SIGNS_IN:
            check_plain(origin_of(self.url), allow_plain=self._allow_plain, what="password")
        sending = self._sending(ask)
        if CLIENT_ROUTES[ask.operation].is_download:
            return await self._streamed(sending)
        response = await self._answered(sending, may_be_gone=ask.answer is type(None))
        if ask.operation in _SIGNS_IN:
            self._session = _cookie_of(response)
        elif ask.operation in _SIGNS_OUT:
            self._session = None
        return read_answer(ask.answer, response)

    def follow_events(self, spec: EventSubscriptionRequest) -> AsyncGenerator[Event | Gap, None]:
        after = [] if spec.after is None else [("after", str(spec.after))]
        query = urlencode([*spec.pairs(), *after])
        path = CLIENT_ROUTES["list_events"].path
        return follow_events(self, f"{path}?{query}" if query else path)

    def follow_output(self, task_id: str, after: int) -> AsyncGenerator[OutputLine, None]:
        target = target_of(CLIENT_ROUTES["get_task_output"], (task_id,))
        return follow_output(self, f"{target}?after={after}" if after else target)

    async def close(self) -> None:
        """Close the connections of this event loop, and of closed event loops."""
        self._drop_closed_loops()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def headers(self, accept: str = "application/json, */*;q=0.5") -> dict[str, str]:
        shown = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        if self._session is not None:
            origin = origin_of(self.url)
            shown = {"cookie": self._session, "origin": f"{origin.scheme}://{origin.authority}"}
        return {"accept": accept, "user-agent": f"ade/{VERSION}", **shown}

    def client(self) -> HttpClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._drop_closed_loops()
            client = self._clients[loop] = HttpClient(self.url, tls=self._tls, most_connections=self._most_connections)
        return client

    def _drop_closed_loops(self) -> None:
        """Drop the connections of closed loops, as of one `asyncio.run` per call, which would stay open."""
        for loop in [loop for loop in list(self._clients) if loop.is_closed()]:
            abandoned = self._clients.pop(loop, None)
            if abandoned is not None:
                abandoned.abandon()

    def _sending(self, ask: OperationCall) -> PreparedRequest:
        """Build the request. If the route takes a key, generate one, so that a lost response can be retried."""
        route = CLIENT_ROUTES[ask.operation]
        key = (ask.checked_key() or secrets.token_hex(16)) if route.takes_key else None
        tag = ask.tag(route)
        headers = self.headers()
        try:
            target = target_of(route, ask.path, ask.query)
            body = b"" if ask.body is None else _encode(to_wire(ask.body))
        except (TypeError, ValueError) as error:  # not JSON, a lone surrogate, a time without a zone
            raise error_of_refusal(refused_fields({"": str(error)})) from error
        if body:
            headers["content-type"] = "application/json"
        if key is not None:
            headers["idempotency-key"] = key
        if tag is not None:
            headers["if-match"] = tag
        return PreparedRequest(
            method=route.method,
            target=target,
            headers=headers,
            body=body,
            timeout_s=self._timeout_s + ask.wait_s,
            is_repeatable=is_repeatable(route, has_key=key is not None, has_tag=tag is not None),
        )

    async def _answered(self, sending: PreparedRequest, *, may_be_gone: bool) -> ClientResponse:
        """Return the response, retrying within the limits. Raises AdeError."""
        client, was_sent = self.client(), False
        for times in range(self.patience.repeats + 1):
            error: Exception
            try:
                response = await _asked(client, sending)
            except ServerUnreachable as broken:
                error = broken
                pause = pause_after_break(broken, times=times, randomness=self.randomness())
                broken.was_sent = was_sent = was_sent or broken.was_sent
            else:
                if response.status < FIRST_REDIRECT:
                    return response
                problem = problem_of(response, response.body)
                if was_sent and may_be_gone and response.status == _NOT_FOUND and sending.method == "DELETE":
                    return response  # deleted by the first attempt, whose response was lost
                error = error_of(problem)
                pause = pause_after_problem(problem, self.patience, sent_before=was_sent)
            is_last = times == self.patience.repeats or client.is_closed
            if pause is None or not sending.is_repeatable or is_last:
                raise error
            await self.sleep(pause)
        raise AssertionError("the last time ends in an answer or an error")

    async def _streamed(self, sending: PreparedRequest) -> RawContent:
        """Return a streamed file, without retries."""
        opened = self.client().stream(
            sending.method, sending.target, sending.headers, timeout=sending.timeout_s, silence=self._timeout_s
        )
        response = await opened.__aenter__()
        if response.status >= FIRST_REDIRECT:
            try:
                raise error_of(await problem_of_stream(response))
            finally:
                await opened.__aexit__(None, None, None)
        return content_of(response, _pieces(opened, response))


def _cookie_of(response: ClientResponse) -> str | None:
    """Return the session cookie of a response, as `name=value`."""
    cookies = (value for name, value in response.headers if name.lower() == "set-cookie")
    return next((cookie.partition(";")[0] for cookie in cookies), None)


async def _asked(client: HttpClient, sending: PreparedRequest) -> ClientResponse:
    return await client.request(
        sending.method,
        sending.target,
        sending.headers,
        sending.body,
        timeout=sending.timeout_s,
        is_repeatable=sending.is_repeatable,
    )


async def _pieces(
    opened: AbstractAsyncContextManager[StreamedResponse], response: StreamedResponse
) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in response.chunks():
            yield piece
    finally:
        await opened.__aexit__(None, None, None)
