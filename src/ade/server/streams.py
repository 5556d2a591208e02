"""Server-sent event streams: the event log and the output lines of a task, and the limit on open streams."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from ade.accounts.model import Caller, NotAuthenticated, Permission
from ade.errors import NotPermitted
from ade.events.feed_items import TASK_IS_FINAL, EventBatch, FeedEnd, FeedEntry, item_text
from ade.events.filters import parse_filter
from ade.events.sse import block, comment, parse_seq, start_after
from ade.server.context import can_read_access_events, readable_events, scope_of, visible_filter
from ade.server.masking import masked_for
from ade.server.operation import Route, check_access
from ade.server.problems import HttpFault, RequestRefused
from ade.server.request import HttpRequest, HttpResponse, RequestCaller, ServerServices
from ade.server.request_body import choose_media_type
from ade.server.wire_format import to_wire
from ade.stores.ports import DONE
from ade.tasks.api.tasks import first_lines, readable_task
from ade.tasks.service import get

_LATER_S = 5


class StreamSlots:
    """Limits open streams, because each holds a connection: `most` per server, `most_each` per account."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._taken: Counter[str] = Counter()

    def check(self, who: str, *, is_shared: bool = False) -> None:
        """Raise RequestRefused unless a slot is free.

        A shared account (`http.auth = "off"`) has no limit of its own.
        """
        if self._taken.total() >= self._most:
            raise RequestRefused(
                HttpFault.UNAVAILABLE,
                "the maximum number of streams is open; try again later, or request pages",
                retry_after=_LATER_S,
            )
        if not is_shared and self._taken[who] >= self._most_each:
            raise RequestRefused(
                HttpFault.TOO_MANY_REQUESTS,
                f"{who} has {self._most_each} streams open, the maximum; close some, or request pages",
                retry_after=_LATER_S,
            )

    def take(self, who: str) -> None:
        self._taken[who] += 1

    def give_back(self, who: str) -> None:
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


class SlottedStream:
    """A stream that holds its slot from its creation until it is closed, even if it is never read."""

    def __init__(self, chunks: AsyncIterator[bytes], places: StreamSlots, who: str) -> None:
        self._chunks, self._places, self._who = chunks, places, who
        self._has_place = True
        places.take(who)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        if self._has_place:
            self._has_place = False
            self._places.give_back(self._who)
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


EVENT_STREAM = "text/event-stream"
RETRY_MS = 2_000
_FIRST_PAGE, _PAGE, _MOST_CHARS = 20, 500, 262_144  # lines; and characters per chunk, because a client can be slow
_LOOK_S = 1.0  # poll interval: lines send no notification, to keep writing them cheap
_BREATH_S = 0.1  # minimum time between two polls, however many tasks finish
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def wants_stream(request: HttpRequest) -> bool:
    """Return whether the Accept header prefers an event stream. Raises RequestRefused (406)."""
    return choose_media_type(request.named.get("accept"), ("application/json", EVENT_STREAM)) == EVENT_STREAM


async def stream_response(
    service: ServerServices,
    places: StreamSlots,
    request: HttpRequest,
    route: Route,
    values: tuple[str, ...],
    who: RequestCaller,
) -> HttpResponse:
    """Open a stream. Raises RequestRefused and InvalidFilter before anything is sent."""
    chunks = await _chunks(service, request, route, values, who)
    is_shared = service.local is not None and who.caller is service.local
    places.check(who.counted_as, is_shared=is_shared)  # no await between this check and taking the slot
    return HttpResponse(
        200, media_type=EVENT_STREAM, headers=_HEADERS, stream=SlottedStream(chunks, places, who.counted_as)
    )


async def _chunks(
    service: ServerServices, request: HttpRequest, route: Route, values: tuple[str, ...], who: RequestCaller
) -> AsyncIterator[bytes]:
    still_may = _still_may(service, route, who)
    if route.operation == "get_task_output":
        after = _output_start(request)
        await readable_task(service.services, who.caller, values[0])
        return _lines(service, values[0], after, still_may, who.caller)
    if service.services.feed is None:
        raise RequestRefused(HttpFault.UNAVAILABLE, "there are no event streams here; request pages")
    fields = [(name, value) for name, value in request.pairs if name != "after"]
    wanted = visible_filter(who.caller, parse_filter(fields))
    begin = start_after(request.named.get("last-event-id"), _one(request, "after"))
    return _events(service, wanted, begin, still_may, who.caller)


