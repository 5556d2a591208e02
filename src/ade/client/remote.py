"""Calls over HTTP. What the server refuses is raised here as the error it was there."""

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ade.client.credentials import check_plain, token_of
from ade.client.following import follow_events, follow_output
from ade.client.reading import FIRST_REDIRECT, content_of, problem_of, problem_of_stream, read_answer
from ade.client.repeating import Patience, is_repeatable, pause_after_break, pause_after_problem
from ade.client.transport import Ask, EventWish
from ade.core.errors import ServerUnreachable
from ade.core.events import Event
from ade.core.feeds.items import Gap
from ade.core.records import OutputLine
from ade.core.web.answers import Content
from ade.core.web.problems import refused_fields
from ade.core.web.raising import error_of, error_of_refusal
from ade.core.web.rates import Traffic
from ade.core.web.routes.table import ROUTE_OF
from ade.core.web.targets import target_of
from ade.core.web.wire import to_wire
from ade.net.pool import HttpClient, Response, StreamedResponse, origin_of
from ade.version import VERSION

if TYPE_CHECKING:
    import ssl

_NOT_FOUND = 404
_encode = msgspec.json.Encoder().encode


class Sending(Struct, frozen=True, kw_only=True):
    """A request, and whether it may be sent twice."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    timeout_s: float
    is_repeatable: bool


class RemoteTransport:
    """To one server, from any number of event loops: each has connections of its own."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        timeout_s: float = 30.0,
        patience: Patience | None = None,
        allow_plain: bool = False,
        most_connections: int = 100,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.url = url
        self.patience = patience or Patience()
        self.sleep = sleep
        self.dice = dice
        self._token = token_of(token)
        self._tls = tls
        self._timeout_s = timeout_s
        self._most_connections = most_connections
        self._clients: dict[asyncio.AbstractEventLoop, HttpClient] = {}
        check_plain(origin_of(url), self._token, allow_plain=allow_plain)

    def __repr__(self) -> str:
        return f"RemoteTransport({self.url!r})"  # without the token

    async def call(self, ask: Ask) -> Any:
        sending = self._sending(ask)
        if ask.answer is Content and ROUTE_OF[ask.operation].traffic is Traffic.STREAM:
            return await self._streamed(sending)
        response = await self._answered(sending, may_be_gone=ask.answer is type(None))
        return read_answer(ask.answer, response)

    def follow_events(self, wish: EventWish) -> AsyncGenerator[Event | Gap, None]:
        return follow_events(self, wish)

    def follow_output(self, task_id: str, after: int) -> AsyncGenerator[OutputLine, None]:
        return follow_output(self, task_id, after)

    async def close(self) -> None:
        """Close the connections of this event loop, and of those that are closed themselves."""
        self._drop_closed_loops()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def headers(self, accept: str = "application/json, */*;q=0.5") -> dict[str, str]:
        shown = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        return {"accept": accept, "user-agent": f"ade/{VERSION}", **shown}

    def client(self) -> HttpClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            self._drop_closed_loops()
            client = self._clients[loop] = HttpClient(self.url, tls=self._tls, most_connections=self._most_connections)
        return client

    def _drop_closed_loops(self) -> None:
        """As those of `asyncio.run` for one call: their connections would stay open for as long as this lives."""
        for loop in [loop for loop in list(self._clients) if loop.is_closed()]:
            abandoned = self._clients.pop(loop, None)
            if abandoned is not None:
                abandoned.abandon()

    def _sending(self, ask: Ask) -> Sending:
        """A call that takes a key always has one, so that it can be sent again when its answer is lost."""
        route = ROUTE_OF[ask.operation]
        key = (ask.checked_key() or secrets.token_hex(16)) if route.takes_key else None
        tag = ask.tag(route)
        headers = self.headers()
        try:
            target = target_of(route, ask.path, ask.query)
            body = b"" if ask.body is None else _encode(to_wire(ask.body))
        except (TypeError, ValueError) as error:  # no JSON, half a character, a time without its zone
            raise error_of_refusal(refused_fields({"": str(error)})) from None
        if body:
            headers["content-type"] = "application/json"
        if key is not None:
            headers["idempotency-key"] = key
        if tag is not None:
            headers["if-match"] = tag
        return Sending(
            method=route.method,
            target=target,
            headers=headers,
            body=body,
            timeout_s=self._timeout_s + ask.wait_s,
            is_repeatable=is_repeatable(route, has_key=key is not None, has_tag=tag is not None),
        )

    async def _answered(self, sending: Sending, *, may_be_gone: bool) -> Response:
        """The answer, after as many tries as it takes and patience allows. Raises AdeError."""
        client, was_sent = self.client(), False
        for times in range(self.patience.repeats + 1):
            error: Exception
            try:
                response = await _asked(client, sending)
            except ServerUnreachable as broken:
                error = broken
                pause = pause_after_break(broken, times=times, dice=self.dice())
                broken.was_sent = was_sent = was_sent or broken.was_sent
            else:
                if response.status < FIRST_REDIRECT:
                    return response
                problem = problem_of(response, response.body)
                if was_sent and may_be_gone and response.status == _NOT_FOUND and sending.method == "DELETE":
                    return response  # by the first time, whose answer was lost
                error = error_of(problem)
                pause = pause_after_problem(problem, self.patience, sent_before=was_sent)
            is_last = times == self.patience.repeats or client.is_closed
            if pause is None or not sending.is_repeatable or is_last:
                raise error
            await self.sleep(pause)
        raise AssertionError("the last time ends in an answer or an error")

    async def _streamed(self, sending: Sending) -> Content:
        """A file, read as it comes; once."""
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


async def _asked(client: HttpClient, sending: Sending) -> Response:
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
