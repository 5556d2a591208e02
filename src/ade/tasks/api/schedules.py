"""Schedules: tasks that come again and again. Who writes one is the author of all its tasks."""

import hashlib
from functools import partial

import msgspec

from ade.accounts.model import Permission
from ade.server.operations import RequestContext, Services, cut
from ade.server.pagination import Page, VersionedRecord
from ade.server.registry import operation
from ade.server.routing import ETagUse
from ade.tasks import schedules
from ade.tasks.api.requests import ListSchedules, PutSchedule
from ade.tasks.cron import next_fire_ms
from ade.tasks.definitions import arguments_by_name
from ade.tasks.model import Schedule, Task

_VERSION_BYTES = 6  # a whole number that every reader of JSON can hold


@operation("GET /schedules", permission=Permission.READ)
async def list_schedules(office: Services, asked: RequestContext, query: ListSchedules) -> Page[Schedule]:
    """Tasks that come again and again."""
    return cut("schedules", query, await office.stores.schedules.list_schedules())


@operation("GET /schedules/{schedule}", permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_schedule(office: Services, asked: RequestContext, schedule: str) -> VersionedRecord[Schedule]:
    """One schedule."""
    return _tagged(await schedules.get(office.stores, schedule))


@operation("PUT /schedules/{schedule}", permission=Permission.OPERATE, tag=ETagUse.HEEDED)
async def put_schedule(
    office: Services, asked: RequestContext, schedule: str, body: PutSchedule
) -> VersionedRecord[Schedule]:
    """Make or replace a schedule. With If-Match, only if it is still as it was seen; a firing in between counts as a
    change."""
    seen = await schedules.find(office.stores, schedule)
    asked.check_version(None if seen is None else _version(seen))
    next_fire_ms(body.cron, body.timezone, office.stores.clock.now())  # the line first: it is what is new here
    definition, args = await arguments_by_name(
        office.stores, body.task_name, body.args, allow_unknown=body.allow_unknown
    )
    made = Schedule(
        name=schedule,
        cron=body.cron,
        task_name=body.task_name,
        timezone=body.timezone,
        queue=definition.queue if body.queue is None else body.queue,
        args=args,
        priority=definition.priority if body.priority is None else body.priority,
        paused=body.paused,
    )
    if asked.if_match is None or seen is None:
        return _tagged(await schedules.put(office.stores, made, actor=_author(asked)))
    return _tagged(await schedules.replace(office.stores, seen, made, actor=_author(asked)))


@operation("POST /schedules/{schedule}/pause", permission=Permission.OPERATE)
async def pause_schedule(office: Services, asked: RequestContext, schedule: str) -> Schedule:
    """Let it fire no more."""
    return await schedules.pause(office.stores, schedule, actor=_author(asked))


@operation("POST /schedules/{schedule}/resume", permission=Permission.OPERATE)
async def resume_schedule(office: Services, asked: RequestContext, schedule: str) -> Schedule:
    """Let it fire again."""
    return await schedules.resume(office.stores, schedule, actor=_author(asked))


@operation("POST /schedules/{schedule}/fire", permission=Permission.OPERATE)
async def fire_schedule(office: Services, asked: RequestContext, schedule: str) -> Task:
    """Enqueue its task now. Later firings are not affected."""
    from ade.approvals.submission import enqueue_guarded
    from ade.settings.runtime import default_timeout_ms

    limit = partial(default_timeout_ms, office.stores)
    return await schedules.fire_now(
        office.stores, office.payloads, office.defaults, schedule, limit, enqueue_guarded, actor=_author(asked)
    )


def _author(asked: RequestContext) -> str:
    return asked.author or asked.actor


def _tagged(schedule: Schedule) -> VersionedRecord[Schedule]:
    return VersionedRecord(schedule, _version(schedule))


def _version(schedule: Schedule) -> int:
    """Schedules have no number of their own; what is different has another one."""
    return int.from_bytes(hashlib.blake2b(msgspec.json.encode(schedule), digest_size=_VERSION_BYTES).digest())


@operation("DELETE /schedules/{schedule}", permission=Permission.OPERATE)
async def remove_schedule(office: Services, asked: RequestContext, schedule: str) -> None:
    """Remove a schedule."""
    await schedules.remove(office.stores, schedule, actor=_author(asked))
