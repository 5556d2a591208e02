"""Schedules: tasks that come again and again. Who writes one is the author of all its tasks."""

import hashlib
from functools import partial

import msgspec

from ade.core.records import Schedule, Task
from ade.core.schedule import next_fire_ms
from ade.core.web.forms.schedules import ListSchedules, PutSchedule
from ade.operations.kit import Asked, Office, Page, Tagged
from ade.operations.paging import cut
from ade.queue import schedules as use_cases
from ade.queue.names import arguments_by_name

_VERSION_BYTES = 6  # a whole number that every reader of JSON can hold


async def list_schedules(office: Office, asked: Asked, query: ListSchedules) -> Page[Schedule]:
    return cut("schedules", query, await use_cases.list_all(office.stores))


async def get_schedule(office: Office, asked: Asked, schedule: str) -> Tagged[Schedule]:
    return _tagged(await use_cases.get(office.stores, schedule))


async def put_schedule(office: Office, asked: Asked, schedule: str, body: PutSchedule) -> Tagged[Schedule]:
    """With If-Match only if it is still as it was seen; a firing in between counts as a change."""
    seen = await use_cases.find(office.stores, schedule)
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
        return _tagged(await use_cases.put(office.stores, made, actor=_author(asked)))
    return _tagged(await use_cases.replace(office.stores, seen, made, actor=_author(asked)))


async def pause_schedule(office: Office, asked: Asked, schedule: str) -> Schedule:
    return await use_cases.pause(office.stores, schedule, actor=_author(asked))


async def resume_schedule(office: Office, asked: Asked, schedule: str) -> Schedule:
    return await use_cases.resume(office.stores, schedule, actor=_author(asked))


async def remove_schedule(office: Office, asked: Asked, schedule: str) -> None:
    await use_cases.remove(office.stores, schedule, actor=_author(asked))


async def fire_schedule(office: Office, asked: Asked, schedule: str) -> Task:
    """The firings to come stay as they are."""
    from ade.governance.firing import keep_guarded
    from ade.governance.runtime import default_timeout_ms

    limit = partial(default_timeout_ms, office.stores)
    return await use_cases.fire_now(
        office.stores, office.payloads, office.defaults, schedule, limit, keep_guarded, actor=_author(asked)
    )


def _author(asked: Asked) -> str:
    return asked.author or asked.actor


def _tagged(schedule: Schedule) -> Tagged[Schedule]:
    return Tagged(schedule, _version(schedule))


def _version(schedule: Schedule) -> int:
    """Schedules have no number of their own; what is different has another one."""
    return int.from_bytes(hashlib.blake2b(msgspec.json.encode(schedule), digest_size=_VERSION_BYTES).digest())
