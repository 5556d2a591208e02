"""HTTP operations on schedules and queues. The account that writes a schedule is the author of all its tasks."""

import hashlib
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, structs

from ade.accounts.model import Permission
from ade.errors import UnknownQueue, close_names
from ade.events.model import QUEUE_LIMITED, QUEUE_PAUSED, QUEUE_RESUMED, Event
from ade.locks.model import read_priority
from ade.server.context import RequestContext, Services, cut, scope_of, writer
from ade.server.operation import ETagUse, ReadRule, operation
from ade.server.pagination import Page, VersionedRecord
from ade.server.request_types import Form, PageSize
from ade.stores.ports import WORK, Stores
from ade.tasks import schedules
from ade.tasks.admission import check_queue_name
from ade.tasks.api.requests import ListSchedules, PutSchedule
from ade.tasks.cron import next_fire_ms
from ade.tasks.definitions import arguments_by_name
from ade.tasks.model import Queue, Schedule, Task
from ade.tasks.overview import QueueView, view_queues

_VERSION_BYTES = 6  # below 2**53, which every JSON parser can represent


@operation("GET /schedules", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_schedules(services: Services, request: RequestContext, query: ListSchedules) -> Page[Schedule]:
    """Tasks that come again and again."""
    found = await services.stores.schedules.list_schedules()
    return cut("schedules", query, [each for each in found if _is_shown(request, each)])


@operation("GET /schedules/{schedule}", reads=ReadRule.SCOPED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_schedule(services: Services, request: RequestContext, schedule: str) -> VersionedRecord[Schedule]:
    """One schedule."""
    found = await schedules.get(services.stores, schedule)
    if not _is_shown(request, found):
        raise schedules.unknown(schedule)
    return _tagged(found)


def _is_shown(request: RequestContext, schedule: Schedule) -> bool:
    """Whether the caller reads a schedule; a limited account reads its own, and those of its queues."""
    scope = scope_of(request.caller)
    return scope is None or schedule.author == scope.account or scope.covers(schedule.queue, schedule.task_name)


@operation("PUT /schedules/{schedule}", permission=Permission.OPERATE, tag=ETagUse.HEEDED)
async def put_schedule(
    services: Services, request: RequestContext, schedule: str, body: PutSchedule
) -> VersionedRecord[Schedule]:
    """Make or replace a schedule. With If-Match, only if it is still as it was seen; a firing in between counts as a
    change."""
    seen = await schedules.find(services.stores, schedule)
    request.check_version(None if seen is None else _version(seen))
    next_fire_ms(body.cron, body.timezone, services.stores.clock.now())  # the new input, so checked first
    definition, args = await arguments_by_name(
        services.stores, body.task_name, body.args, allow_unknown=body.allow_unknown
    )
    made = Schedule(
        name=schedule,
        cron=body.cron,
        task_name=body.task_name,
        timezone=body.timezone,
        queue=definition.queue if body.queue is None else body.queue,
        args=args,
        priority=definition.priority if body.priority is None else read_priority(body.priority),
        paused=body.paused,
    )
    if request.if_match is None or seen is None:
        return _tagged(await schedules.put(services.stores, made, actor=writer(request)))
    return _tagged(await schedules.replace(services.stores, seen, made, actor=writer(request)))


@operation("POST /schedules/{schedule}/pause", permission=Permission.OPERATE)
async def pause_schedule(services: Services, request: RequestContext, schedule: str) -> Schedule:
    """Let it fire no more."""
    return await schedules.pause(services.stores, schedule, actor=writer(request))


@operation("POST /schedules/{schedule}/resume", permission=Permission.OPERATE)
async def resume_schedule(services: Services, request: RequestContext, schedule: str) -> Schedule:
    """Let it fire again."""
    return await schedules.resume(services.stores, schedule, actor=writer(request))


@operation("POST /schedules/{schedule}/fire", permission=Permission.OPERATE)
async def fire_schedule(services: Services, request: RequestContext, schedule: str) -> Task:
    """Enqueue its task now. Later firings are not affected."""
    actor = writer(request)
    return await schedules.fire_now(services.stores, services.defaults, schedule, services.keep, actor=actor)


def _tagged(schedule: Schedule) -> VersionedRecord[Schedule]:
    return VersionedRecord(schedule, _version(schedule))


def _version(schedule: Schedule) -> int:
    """Return a hash of the content as the version, because schedules have no version number."""
    return int.from_bytes(hashlib.blake2b(msgspec.json.encode(schedule), digest_size=_VERSION_BYTES).digest())


@operation("DELETE /schedules/{schedule}", permission=Permission.OPERATE)
async def remove_schedule(services: Services, request: RequestContext, schedule: str) -> None:
    """Remove a schedule."""
    await schedules.remove(services.stores, schedule, actor=writer(request))


# Changes to a whole queue. Each appends an event to the log.


async def get(stores: Stores, name: str, *, new: bool = False) -> Queue:
    """Return a queue; with `new`, it need not exist. Raises UnknownQueue, or InvalidTask for an invalid name."""
    known = {queue.name: queue for queue in await stores.queues.list_queues()}
    if name in known:
        return known[name]
    if not new:
        raise unknown(name, known)
    check_queue_name(name)
    return Queue(name=name)


def unknown(name: str, known: Iterable[str]) -> UnknownQueue:
    """Build the error for an unknown queue, with the closest known name if there is one."""
    nearest = close_names(name, known)
    if nearest:
        return UnknownQueue(f"no queue {name[:100]!r} exists; did you mean {nearest[0]}?")
    return UnknownQueue(f"no queue {name[:100]!r} exists", advice=f"{UnknownQueue.usual_advice}; --new creates one")


async def pause(stores: Stores, queue: Queue, *, actor: str | None = None) -> Queue:
    """Stop workers from claiming tasks of the queue."""
    return await _store(stores, structs.replace(queue, paused=True), QUEUE_PAUSED, actor, {})


async def resume(stores: Stores, queue: Queue, *, actor: str | None = None) -> Queue:
    """Let workers claim tasks of the queue again."""
    return await _store(stores, structs.replace(queue, paused=False), QUEUE_RESUMED, actor, {})


async def limit(stores: Stores, queue: Queue, max_depth: int | None, *, actor: str | None = None) -> Queue:
    """Reject new tasks while the queue has `max_depth` unfinished ones; None removes the limit."""
    limited = structs.replace(queue, max_depth=max_depth)
    return await _store(stores, limited, QUEUE_LIMITED, actor, {"max_depth": max_depth})


async def _store(stores: Stores, queue: Queue, kind: str, actor: str | None, about: dict[str, object]) -> Queue:
    event = Event(type=kind, at=stores.clock.now(), actor=actor, payload={"queue": queue.name, **about})
    await stores.queues.configure(queue, event)
    if not queue.paused:
        stores.wakeups.notify(WORK)
    return queue


class ListQueues(Form):
    """A page of the queues."""

    cursor: str | None = None
    limit: PageSize = 50


class PauseQueue(Form):
    """Whether a queue that does not exist yet can be paused."""

    new: bool = False  # the queue need not exist yet


class LimitQueue(Form):
    """Without `max_depth` there is no limit."""

    max_depth: Annotated[int, Meta(ge=1, le=999_999_999)] | None = None  # unfinished tasks that it takes in
    new: bool = False  # the queue need not exist yet


@operation("GET /queues", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_queues(services: Services, request: RequestContext, query: ListQueues) -> Page[QueueView]:
    """Queues with their depths and ages."""
    return cut("queues", query, await _shown_queues(services, request))


@operation("GET /queues/{queue}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_queue(services: Services, request: RequestContext, queue: str) -> QueueView:
    """One queue."""
    known = {each.name: each for each in await _shown_queues(services, request)}
    if queue not in known:
        raise unknown(queue, known)
    return known[queue]


async def _shown_queues(services: Services, request: RequestContext) -> list[QueueView]:
    """Return all queues; for a limited account, those that it is bound to."""
    found, scope = await view_queues(services.stores), scope_of(request.caller)
    return found if scope is None else [each for each in found if each.name in scope.queues]


@operation("POST /queues/{queue}/pause", permission=Permission.OPERATE)
async def pause_queue(services: Services, request: RequestContext, queue: str, body: PauseQueue) -> Queue:
    """Claim nothing from it."""
    known = await get(services.stores, queue, new=body.new)
    return await pause(services.stores, known, actor=request.actor)


@operation("POST /queues/{queue}/resume", permission=Permission.OPERATE)
async def resume_queue(services: Services, request: RequestContext, queue: str) -> Queue:
    """Claim from it again."""
    known = await get(services.stores, queue)
    return await resume(services.stores, known, actor=request.actor)


@operation("PUT /queues/{queue}/limits", permission=Permission.OPERATE)
async def limit_queue(services: Services, request: RequestContext, queue: str, body: LimitQueue) -> Queue:
    """Change how many tasks it takes."""
    known = await get(services.stores, queue, new=body.new)
    return await limit(services.stores, known, body.max_depth, actor=request.actor)
