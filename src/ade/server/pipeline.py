"""The request pipeline: checks, routing, authentication, limits, parsing, idempotency, and execution.

Every step can reject the request, and only the last one changes anything.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, structs

from ade.common.trace_context import read_trace
from ade.errors import AdeError, StaleWrite
from ade.logs import Log
from ade.server.context import RequestContext, may_be_masked
from ade.server.credentials import delete_cookie, set_cookie
from ade.server.etags import AnyTag, Preference, is_not_modified, read_prefer, read_tags
from ade.server.idempotency import (
    RETENTION_MS,
    RUNS_MS,
    KeyStanding,
    StoredRequest,
    StoredResponse,
    again,
    fingerprint,
    is_storable,
    place_of,
    read_key,
    refusal,
    standing,
    stored_response,
    task_key,
)
from ade.server.masking import masked_for
from ade.server.operation import AuthLevel, ETagUse, TrafficClass
from ade.server.problems import HttpFault, RequestRefused
from ade.server.rate_limits import check_rate, rate_headers
from ade.server.request import ClientGone, HttpRequest, HttpResponse, RequestCaller, ServerServices, visitor
from ade.server.request_body import RequestLimits
from ade.server.router import Endpoint, Router
from ade.server.streams import StreamSlots, stream_response, wants_stream
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided

# Requests with an Idempotency-Key are stored for a day, as documents without change notifications:
#
#     begun = await begin(stores, account, key, fingerprint(method, target, body))
#     if isinstance(begun, StoredResponse):
#         return begun                                   # a repeated request
#     response = ...                                     # execute it; new tasks get the key `task_key(account, key)`
#     await finish(stores, begun, response)
#
# `finish` also handles rejections (they free the key), and `forget` handles exceptions. If the store fails in one of
# them, the failure is logged and the response is still sent. A server that is killed in between leaves the key as
# running. After `runs_ms`, the next request with the key executes the operation again, so operations must be safe to
# repeat: tasks by their own key, everything else by version, status, or digest. A longer request calls `renew`
# meanwhile, and stops before `finish`, so that the two do not conflict.


KIND = "web_key"
_SHELF = Repository(KIND, StoredRequest, lambda kept: kept.kept_until)


class BegunRequest(Struct, frozen=True, kw_only=True):
    """A request with a key that this server must now execute."""

    place: str
    request: StoredRequest
    is_second_try: bool = False  # an earlier server started it and is gone


async def begin(
    stores: Stores, account: str, key: str, fingerprint: str, *, kept_ms: int = RETENTION_MS, runs_ms: int = RUNS_MS
) -> BegunRequest | StoredResponse:
    """Claim the request, or return its stored response. At most one caller executes a request at a time.

    Raises RequestRefused: 409 while another caller executes it or if its response was too large to store, 422 if the
    key belongs to another request.
    """
    place, holder = place_of(account, key), os.urandom(12).hex()

    async def step() -> BegunRequest | StoredResponse:
        kept = await _SHELF.get(stores, place)
        steady = stores.clock.steady()
        judged = stores.clock.judged(runs_ms)
        state = standing(None if kept is None else kept.record, fingerprint, steady=steady, judged=judged)
        if state is KeyStanding.REPEAT and kept is not None and kept.record.answer is not None:
            return again(kept.record.answer)
        if state not in (KeyStanding.FIRST, KeyStanding.ABANDONED):
            raise refusal(state)
        request = StoredRequest(
            fingerprint=fingerprint,
            holder=holder,
            begun_at=stores.clock.now(),
            runs_until=steady + runs_ms,
            kept_ms=kept_ms,
        )
        await _write(stores, place, request, seen=0 if kept is None else kept.version)
        return BegunRequest(place=place, request=request, is_second_try=state is KeyStanding.ABANDONED)

    return await decided(step)


async def renew(stores: Stores, begun: BegunRequest, runs_ms: int) -> None:
    """Extend the claim of a running request. A holder that was presumed dead changes nothing."""
    kept = await _mine(stores, begun)
    if kept is not None and kept.record.answer is None:
        with suppress(StaleWrite):
            longer = structs.replace(kept.record, runs_until=stores.clock.steady() + min(runs_ms, RUNS_MS))
            await _write(stores, begun.place, longer, seen=kept.version)


async def finish(stores: Stores, begun: BegunRequest, answer: StoredResponse) -> None:
    """Store the response, or free the key after a rejection. A holder that was presumed dead changes nothing."""
    if not is_storable(answer.status):
        await forget(stores, begun)
        return
    kept = await _mine(stores, begun)
    if kept is not None:
        with suppress(StaleWrite):
            answered = structs.replace(begun.request, answer=stored_response(answer))
            await _write(stores, begun.place, answered, seen=kept.version)


async def forget(stores: Stores, begun: BegunRequest) -> None:
    """Free the key, because the request was not executed."""
    kept = await _mine(stores, begun)
    if kept is not None:
        with suppress(StaleWrite):
            removal = structs.replace(_SHELF.remove(begun.place), seen=kept.version, is_quiet=True)
            await stores.documents.write([removal])


async def _mine(stores: Stores, begun: BegunRequest) -> StoredRecord[StoredRequest] | None:
    kept = await _SHELF.get(stores, begun.place)
    return kept if kept is not None and kept.record.holder == begun.request.holder else None


async def _write(stores: Stores, place: str, request: StoredRequest, *, seen: int) -> None:
    put = _SHELF.put(place, request, seen=seen)
    await stores.documents.write([structs.replace(put, is_quiet=True)])


_SMALL = 262_144
_TOGETHER, _EACH = 16, 4  # times the largest body
_LATER_S = 5


class BodyBudget:
    """Limits the memory for large request bodies, in total and per account.

    A request that exceeds the budget waits, and meanwhile none of its body is read, so the sender waits too.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._largest = limits.body_bytes
        self._most, self._most_each = _TOGETHER * self._largest, _EACH * self._largest
        self._taken: Counter[str] = Counter()
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()

    def needed(self, declared: str | None) -> int:
        """Return the bytes to reserve: 0 for a small body, the maximum without a Content-Length."""
        size = int(declared) if declared is not None and declared.isdecimal() and len(declared) < 16 else self._largest
        return 0 if size <= _SMALL else min(size, self._largest)  # a larger body is rejected

    @asynccontextmanager
    async def taken(self, who: str, size: int, within_s: float) -> AsyncIterator[None]:
        """Reserve bytes for the duration of the block. Raises RequestRefused (503) after `within_s`."""
        try:
            async with asyncio.timeout(within_s):
                await self._take(who, size)
        except TimeoutError:
            raise RequestRefused(
                HttpFault.UNAVAILABLE, "too many large bodies are in progress; try again later", retry_after=_LATER_S
            ) from None
        try:
            yield
        finally:
            self._give_back(who, size)

    async def _take(self, who: str, size: int) -> None:
        if self._fits(who, size):
            self._taken[who] += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (who, size, turn)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            else:  # the bytes were granted at the same moment
                self._give_back(who, size)
            raise

    def _give_back(self, who: str, size: int) -> None:
        self._taken[who] -= size
        if not self._taken[who]:
            del self._taken[who]
        for place in list(self._waiting):  # in order, skipping accounts that are at their limit
            following, needed, turn = place
            if not turn.done() and self._fits(following, needed):  # a cancelled one removes itself when it runs next
                self._waiting.remove(place)
                self._taken[following] += needed
                turn.set_result(None)

    def _fits(self, who: str, size: int) -> bool:
        return self._taken.total() + size <= self._most and self._taken[who] + size <= self._most_each


