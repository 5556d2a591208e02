"""The ASGI app: it runs each request through the pipeline and turns every error into a problem (RFC 9457)."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from itertools import count
from time import perf_counter

from msgspec import structs

from ade.errors import AdeError
from ade.logs import Log
from ade.server.operation import Route
from ade.server.pipeline import Pipeline
from ade.server.problems import MEDIA_TYPE, HttpFault, Problem, RequestRefused, problem_of_error, problem_of_fault
from ade.server.request import AccessLog, ClientGone, HttpRequest, HttpResponse, Receive, Scope, Send, ServerServices
from ade.server.router import Endpoint, MethodNotAllowed, Router

log = Log("ade.http")
_SERVER_FAULT = 500
_UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})  # probes every few seconds, which would fill the traces
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_POLICY = b"default-src 'none'; frame-ancestors 'none'"


class HttpApp:
    """The ASGI app for these routes."""

    def __init__(self, service: ServerServices, routes: Iterable[Route]) -> None:
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)  # request IDs, unique across servers
        self._pipeline = Pipeline(service, Router((route, Endpoint(route)) for route in routes))
        self.base_path = service.base_path
        self._access_log = None if service.access_log == "off" else AccessLog(service.access_log)
        self._requests, self._spans = service.requests, service.spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no WebSockets: the server closes the connection
        request = HttpRequest(scope, receive, f"{self._prefix}-{next(self._numbers):x}", self.base_path)
        if self._spans is None or request.path in _UNTRACED:
            await self._logged(request, send)
            return
        with self._spans.answering(
            request.method, request.scheme, request.path, request.named.get("traceparent")
        ) as span:
            try:
                await self._logged(request, send)
            finally:
                self._spans.answered(span, request.method, request.route, request.status)

    async def _logged(self, request: HttpRequest, send: Send) -> None:
        if self._access_log is None:
            await self._serve(request, send)
        else:
            await self._access_log.around(request, send, self._serve)

    async def _serve(self, request: HttpRequest, send: Send) -> None:
        began = perf_counter()
        try:
            response = await self._answer(request)
        except ClientGone:
            self._count(request, began)
            return
        request.status = response.status
        if response.stream is not None:  # it can last for hours, so it is counted when it starts
            self._count(request, began)
        try:
            await _send(request, response, send)
        finally:
            if response.stream is None:
                self._count(request, began)
            await _close(response.stream)

    def _count(self, request: HttpRequest, began: float) -> None:
        self._requests.note(request.method, request.route, request.status, perf_counter() - began)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            response = await self._pipeline.answer(request)
            return _below(self.base_path, response) if self.base_path else response
        except (RequestRefused, MethodNotAllowed) as refused:
            return self._problem_response(refused.problem, request)
        except AdeError as error:
            problem = problem_of_error(error)
            if problem.status >= _SERVER_FAULT:
                log.error("http.failed", request=request.id, code=error.code, error=str(error))
            return self._problem_response(problem, request)
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("http.fault", request=request.id, method=request.method)
            return self._problem_response(problem_of_fault(HttpFault.INTERNAL), request)

    def _problem_response(self, problem: Problem, request: HttpRequest) -> HttpResponse:
        body = problem.with_instance(f"urn:ade:request:{request.id}", self.base_path).body()
        return HttpResponse(problem.status, body, MEDIA_TYPE, problem.headers)


def _below(base_path: str, response: HttpResponse) -> HttpResponse:
    """The response with the base path before the URL of a new object.

    This is done last, because a response that is stored under an Idempotency-Key outlives a change of the setting.
    """
    place = response.headers.get("Location")
    if place is None:
        return response
    return structs.replace(response, headers={**response.headers, "Location": f"{base_path}{place}"})


@lru_cache
def _wired(name: str) -> bytes:
    """The name of a header in bytes; cached, because there are few."""
    return name.lower().encode()


async def _send(request: HttpRequest, response: HttpResponse, send: Send) -> None:
    own = {_wired(name): value.encode("latin-1", "replace") for name, value in response.headers.items()}
    headers = [*_ALWAYS, (b"x-request-id", request.id.encode()), *own.items()]
    if response.media_type is not None:
        headers.append((b"content-type", response.media_type.encode()))
    if b"content-security-policy" not in own:
        headers.append((b"content-security-policy", _POLICY))
    if b"cache-control" not in own:
        headers.append((b"cache-control", b"no-cache" if b"etag" in own else b"no-store"))
    if response.stream is None:
        if response.status not in (204, 304):
            headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else response.body})
        return
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if request.method != "HEAD":
        await _send_stream(request, response.stream, send)
    await send({"type": "http.response.body", "body": b""})


async def _send_stream(request: HttpRequest, stream: AsyncIterator[bytes], send: Send) -> None:
    """Send until the stream ends or the client disconnects."""
    sending = asyncio.ensure_future(_pump(stream, send))
    gone = asyncio.ensure_future(request.gone())
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    except AdeError as error:  # too late for an error status: the stream ends, and the client reconnects
        log.error("http.stream_failed", request=request.id, code=error.code, error=str(error))
    finally:
        gone.cancel()
        sending.cancel()
        await asyncio.wait((sending,))


async def _pump(stream: AsyncIterator[bytes], send: Send) -> None:
    async for chunk in stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _close(stream: AsyncIterator[bytes] | None) -> None:
    """Close the stream, also one that was never started, as for HEAD."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
