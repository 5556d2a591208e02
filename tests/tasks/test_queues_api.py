"""Queues over the operations: how full they are, and what an operator does about it."""

import pytest

from ade import Status
from ade.errors import InvalidTask, NotPermitted, QueueFull, UnknownQueue
from ade.tasks.api import queues
from ade.tasks.api.create import create_task
from ade.tasks.api.queues import LimitQueue, ListQueues, PauseQueue
from tests.domain import NewTask, Role
from tests.server.operations import LOCAL, Operations
from tests.server.wire import received


async def test_queues_are_seen_with_depth_and_age(ops: Operations) -> None:
    for queue in ("default", "mail", "mail"):
        await create_task(ops.services, LOCAL, NewTask(name="greet", queue=queue))
    ops.clock.advance(2)
    seen = await queues.get_queue(ops.services, LOCAL, "mail")
    assert (seen.by_status[Status.PENDING], seen.unfinished, seen.oldest_ready_ms) == (2, 2, 2_000)
    assert received(seen) == seen
    first = await queues.list_queues(ops.services, LOCAL, ListQueues(limit=1))
    rest = await queues.list_queues(ops.services, LOCAL, ListQueues(limit=1, cursor=first.next))
    assert [one.name for page in (first, rest) for one in page.items] == ["default", "mail"]


async def test_a_queue_is_paused_limited_and_resumed(ops: Operations) -> None:
    olga = await ops.account("olga")
    await create_task(ops.services, LOCAL, NewTask(name="greet", queue="mail"))
    paused = await queues.pause_queue(ops.services, ops.request(olga, "pause_queue"), "mail", PauseQueue())
    assert paused.paused
    limited = await queues.limit_queue(ops.services, ops.request(olga, "limit_queue"), "mail", LimitQueue(max_depth=1))
    assert (limited.paused, limited.max_depth) == (True, 1)
    with pytest.raises(QueueFull):
        await create_task(ops.services, LOCAL, NewTask(name="greet", queue="mail"))
    assert not (await queues.resume_queue(ops.services, ops.request(olga, "resume_queue"), "mail")).paused
    assert (await queues.limit_queue(ops.services, LOCAL, "mail", LimitQueue())).max_depth is None
    told = [(event.type, event.actor) for event in await ops.services.stores.events.newest(4)]
    assert told == [
        ("queue.paused", "olga"),
        ("queue.limited", "olga"),
        ("queue.resumed", "olga"),
        ("queue.limited", "cli:tester"),
    ]


async def test_a_queue_that_is_not_there_is_made_only_if_that_is_said(ops: Operations) -> None:
    await create_task(ops.services, LOCAL, NewTask(name="greet"))
    for name in ("defualt", "{x}"):
        with pytest.raises(UnknownQueue):
            await queues.get_queue(ops.services, LOCAL, name)
        with pytest.raises(UnknownQueue):
            await queues.pause_queue(ops.services, LOCAL, name, PauseQueue())
        with pytest.raises(UnknownQueue):
            await queues.resume_queue(ops.services, LOCAL, name)
    with pytest.raises(InvalidTask):
        await queues.limit_queue(ops.services, LOCAL, "{x}", LimitQueue(max_depth=1, new=True))
    assert (await queues.pause_queue(ops.services, LOCAL, "later", PauseQueue(new=True))).paused
    listed = await queues.list_queues(ops.services, LOCAL, ListQueues())
    assert [one.name for one in listed.items] == ["default", "later"]


async def test_programs_stop_no_queue(ops: Operations) -> None:
    bot = await ops.account("bot", Role.AGENT)
    for operation in ("pause_queue", "resume_queue", "limit_queue"):
        with pytest.raises(NotPermitted):
            ops.request(bot, operation)
