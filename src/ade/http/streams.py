"""Server-sent events: the event log as it grows, and the lines of a task as they are written."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from ade.core.accounts.errors import NotAuthenticated
from ade.core.approvals.refusals import NotPermitted
from ade.core.feeds.filters import parse_filter
from ade.core.feeds.items import TASK_IS_FINAL, End, item_text
from ade.core.feeds.sse import block, comment, parse_seq, start_after
from ade.core.web.bodies import choose_media_type
from ade.core.web.problems import RequestRefused
from ade.core.web.routing import Route, check_access
from ade.core.web.statuses import Fault
from ade.core.web.wire import to_wire
from ade.http.callers import Visitor
from ade.http.messages import Request, Response
from ade.http.places import PlacedStream, Places
from ade.http.service import Service
from ade.operations.events import seen_by, sees_access
from ade.operations.task_access import known
from ade.operations.task_reading import first_lines
from ade.ports import DONE
from ade.queue.decisions import get

EVENT_STREAM = "text/event-stream"
RETRY_MS = 2_000
_FIRST_PAGE, _PAGE, _MOST_CHARS = 20, 500, 262_144  # lines, and what of them is sent at once: somebody may read slowly
_LOOK_S = 1.0  # lines are not announced, so that writing them stays cheap
_BREATH_S = 0.1  # between two looks, however many tasks come to their end
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def wants_stream(request: Request) -> bool:
    """Raises RequestRefused (406)."""
    return choose_media_type(request.named.get("accept"), ("application/json", EVENT_STREAM)) == EVENT_STREAM


async def stream_response(
    service: Service, places: Places, request: Request, route: Route, values: tuple[str, ...], who: Visitor
) -> Response:
    """Raises RequestRefused and InvalidFilter before anything is sent."""
    chunks = await _chunks(service, request, route, values, who)
    is_shared = service.local is not None and who.caller is service.local
    places.check(who.counted_as, is_shared=is_shared)  # nothing is awaited before it is taken
    return Response(200, media_type=EVENT_STREAM, headers=_HEADERS, stream=PlacedStream(chunks, places, who.counted_as))


async def _chunks(
    service: Service, request: Request, route: Route, values: tuple[str, ...], who: Visitor
) -> AsyncIterator[bytes]:
    still_may = _still_may(service, route, who)
    if route.operation == "get_task_output":
        after = _output_start(request)
        await known(service.office, values[0])
        return _lines(service, values[0], after, still_may)
    if service.office.feed is None:
        raise RequestRefused(Fault.UNAVAILABLE, "there are no streams of events here; ask for pages")
    fields = [(name, value) for name, value in request.pairs if name != "after"]
    wanted = seen_by(who.caller, parse_filter(fields))
    begin = start_after(request.named.get("last-event-id"), _one(request, "after"))
    return _events(service, wanted, begin, still_may)


Still = Callable[[], Coroutine[Any, Any, bool]]


def _still_may(service: Service, route: Route, who: Visitor) -> Still:
    """Whether who has opened the stream is still known and allowed: roles and tokens may be taken away meanwhile."""

    async def still_may() -> bool:
        if who.caller is None or who.caller is service.local:
            return True
        try:
            now = await service.recognise(who.credentials)
            check_access(route, now)
        except (NotAuthenticated, NotPermitted):
            return False
        return sees_access(now) or not sees_access(who.caller)

    return still_may


async def _events(service: Service, wanted: Any, begin: int | None, still_may: Still) -> AsyncIterator[bytes]:
    feed = service.office.feed
    assert feed is not None
    with feed.subscribe(wanted, begin) as subscription:
        checked = service.office.stores.clock.steady()
        yield block(retry_ms=RETRY_MS)
        async for item in subscription:
            now = service.office.stores.clock.steady()
            if now - checked >= service.recheck_ms:
                checked = now
                if not await still_may():
                    yield item_text(End("you may not see this any more"))
                    return
            yield item_text(item, retry_ms=_come_back_ms())
            if isinstance(item, End):
                return


def _come_back_ms() -> int:
    """Not the same for all who were listening."""
    return random.randint(RETRY_MS // 4, RETRY_MS * 2)


async def _lines(service: Service, task_id: str, after: int, still_may: Still) -> AsyncIterator[bytes]:
    """Lines until the task is final and all of them were sent.

    Who takes them slowly may never come to the end of what is written, so it is asked on the way whether he still may.
    """
    stores = service.office.stores
    checked, many = stores.clock.steady(), _FIRST_PAGE
    yield comment("lines of a task")
    while not service.stopping.is_set():
        seen = stores.hints.generation(DONE)
        is_final = (await get(stores, task_id)).is_final  # before reading, so that the end is read
        while page := first_lines(await stores.outputs.read_output(task_id, after, many), _MOST_CHARS):
            many = min(2 * len(page), _PAGE)
            yield b"".join(
                block(event="line", seq=line.seq, data=msgspec.json.encode(to_wire(line)).decode()) for line in page
            )
            after = page[-1].seq
            if (now := stores.clock.steady()) - checked >= service.recheck_ms:
                checked = now
                if not await still_may():
                    return
        if is_final:
            yield item_text(End(TASK_IS_FINAL))
            return
        if not await still_may():
            return
        waiting = asyncio.ensure_future(stores.hints.wait(DONE, seen, _LOOK_S))
        stopping = asyncio.ensure_future(service.stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
        await asyncio.sleep(_BREATH_S)
        yield comment()
    yield item_text(End("the server is about to stop; connect again"), retry_ms=_come_back_ms())


def _output_start(request: Request) -> int:
    unknown = sorted({name for name, _ in request.pairs} - {"after"})
    if unknown:
        raise RequestRefused(Fault.BAD_REQUEST, f"unknown parameter {unknown[0][:60]!r}; a stream takes `after`")
    told = request.named.get("last-event-id") or _one(request, "after")
    return 0 if told is None else parse_seq(told, "after")


def _one(request: Request, name: str) -> str | None:
    found = [value for each, value in request.pairs if each == name]
    if len(found) > 1:
        raise RequestRefused(Fault.BAD_REQUEST, f"{name} may be given only once")
    return found[0] if found else None
