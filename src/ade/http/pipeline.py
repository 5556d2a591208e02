"""The way of a request: each step may refuse it, and only the last one does anything."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, structs

from ade.core.errors import AdeError, StaleWrite
from ade.core.traces import read_trace
from ade.core.web.cookies import delete_cookie, set_cookie
from ade.core.web.etags import AnyTag, is_not_modified, read_tags
from ade.core.web.idempotency import Answer, fingerprint, read_key, task_key
from ade.core.web.prefer import Preference, read_prefer
from ade.core.web.problems import RequestRefused
from ade.core.web.rates import check_rate, rate_headers
from ade.core.web.routing import Door, Tag
from ade.core.web.statuses import Fault
from ade.governance import web_keys
from ade.http.callers import Visitor, visitor
from ade.http.endpoints import Endpoint
from ade.http.messages import ClientGone, Request, Response
from ade.http.places import Places
from ade.http.renewing import Renewing
from ade.http.room import Room
from ade.http.router import Router
from ade.http.service import Service
from ade.http.streams import stream_response, wants_stream
from ade.logs import Log
from ade.operations.kit import Asked
from ade.ports import Stores

T = TypeVar("T")
log = Log("ade.http")
_SIGNS_IN = frozenset({"sign_in", "use_login_link", "change_own_password"})
_SIGNS_OUT = frozenset({"sign_out", "sign_out_everywhere"})
_PREFERS_WAIT = frozenset({"get_task", "create_task"})
_STRANGERS_BODY = 65_536  # to read a large one keeps all others waiting, so one must be known for that


class Order(Struct, frozen=True):
    """A request that was understood: what is to be done, for whom."""

    request: Request
    endpoint: Endpoint
    values: tuple[str, ...]
    query: Struct | None
    body: Struct | None
    who: Visitor
    asked: Asked

    @property
    def may_wait(self) -> bool:
        return bool(self.asked.wait_s > 0 or getattr(self.body, "wait", None) or getattr(self.query, "wait", None))


class Pipeline:
    def __init__(self, service: Service, router: Router[Endpoint]) -> None:
        self._service = service
        self._router = router
        self._places = Places(service.max_subscribers, service.max_subscribers_each)
        self._room = Room(service.limits)
        bound = min(service.limits.body_bytes, _STRANGERS_BODY)
        self._strangers_limits = structs.replace(service.limits, body_bytes=bound)

    async def answer(self, request: Request) -> Response:
        """Raises whatever is wrong; see `ade.http.app` for what becomes of it."""
        service = self._service
        request.check(service.limits)
        endpoint, values = self._router.find(request.method, request.path)
        request.route = endpoint.route.path
        who = await visitor(service, request, endpoint.route)
        taken = await service.rates.take(endpoint.route.traffic, who.counted_as)
        if taken.limit is None:
            return await self._understood(request, endpoint, values, who)
        check_rate(taken.limit, taken.wait_ms)
        response = await self._understood(request, endpoint, values, who)
        return structs.replace(response, headers={**rate_headers(taken.limit, 0), **response.headers})

    async def _understood(
        self, request: Request, endpoint: Endpoint, values: tuple[str, ...], who: Visitor
    ) -> Response:
        if endpoint.route.is_stream and wants_stream(request):
            return await stream_response(self._service, self._places, request, endpoint.route, values, who)
        query = endpoint.read_query(request.pairs)
        is_public = endpoint.route.door is Door.PUBLIC
        limits = self._strangers_limits if is_public else self._service.limits
        if size := self._room.needed(request.declared_length):
            async with self._room.taken(who.counted_as, size, request.body_s):
                raw, body = await endpoint.read_body(request, limits)
        else:
            raw, body = await endpoint.read_body(request, limits)
        preference = read_prefer(request.named.get("prefer"))
        asked = _asked(request, endpoint, who, preference, query)
        order = Order(request, endpoint, values, query, body, who, asked)
        key = request.named.get("idempotency-key") if endpoint.route.takes_key else None
        response = await (self._done(order) if key is None else self._done_once(order, read_key(key), raw))
        if asked.wait_s and preference.wait_s is not None and getattr(query, "wait", None) is None:
            return _with_header(response, "Preference-Applied", f"wait={preference.wait_s}")
        return response

    async def _done(self, order: Order) -> Response:
        work = order.endpoint.carry_out(self._service.office, order.asked, order.values, order.query, order.body)
        try:
            answer = await (self._unless_gone(order.request, work) if order.may_wait else work)
        except StaleWrite:
            if order.asked.if_match is None:
                raise
            raise RequestRefused(
                Fault.PRECONDITION_FAILED, "the record was changed at the same moment; read it again and decide again"
            ) from None
        response = order.endpoint.response(answer)
        operation = order.endpoint.route.operation
        if operation in _SIGNS_IN:
            return _with_header(
                response, "Set-Cookie", set_cookie(order.who.cookie, answer.secret, self._service.session_lasts_s)
            )
        if operation in _SIGNS_OUT:
            return _with_header(response, "Set-Cookie", delete_cookie(order.who.cookie))
        if order.request.method in ("GET", "HEAD") and _is_known(order.request, response):
            return Response(304, media_type=None, headers=response.headers)
        return response

    async def _done_once(self, order: Order, key: str, raw: bytes) -> Response:
        """A request with a key: carried out once, answered as often as it is sent."""
        stores, account = self._service.office.stores, order.asked.actor
        mark = fingerprint(order.request.method, order.request.target, raw, order.asked.if_match)
        kept_ms, runs_ms = self._service.key_retention_ms, self._service.key_runs_ms
        begun = await web_keys.begin(stores, account, key, mark, kept_ms=kept_ms, runs_ms=runs_ms)
        if isinstance(begun, Answer):
            return _again(begun)
        renewing = Renewing(partial(_still_runs, stores, begun, runs_ms), runs_ms / 3000)
        try:
            asked = structs.replace(order.asked, key=task_key(account, key))
            response = await self._done(structs.replace(order, asked=asked))
        except BaseException:
            await renewing.end()
            await _quietly(web_keys.forget(stores, begun))
            raise
        await renewing.end()
        headers = {**response.headers, "Content-Type": response.media_type or ""}
        answer = Answer(status=response.status, headers=headers, body=response.body)
        await _quietly(web_keys.finish(stores, begun, answer))
        return response

    async def _unless_gone(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """What may take long ends when nobody waits for it any more, or the server stops."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(request.gone())
        stopping = asyncio.ensure_future(self._service.stopping.wait())
        try:
            await asyncio.wait((task, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                return task.result()  # it may have come to its end all the same
            if gone.done():
                raise ClientGone
            raise RequestRefused(Fault.UNAVAILABLE, "the server is about to stop; ask again")
        finally:
            for each in (task, gone, stopping):
                each.cancel()


def _asked(request: Request, endpoint: Endpoint, who: Visitor, preference: Preference, query: Struct | None) -> Asked:
    wait = getattr(query, "wait", None)
    if wait is None and endpoint.route.operation in _PREFERS_WAIT:
        wait = preference.wait_s
    named, tag = request.named, endpoint.route.tag
    is_tagged = tag in (Tag.HEEDED, Tag.REQUIRED)
    account = None if who.caller is None else who.caller.user.id
    return Asked(
        actor=account or f"http:{who.address}",
        author=account,
        caller=who.caller,
        access=who.access,
        if_match=named.get("if-match") if is_tagged else None,
        if_none_match=named.get("if-none-match") if is_tagged else None,
        tag_required=tag is Tag.REQUIRED,
        wait_s=float(wait or 0),
        address=who.address,
        user_agent=named.get("user-agent", "")[:200],
        accept=named.get("accept", ""),
        trace=_trace(named.get("traceparent")),
        operation=endpoint.route.operation,
        path=request.path,
    )


def _trace(header: str | None) -> str | None:
    """What is none is passed over, as the standard demands."""
    return header if header is not None and read_trace(header) is not None else None


def _is_known(request: Request, response: Response) -> bool:
    tag, known = response.headers.get("ETag"), request.named.get("if-none-match")
    if tag is None or known is None:
        return False
    tags = read_tags(tag)
    return not isinstance(tags, AnyTag) and any(is_not_modified(each, known) for each in tags)


def _with_header(response: Response, name: str, value: str) -> Response:
    return structs.replace(response, headers={**response.headers, name: value})


def _again(answer: Answer) -> Response:
    headers = {name.title(): value for name, value in answer.headers.items()}
    media_type = headers.pop("Content-Type", "") or None
    return Response(answer.status, answer.body or b"", media_type, {**headers, "Idempotency-Replayed": "true"})


async def _still_runs(stores: Stores, begun: web_keys.Begun, runs_ms: int) -> None:
    await _quietly(web_keys.renew(stores, begun, runs_ms))


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """The answer goes out though it could not be kept for who asks again."""
    try:
        await work
    except AdeError as error:
        log.warning("http.key_not_settled", error=str(error))
