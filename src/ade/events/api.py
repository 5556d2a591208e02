"""HTTP operations on the event log, its audit copy, and statistics."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta

from ade.accounts.model import Permission
from ade.errors import AuditBroken
from ade.events.audit_chain import AuditEntry, AuditLine, AuditReport, line_of
from ade.events.audit_copy import current_copy
from ade.events.filters import EVERYTHING, EventFilter, compile_filter, parse_filter
from ade.events.metrics import Series, series
from ade.events.model import Event
from ade.events.sse import LARGEST_SEQ
from ade.server.context import RequestContext, Services, page, position, readable_events, scope_of, visible_filter
from ade.server.masking import is_masked_for
from ade.server.operation import ReadRule, TrafficClass, operation
from ade.server.pagination import Page, RawContent
from ade.server.request_types import EventType, Form, InboxName, LockName, Nothing, PageSize, TaskId, described
from ade.tasks.overview import Overview, overview

Seq = Annotated[int, Meta(ge=0, le=LARGEST_SEQ)]
_Printable = Annotated[str, described(pattern="^[^\\u0000-\\u001f\\u007f-\\u00a0]{1,200}$")]
_FIELDS = ("type", "task", "queue", "name", "inbox", "lock")


class EventForm(Form):
    """Which events: all that is said must hold; of one field, any value is enough. A stream takes the same."""

    type: tuple[EventType, ...] = ()  # such as task.failed, task.* or *
    task: tuple[TaskId, ...] = ()
    queue: tuple[_Printable, ...] = ()
    name: tuple[_Printable, ...] = ()
    inbox: tuple[InboxName, ...] = ()
    lock: tuple[LockName, ...] = ()  # the resource of lock events, or one that a task waits for

    def filter(self) -> EventFilter:
        """Return the filter. Raises InvalidFilter."""
        return parse_filter((field, value) for field in _FIELDS for value in getattr(self, field))


class ListEvents(EventForm):
    """With `after` the next events behind a seq, 0 for all that is kept; otherwise the newest. Always in order."""

    after: Seq | None = None
    cursor: str | None = None
    limit: PageSize = 50


class ListAuditEntries(ListEvents):
    """The same of the audit copy."""


class ExportAudit(Form):
    """Where in the audit log an export starts."""

    after: Seq = 0


class StatsSeries(Form):
    """A time until now, or until then, in steps of whole minutes; of one queue or one name if asked."""

    since: datetime | None = None  # an hour before its end
    until: datetime | None = None
    step_s: Annotated[int, Meta(ge=60, le=31_536_000, multiple_of=60)] = 60
    queue: str | None = None
    name: str | None = None


_PAGE = 500
_MOST = 5_000  # items checked per response, so that a rare match returns soon; the cursor continues
_MOST_LIMITED = 1_000  # for a limited account, whose tasks are read for that


class _NumberedEvent(Protocol):
    @property
    def seq(self) -> int: ...


T = TypeVar("T", bound=_NumberedEvent)
Read = Callable[[int, int], Awaitable[Sequence[T]]]  # (after, limit)
Newest = Callable[[int], Awaitable[Sequence[T]]]  # (limit), oldest first
EventPredicate = Callable[[T], bool]
Readable = Callable[[Sequence[T]], Awaitable[Sequence[T]]]


@operation(
    "GET /events", reads=ReadRule.SCOPED, permission=Permission.READ, traffic=TrafficClass.STREAM, is_stream=True
)
async def list_events(services: Services, request: RequestContext, query: ListEvents) -> Page[Event]:
    """The event log, page by page or as a stream."""
    log = services.stores.events
    is_wanted = compile_filter(visible_filter(request.caller, query.filter()))
    if scope_of(request.caller) is None:
        return await looked_through("events", query, log.read, log.newest, is_wanted)
    readable = partial(readable_events, services, request.caller)
    return await looked_through("events", query, log.read, log.newest, is_wanted, readable, most=_MOST_LIMITED)


async def looked_through(
    of_list: str,
    query: ListEvents,
    read: Read[T],
    newest: Newest[T],
    is_wanted: EventPredicate[T],
    readable: Readable[T] | None = None,
    *,
    most: int = _MOST,
) -> Page[T]:
    """Return the next matching items after a position, or the newest. A page can be empty without being the last.

    `readable` omits what the caller cannot read, and `most` is how many items are checked.
    """

    async def matching(looked_at: Sequence[T]) -> Sequence[T]:
        found = [each for each in looked_at if is_wanted(each)]
        return found if readable is None else await readable(found)

    begin = position(of_list, query)
    after = begin if isinstance(begin, int) else query.after
    if after is None:
        enough = query.limit if query.filter() == EVERYTHING else most
        looked_at = await newest(enough)
        found = await matching(looked_at)
        if len(found) < query.limit and len(looked_at) == enough < most:  # the caller cannot read some of them
            found = await matching(await newest(most))
        return Page(items=found[-query.limit :])
    found, place = await _search(read, after, query.limit, matching, most)
    return page(of_list, query, found, place)


async def _search(
    read: Read[T], after: int, limit: int, matching: Readable[T], most: int
) -> tuple[list[T], int | None]:
    """Return matching items, and the seq up to which all items were checked; None at the end."""
    found: list[T] = []
    for _ in range(most // _PAGE):
        looked_at = await read(after, _PAGE)
        found += (await matching(looked_at))[: limit - len(found)]
        if len(found) == limit:
            return found, found[-1].seq
        after = looked_at[-1].seq if looked_at else after
        if len(looked_at) < _PAGE:
            return found, None
    return found, after


@operation("GET /audit", reads=ReadRule.ALL, permission=Permission.OPERATE)
async def list_audit_entries(services: Services, request: RequestContext, query: ListAuditEntries) -> Page[AuditLine]:
    """The tamper-evident copy of the event log. Entries that cannot be read match every filter, so that they are
    noticed."""
    fits = compile_filter(query.filter())
    if services.audit is None:
        return Page(items=())
    async with current_copy(services.stores.events, services.audit) as copy:

        async def read(after: int, limit: int) -> Sequence[AuditLine]:
            return [line_of(entry) for entry in await copy.entries(after, limit)]

        async def newest(limit: int) -> Sequence[AuditLine]:
            return [line_of(entry) for entry in await copy.last_entries(limit)]

        return await looked_through("audit", query, read, newest, lambda line: line.event is None or fits(line.event))


@operation(
    "POST /audit/verify", reads=ReadRule.ALL, permission=Permission.OPERATE, mutates=False, traffic=TrafficClass.STREAM
)
async def verify_audit(services: Services, request: RequestContext, body: Nothing) -> AuditReport:
    """Verify the audit copy: its chain, and the records of governed tasks, accounts, and others.

    Reads the whole chain, which can take long. A broken chain is a result, not an error."""
    if services.audit is None:
        return AuditReport(holds=True, entries=0)
    log = services.stores.events
    try:
        with services.exclusively("verifying the audit copy"):
            async with current_copy(log, services.audit) as copy:
                from ade.approvals.audit_check import audit_report  # loads all approval rules

                return await audit_report(services.stores, copy)
    except AuditBroken as broken:
        return AuditReport(holds=False, entries=0, broken=broken.detail, advice=broken.advice or None)


@operation(
    "GET /audit/export",
    reads=ReadRule.ALL,
    permission=Permission.ADMINISTER,
    traffic=TrafficClass.STREAM,
    media_types=("application/x-ndjson",),
    is_download=True,
)
async def export_audit(services: Services, request: RequestContext, query: ExportAudit) -> RawContent:
    """All of it, as a file. JSON lines with the seq, the hash, and the event byte for byte as it was copied, so that
    others can verify it. If payloads would be masked for the caller, it is not permitted: masks break the hashes."""
    if await is_masked_for(services, request.caller):
        request.require(Permission.READ_PAYLOADS)
    if services.audit is not None:
        async with current_copy(services.stores.events, services.audit):
            pass  # report errors before the response starts
    return RawContent(
        media_type="application/x-ndjson", body=_lines(services, query.after), file_name="ade-audit.jsonl"
    )


async def _lines(services: Services, after: int) -> AsyncIterator[bytes]:
    if services.audit is None:
        return
    async with services.audit.open() as copy:
        while entries := await copy.entries(after, _PAGE):
            yield b"".join(_line(entry) for entry in entries)
            after = entries[-1].seq


def _line(entry: AuditEntry) -> bytes:
    return msgspec.json.encode({"seq": entry.seq, "hash": entry.hash, "event": msgspec.Raw(entry.body)}) + b"\n"


_HOUR_MS = 3_600_000


@operation("GET /stats", reads=ReadRule.ALL, permission=Permission.READ)
async def get_stats(services: Services, request: RequestContext) -> Overview:
    """Depths, ages, throughput and workers now."""
    return await overview(services.stores)


@operation("GET /stats/series", reads=ReadRule.ALL, permission=Permission.READ)
async def get_stats_series(services: Services, request: RequestContext, query: StatsSeries) -> Series:
    """The same over time, for charts."""
    until = services.stores.clock.now() if query.until is None else _ms(query.until)
    since = max(until - _HOUR_MS, 0) if query.since is None else _ms(query.since)
    return await series(
        services.stores, since=since, until=until, step_s=query.step_s, queue=query.queue, name=query.name
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