Still = Callable[[], Coroutine[Any, Any, bool]]


def _still_may(service: ServerServices, route: Route, who: RequestCaller) -> Still:
    """Return a function that checks whether the caller still has access.

    Roles and tokens can be revoked while the stream is open.
    """

    async def still_may() -> bool:
        if who.caller is None or who.caller is service.local:
            return True
        try:
            now = await service.recognise(who.credentials)
            check_access(route, now)
        except (NotAuthenticated, NotPermitted):
            return False
        assert now is not None
        if scope_of(now) != scope_of(who.caller) or _sees_payloads(who.caller) > _sees_payloads(now):
            return False
        return can_read_access_events(now) or not can_read_access_events(who.caller)

    return still_may


def _sees_payloads(caller: Caller) -> bool:
    return Permission.READ_PAYLOADS in caller.permissions


async def _events(
    service: ServerServices, wanted: Any, begin: int | None, still_may: Still, caller: Caller | None
) -> AsyncIterator[bytes]:
    feed = service.services.feed
    assert feed is not None
    with feed.subscribe(wanted, begin) as subscription:
        checked = service.services.stores.clock.steady()
        yield block(retry_ms=RETRY_MS)
        async for item in subscription:
            now = service.services.stores.clock.steady()
            if now - checked >= service.recheck_ms:
                checked = now
                if not await still_may():
                    yield item_text(FeedEnd("you no longer have access to this"))
                    return
            shown = await _shown(service, caller, item) if isinstance(item, EventBatch) else item
            if shown is not None:
                yield item_text(shown, retry_ms=_come_back_ms())
            if isinstance(item, FeedEnd):
                return


async def _shown(service: ServerServices, caller: Caller | None, batch: EventBatch) -> EventBatch | None:
    """Return the events of a batch that the caller reads, with masks; the batch itself if that is all of it."""
    events = batch.events
    shown = await masked_for(service.services, caller, await readable_events(service.services, caller, events))
    if shown is events:
        return batch
    return EventBatch([FeedEntry(event) for event in shown]) if shown else None


def _come_back_ms() -> int:
    """A random reconnect delay, so that not all clients reconnect at the same moment."""
    return random.randint(RETRY_MS // 4, RETRY_MS * 2)


async def _lines(
    service: ServerServices, task_id: str, after: int, still_may: Still, caller: Caller | None = None
) -> AsyncIterator[bytes]:
    """Yield lines until the task is final and every line was sent.

    A slow client might never reach the last line, so access is also checked between pages.
    """
    stores = service.services.stores
    checked, many = stores.clock.steady(), _FIRST_PAGE
    yield comment("lines of a task")
    while not service.stopping.is_set():
        seen = stores.wakeups.generation(DONE)
        is_final = (await get(stores, task_id)).is_final  # before reading, so that no last line is missed
        while page := first_lines(await stores.outputs.read_output(task_id, after, many), _MOST_CHARS):
            many = min(2 * len(page), _PAGE)
            yield b"".join(
                block(event="line", seq=line.seq, data=msgspec.json.encode(to_wire(line)).decode())
                for line in await masked_for(service.services, caller, page)
            )
            after = page[-1].seq
            if (now := stores.clock.steady()) - checked >= service.recheck_ms:
                checked = now
                if not await still_may():
                    return
        if is_final:
            yield item_text(FeedEnd(TASK_IS_FINAL))
            return
        if not await still_may():
            return
        waiting = asyncio.ensure_future(stores.wakeups.wait(DONE, seen, _LOOK_S))
        stopping = asyncio.ensure_future(service.stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
        await asyncio.sleep(_BREATH_S)
        yield comment()
    yield item_text(FeedEnd("the server is stopping; reconnect"), retry_ms=_come_back_ms())


def _output_start(request: HttpRequest) -> int:
    unknown = sorted({name for name, _ in request.pairs} - {"after"})
    if unknown:
        raise RequestRefused(HttpFault.BAD_REQUEST, f"unknown parameter {unknown[0][:60]!r}; a stream takes `after`")
    last_seq = request.named.get("last-event-id") or _one(request, "after")
    return 0 if last_seq is None else parse_seq(last_seq, "after")


def _one(request: HttpRequest, name: str) -> str | None:
    found = [value for each, value in request.pairs if each == name]
    if len(found) > 1:
        raise RequestRefused(HttpFault.BAD_REQUEST, f"{name} may be given only once")
    return found[0] if found else None