class KeyHeartbeat:
    """Calls `renew` periodically until `end`, so that a long request keeps its key. Most end before the first."""

    def __init__(self, renew: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._renew, self._every_s = renew, every_s
        self._ended = asyncio.Event()
        self._going: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._begin)

    async def end(self) -> None:
        """Stop, and wait for a renewal in progress."""
        self._timer.cancel()
        self._ended.set()
        if self._going is not None:
            await asyncio.wait((self._going,))

    def _begin(self) -> None:
        self._going = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while not self._ended.is_set():
            await self._renew()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()
            except TimeoutError:
                pass


T = TypeVar("T")
log = Log("ade.http")
_SIGNS_IN = frozenset({"sign_in", "use_login_link", "change_own_password"})
# Filters without an index.
_SCANS = frozenset({"text", "status", "name", "queue", "worker", "worker_id", "created_before"})
_SEARCHES = frozenset({"list_dead_letters", "list_dead_letter_groups", "preview_bulk_action"})  # without an index, too
_SIGNS_OUT = frozenset({"sign_out", "sign_out_everywhere"})
_STRANGERS_BODY = 65_536  # a large body delays other requests, so it requires authentication


class PreparedOperation(Struct, frozen=True):
    """A parsed and authorized request, ready to execute."""

    request: HttpRequest
    endpoint: Endpoint
    values: tuple[str, ...]
    query: Struct | None
    body: Struct | None
    who: RequestCaller
    asked: RequestContext

    @property
    def may_wait(self) -> bool:
        return bool(
            self.asked.wait_s > 0
            or getattr(self.body, "wait", None)
            or getattr(self.query, "wait", None)
            or self.endpoint.route.operation in _SEARCHES
            or (self.endpoint.route.operation == "list_tasks" and any(name in _SCANS for name, _ in self.request.pairs))
        )


