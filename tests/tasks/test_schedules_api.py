"""Schedules over the operations: whose their tasks are, and how nobody writes over what he has not seen."""

import asyncio
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from ade.errors import (
    AdeError,
    InvalidArguments,
    InvalidSchedule,
    InvalidTask,
    StaleWrite,
    UnknownName,
    UnknownSchedule,
)
from ade.server.etags import tag_of_version
from ade.tasks import schedules
from ade.tasks.api import queues
from ade.tasks.api.requests import ListSchedules, PutSchedule
from tests.domain import RequestRefused
from tests.server.operations import LOCAL, Operations
from tests.server.wire import received

NIGHTLY = PutSchedule(cron="0 3 * * *", task_name="greet", timezone="Europe/Berlin", args={"name": "Ada"})


async def test_a_schedule_is_made_paused_resumed_fired_and_removed(ops: Operations) -> None:
    olga = await ops.account("olga")
    made = (await queues.put_schedule(ops.services, ops.request(olga, "put_schedule"), "nightly", NIGHTLY)).record
    assert (made.author, made.timezone, made.queue, made.priority) == ("olga", "Europe/Berlin", "default", 5)
    assert made.next_at > ops.clock.now()
    assert received(made) == made

    assert (await queues.pause_schedule(ops.services, ops.request(olga, "pause_schedule"), "nightly")).paused
    assert not (await queues.resume_schedule(ops.services, ops.request(olga, "resume_schedule"), "nightly")).paused
    task = await queues.fire_schedule(ops.services, LOCAL, "nightly")
    assert (task.name, task.author_id, task.arguments()) == ("greet", "olga", {"name": "Ada"})

    listed = await queues.list_schedules(ops.services, LOCAL, ListSchedules())
    assert [one.name for one in listed.items] == ["nightly"]
    await queues.remove_schedule(ops.services, ops.request(olga, "remove_schedule"), "nightly")
    for verb in (queues.get_schedule, queues.pause_schedule, queues.remove_schedule, queues.fire_schedule):
        with pytest.raises(UnknownSchedule):
            await verb(ops.services, LOCAL, "nightly")
    told = [event for event in await ops.services.stores.events.newest(20) if event.type.startswith("schedule.")]
    assert [event.type.removeprefix("schedule.") for event in told] == ["changed", "paused", "resumed", "removed"]
    assert {event.actor for event in told} == {"olga"}


async def test_nobody_writes_over_what_he_has_not_seen(ops: Operations) -> None:
    first = await queues.put_schedule(ops.services, LOCAL, "nightly", NIGHTLY)
    seen = await queues.get_schedule(ops.services, LOCAL, "nightly")
    assert seen == first
    ops.clock.advance(1)
    at_four = structs.replace(NIGHTLY, cron="0 4 * * *")
    mine = replace(LOCAL, if_match=str(tag_of_version(seen.version)))
    changed = await queues.put_schedule(ops.services, mine, "nightly", at_four)
    assert (changed.record.cron, changed.version != seen.version) == ("0 4 * * *", True)
    with pytest.raises(RequestRefused) as refused:
        await queues.put_schedule(ops.services, mine, "nightly", NIGHTLY)
    assert refused.value.problem.status == 412
    with pytest.raises(RequestRefused):
        await queues.put_schedule(ops.services, replace(LOCAL, if_none_match="*"), "nightly", NIGHTLY)
    with pytest.raises(RequestRefused):
        await queues.put_schedule(ops.services, mine, "other", NIGHTLY)
    assert (await queues.get_schedule(ops.services, LOCAL, "nightly")).record.cron == "0 4 * * *"


async def test_of_several_who_saw_the_same_one_writes(ops: Operations) -> None:
    seen = (await queues.put_schedule(ops.services, LOCAL, "nightly", NIGHTLY)).record
    ops.clock.advance(1)
    crons = [f"{minute} 5 * * *" for minute in range(5)]

    async def write(cron: str) -> bool:
        try:
            await schedules.replace(ops.services.stores, seen, structs.replace(seen, cron=cron), actor="x")
        except StaleWrite:
            return False
        return True

    assert sum(await asyncio.gather(*map(write, crons))) == 1
    changes = [event for event in await ops.services.stores.events.newest(20) if event.type == "schedule.changed"]
    assert len(changes) == 2, "who was too late tells nothing"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"cron": "* * 31 2 *"}, InvalidSchedule),
        ({"cron": "every day"}, InvalidSchedule),
        ({"timezone": "Mars/Olympus"}, InvalidSchedule),
        ({"timezone": "../../etc/passwd"}, InvalidSchedule),
        ({"task_name": "gret"}, UnknownName),
        ({"queue": "{x}"}, InvalidTask),
        ({"task_name": "no name", "allow_unknown": True}, InvalidTask),
        ({"args": {"x": float("nan")}}, InvalidArguments),
    ],
)
async def test_what_cannot_be_is_not_stored(ops: Operations, wrong: dict[str, Any], error: type[AdeError]) -> None:
    with pytest.raises(error):
        await queues.put_schedule(ops.services, LOCAL, "nightly", structs.replace(NIGHTLY, **wrong))
    assert (await queues.list_schedules(ops.services, LOCAL, ListSchedules())).items == []
