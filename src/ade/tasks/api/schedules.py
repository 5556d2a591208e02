"""Schedules: tasks that come again and again. Who writes one is the author of all its tasks."""

import hashlib
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from ade.server.operations import RequestContext, Services, cut
from ade.server.pagination import Page, VersionedRecord
from ade.server.request_types import Form, PageSize, QueueName, TaskName
from ade.tasks import schedules
from ade.tasks.cron import next_fire_ms
from ade.tasks.definitions import arguments_by_name
from ade.tasks.model import Schedule, Task

# What is said about schedules.


class ListSchedules(Form):
    cursor: str | None = None
    limit: PageSize = 50


class PutSchedule(Form):
    """The whole schedule: what is not said is as usual, and not as it was."""

    cron: Annotated[str, Meta(min_length=1, max_length=200)]  # minute hour day month weekday
    task_name: TaskName
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    args: dict[str, Any] = field(default_factory=dict)  # of every task it makes
    queue: QueueName | None = None  # otherwise the task's own
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None  # otherwise the task's own
    paused: bool = False
    allow_unknown: bool = False  # take a name that no worker has told of


_VERSION_BYTES = 6  # a whole number that every reader of JSON can hold


async def list_schedules(office: Services, asked: RequestContext, query: ListSchedules) -> Page[Schedule]:
    return cut("schedules", query, await schedules.list_all(office.stores))


async def get_schedule(office: Services, asked: RequestContext, schedule: str) -> VersionedRecord[Schedule]:
    return _tagged(await schedules.get(office.stores, schedule))


async def put_schedule(
    office: Services, asked: RequestContext, schedule: str, body: PutSchedule
) -> VersionedRecord[Schedule]:
    """With If-Match only if it is still as it was seen; a firing in between counts as a change."""
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


async def pause_schedule(office: Services, asked: RequestContext, schedule: str) -> Schedule:
    return await schedules.pause(office.stores, schedule, actor=_author(asked))


async def resume_schedule(office: Services, asked: RequestContext, schedule: str) -> Schedule:
    return await schedules.resume(office.stores, schedule, actor=_author(asked))


async def remove_schedule(office: Services, asked: RequestContext, schedule: str) -> None:
    await schedules.remove(office.stores, schedule, actor=_author(asked))


async def fire_schedule(office: Services, asked: RequestContext, schedule: str) -> Task:
    """The firings to come stay as they are."""
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