class Pipeline:
    """Runs requests through all steps."""

    def __init__(self, service: ServerServices, router: Router[Endpoint]) -> None:
        self._service = service
        self._router = router
        self._places = StreamSlots(service.max_subscribers, service.max_subscribers_each)
        self._room = BodyBudget(service.limits)
        bound = min(service.limits.body_bytes, _STRANGERS_BODY)
        self._strangers_limits = structs.replace(service.limits, body_bytes=bound)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response. Raises on any error; `ade.server.asgi` turns it into a problem."""
        service = self._service
        request.check(service.limits)
        endpoint, values = self._router.find(request.method, request.path)
        request.route = endpoint.route.path
        who = await visitor(service, request, endpoint.route)
        streams = endpoint.route.is_stream and wants_stream(request)
        traffic = TrafficClass.READ if endpoint.route.is_stream and not streams else endpoint.route.traffic
        taken = await service.rates.take(traffic, who.counted_as)
        if taken.limit is None:
            return await self._understood(request, endpoint, values, who, streams=streams)
        check_rate(taken.limit, taken.wait_ms)
        response = await self._understood(request, endpoint, values, who, streams=streams)
        return structs.replace(response, headers={**rate_headers(taken.limit, 0), **response.headers})

    async def _understood(
        self, request: HttpRequest, endpoint: Endpoint, values: tuple[str, ...], who: RequestCaller, *, streams: bool
    ) -> HttpResponse:
        if streams:
            return await stream_response(self._service, self._places, request, endpoint.route, values, who)
        query = endpoint.read_query(request.pairs)
        is_public = endpoint.route.door is AuthLevel.PUBLIC
        limits = self._strangers_limits if is_public else self._service.limits
        if size := self._room.needed(request.declared_length):
            async with self._room.taken(who.counted_as, size, request.body_s):
                raw, body = await endpoint.read_body(request, limits)
        else:
            raw, body = await endpoint.read_body(request, limits)
        preference = read_prefer(request.named.get("prefer"))
        asked = _asked(request, endpoint, who, preference, query)
        order = PreparedOperation(request, endpoint, values, query, body, who, asked)
        key = request.named.get("idempotency-key") if endpoint.route.takes_key else None
        response = await (self._done(order) if key is None else self._done_once(order, read_key(key), raw))
        if asked.wait_s and preference.wait_s is not None and getattr(query, "wait", None) is None:
            return _with_header(response, "Preference-Applied", f"wait={preference.wait_s}")
        return response

    async def _done(self, order: PreparedOperation) -> HttpResponse:
        work = order.endpoint.carry_out(self._service.services, order.asked, order.values, order.query, order.body)
        try:
            answer = await (self._unless_gone(order.request, work) if order.may_wait else work)
        except StaleWrite:
            if order.asked.if_match is None:
                raise
            raise RequestRefused(
                HttpFault.PRECONDITION_FAILED,
                "the record was changed concurrently; read it again and decide again",
            ) from None
        if may_be_masked(self._service.services, order.asked.caller):
            answer = await masked_for(self._service.services, order.asked.caller, answer)
        response = order.endpoint.response(answer)
        operation = order.endpoint.route.operation
        if operation in _SIGNS_IN:
            lasts_s = self._service.session_lasts_s
            cookie = set_cookie(order.who.cookie, answer.secret, lasts_s, self._service.base_path)
            return _with_header(response, "Set-Cookie", cookie)
        if operation in _SIGNS_OUT:
            return _with_header(response, "Set-Cookie", delete_cookie(order.who.cookie, self._service.base_path))
        if order.request.method in ("GET", "HEAD") and _is_known(order.request, response):
            return HttpResponse(304, media_type=None, headers=response.headers)
        return response

    async def _done_once(self, order: PreparedOperation, key: str, raw: bytes) -> HttpResponse:
        """Execute a request with a key at most once, and return the stored response to repeats."""
        stores, account = self._service.services.stores, order.asked.actor
        mark = fingerprint(order.request.method, order.request.target, raw, order.asked.if_match)
        kept_ms, runs_ms = self._service.key_retention_ms, self._service.key_runs_ms
        begun = await begin(stores, account, key, mark, kept_ms=kept_ms, runs_ms=runs_ms)
        if isinstance(begun, StoredResponse):
            return _again(begun)
        renewing = KeyHeartbeat(partial(_still_runs, stores, begun, runs_ms), runs_ms / 3000)
        try:
            asked = structs.replace(order.asked, key=task_key(account, key))
            response = await self._done(structs.replace(order, asked=asked))
        except BaseException:
            await renewing.end()
            await _quietly(forget(stores, begun))
            raise
        await renewing.end()
        headers = {**response.headers, "Content-Type": response.media_type or ""}
        answer = StoredResponse(status=response.status, headers=headers, body=response.body)
        await _quietly(finish(stores, begun, answer))
        return response

    async def _unless_gone(self, request: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
        """Cancel a long operation when the client disconnects or the server stops."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(request.gone())
        stopping = asyncio.ensure_future(self._service.stopping.wait())
        try:
            await asyncio.wait((task, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                return task.result()  # it might have finished despite the cancellation
            if gone.done():
                raise ClientGone
            raise RequestRefused(HttpFault.UNAVAILABLE, "the server is stopping; try again")
        finally:
            for each in (task, gone, stopping):
                each.cancel()


def _asked(
    request: HttpRequest, endpoint: Endpoint, who: RequestCaller, preference: Preference, query: Struct | None
) -> RequestContext:
    wait = getattr(query, "wait", None)
    if wait is None and endpoint.route.waits:
        wait = preference.wait_s
    named, tag = request.named, endpoint.route.tag
    is_tagged = tag in (ETagUse.HEEDED, ETagUse.REQUIRED)
    account = None if who.caller is None else who.caller.user.id
    return RequestContext(
        actor=account or f"http:{who.address}",
        author=account,
        caller=who.caller,
        access=who.access,
        if_match=named.get("if-match") if is_tagged else None,
        if_none_match=named.get("if-none-match") if is_tagged else None,
        tag_required=tag is ETagUse.REQUIRED,
        wait_s=float(wait or 0),
        address=who.address,
        user_agent=named.get("user-agent", "")[:200],
        accept=named.get("accept", ""),
        trace=_trace(named.get("traceparent")),
        operation=endpoint.route.operation,
        path=request.path,
    )


def _trace(header: str | None) -> str | None:
    """The traceparent header. An invalid one is ignored, as the standard requires."""
    return header if header is not None and read_trace(header) is not None else None


def _is_known(request: HttpRequest, response: HttpResponse) -> bool:
    tag, known = response.headers.get("ETag"), request.named.get("if-none-match")
    if tag is None or known is None:
        return False
    tags = read_tags(tag)
    return not isinstance(tags, AnyTag) and any(is_not_modified(each, known) for each in tags)


def _with_header(response: HttpResponse, name: str, value: str) -> HttpResponse:
    return structs.replace(response, headers={**response.headers, name: value})


def _again(answer: StoredResponse) -> HttpResponse:
    headers = {name.title(): value for name, value in answer.headers.items()}
    media_type = headers.pop("Content-Type", "") or None
    return HttpResponse(answer.status, answer.body or b"", media_type, {**headers, "Idempotency-Replayed": "true"})


async def _still_runs(stores: Stores, begun: BegunRequest, runs_ms: int) -> None:
    await _quietly(renew(stores, begun, runs_ms))


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Log a failure: the response is sent even if it could not be stored for repeats."""
    try:
        await work
    except AdeError as error:
        log.warning("http.key_not_settled", error=str(error))
