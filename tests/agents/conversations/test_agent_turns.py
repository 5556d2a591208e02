"""An agent is fed turn by turn: one task for each batch, in the session of the last one, and never twice."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ade import Task
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.agent_consumer import AgentConsumer, ids_of, prompt_of
from ade.agents.conversations.batch_lease import in_flight_count, in_flight_turn_in
from ade.agents.conversations.consumer_loop import IDLE, SETTLED, TAKEN
from ade.agents.conversations.inbox import TURN
from ade.agents.conversations.model import ItemBatch, ItemKind, ItemSource, StoredItem
from ade.errors import InvalidTask, QueueFull, StoreUnavailable
from ade.tasks.service import cancel
from tests.agents.conversations.coding_agent import TALK, Coder, tasks_of, turns
from tests.agents.conversations.consumers import Points, Waterworks
from tests.domain import AgentProgress, DurableInbox, Inbox, enqueue
from tests.worker.harness import Gate, Workshop, soon


async def test_every_batch_is_a_turn_in_the_session_of_the_last_one(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "write it", "in Python")
    await works.say(TALK, "now test it", alone=True)

    async with shop.worker(), works.house(turns(shop)):
        await works.until_empty(TALK)

    assert coder.calls == [
        {"prompt": "write it\nin Python"},
        {"prompt": "now test it", "session_id": "session-1", "agent_id": "agent-1"},
    ]
    tasks = await tasks_of(shop)
    assert [task.idempotency_key for task in tasks] == [f"turn:talk:{task.id}" for task in tasks]
    assert {task.concurrency_key for task in tasks} == {"conversation:talk"}
    assert [task.description for task in tasks] == ["write it", "now test it"]
    assert (await works.inbox(TALK)).memory == {"session_id": "session-1", "agent_id": "agent-1"}
    assert await works.confirmed(TALK) == ["q-1", "q-2", "q-3"]


async def test_a_turn_that_was_begun_is_taken_again_as_it_was(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    """The first try ends after the task is stored and before anybody knows; then more items come."""
    await works.say(TALK, "one", "two")
    crashes = 1

    async def crash_once(tasks: Sequence[Task]) -> list[Task]:
        nonlocal crashes
        stored = await enqueue(shop.stores, shop.payloads, tasks)
        if crashes:
            crashes -= 1
            await works.say(TALK, "three")
            raise RuntimeError("all is lost")
        return stored

    async with shop.worker(), works.house(turns(shop, crash_once)):
        await works.until_empty(TALK)

    assert coder.prompts == ["one\ntwo", "three"]
    assert len(await tasks_of(shop)) == 2
    assert await works.confirmed(TALK) == ["q-1", "q-2", "q-3"]


async def test_a_turn_that_was_begun_but_not_enqueued_is_enqueued_by_the_next(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one")
    refusals = 1

    async def full_once(tasks: Sequence[Task]) -> list[Task]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            inbox = await works.inbox(TALK)
            assert in_flight_turn_in(inbox.memory) is not None  # it is remembered before
            raise QueueFull
        return await enqueue(shop.stores, shop.payloads, tasks)

    async with shop.worker(), works.house(turns(shop, full_once)):
        await works.until_empty(TALK)

    assert coder.prompts == ["one"]


async def test_whoever_takes_over_waits_for_the_same_task(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    await works.say(TALK, "one")
    coder.gate = Gate()

    async with shop.worker():
        async with works.house(turns(shop), grace_s=0.0):
            await soon(coder.gate.reached)
        await works.say(TALK, "two")
        assert (await works.inbox(TALK)).length == 2

        async with works.house(turns(shop)):
            coder.gate.open()
            await works.until_empty(TALK)

    assert coder.prompts == ["one", "two"]
    assert await works.confirmed(TALK) == ["q-1", "q-2"]


async def test_a_conversation_that_is_reset_forgets_what_a_begun_turn_learns(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one")
    coder.gate = Gate()

    async with shop.worker():
        async with works.house(turns(shop), grace_s=0.0):
            await soon(coder.gate.reached)
        await DurableInbox(works.stores, TALK).reset()
        async with works.house(turns(shop)):
            coder.gate.open()
            await works.until_empty(TALK)

    assert (await works.inbox(TALK)).memory == {}


async def test_a_turn_that_fails_for_good_is_given_up_and_its_task_is_a_dead_letter(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one", "two", alone=True)
    coder.broken = True
    points = Points(works.probe, SETTLED)

    async with shop.worker(), works.house(turns(shop)):
        await points.until(SETTLED, TALK)
        coder.broken = False
        await works.until_empty(TALK)

    [failed, *_] = await tasks_of(shop)
    assert failed.status == "failed"
    [first, *_] = await works.events("inbox.cleared")
    assert (first.payload["reason"], first.payload["item_ids"]) == ("error", ["q-1"])


async def test_what_a_failed_turn_knew_of_its_session_is_kept(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    await works.say(TALK, "one")
    feed, gate = turns(shop), Gate()
    coder.gate, coder.broken = gate, True

    async with shop.worker(), works.house(feed):
        await soon(gate.reached)
        [task] = await tasks_of(shop)
        progress = AgentProgress(subagent_type="coder", session_id="session-9")
        assert task.run_id is not None
        await shop.stores.tasks.report_progress(task.id, task.run_id, Raw(msgspec.json.encode(progress)))
        gate.open()
        await works.until_empty(TALK)

    assert (await works.inbox(TALK)).memory == {"session_id": "session-9"}


async def test_a_turn_that_somebody_cancels_is_over(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    await works.say(TALK, "one")
    coder.gate = Gate()

    async with shop.worker(), works.house(turns(shop)):
        await soon(coder.gate.reached)
        [task] = await tasks_of(shop)
        await cancel(shop.stores, task.id, actor="anna")
        await works.until_empty(TALK)

    [cleared] = await works.events("inbox.cleared")
    assert cleared.payload["reason"] == "cancelled"
    assert TURN not in (await works.inbox(TALK)).memory


async def test_a_turn_that_may_never_be_enqueued_does_not_block_the_next(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "forbidden", "fine", alone=True)

    async def guarded(tasks: Sequence[Task]) -> list[Task]:
        if tasks[0].arguments()["prompt"] == "forbidden":
            raise InvalidTask("not here")
        return await enqueue(shop.stores, shop.payloads, tasks)

    async with shop.worker(), works.house(turns(shop, guarded)):
        await works.until_empty(TALK)

    assert coder.prompts == ["fine"]


async def test_a_turn_whose_items_were_removed_is_waited_for_all_the_same(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    """Two turns of one conversation at once would not know of each other."""
    await works.say(TALK, "one")
    coder.gate = Gate()
    points = Points(works.probe, TAKEN, IDLE)

    async with shop.worker():
        async with works.house(turns(shop), grace_s=0.0):
            await soon(coder.gate.reached)
        await works.stores.inboxes.write(conversations_rules.remove(await works.inbox(TALK), "q-1"))
        await works.say(TALK, "two")

        async with works.house(turns(shop)):
            await points.until(TAKEN, TALK, 2)
            assert coder.prompts == ["one"]
            coder.gate.open()
            await points.until(IDLE, TALK)

    assert coder.calls == [{"prompt": "one"}, {"prompt": "two", "session_id": "session-1", "agent_id": "agent-1"}]


async def test_a_large_report_is_no_hindrance(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    await works.say(TALK, "x" * 200_000)

    async with shop.worker(), works.house(turns(shop)):
        await works.until_empty(TALK)

    assert (await works.inbox(TALK)).memory["session_id"] == "session-1"


def batch_of(*items: dict[str, Any]) -> ItemBatch:
    made = tuple(
        StoredItem(id=f"q-{seq}", seq=seq, enqueued_at=0, **{"kind": ItemKind.MESSAGE, **fields})
        for seq, fields in enumerate(items, 1)
    )
    return ItemBatch(batch_id="batch-1", items=made, merged_count=len(made), queue_len_after=0)


def test_parts_that_are_no_text_are_given_as_json() -> None:
    batch = batch_of(
        {"content": [{"type": "text", "text": "look: "}, {"type": "image", "source": {"url": "a.png"}}]},
        {"kind": ItemKind.TASK_NOTIFICATION, "source": ItemSource.TASK_NOTIFICATION, "text": "it is done"},
    )
    assert prompt_of(batch) == 'look: {"type":"image","source":{"url":"a.png"}}\nit is done'


def test_items_that_name_an_agent_or_a_conversation_are_for_these() -> None:
    memory = {"session_id": "s", "agent_id": "a", "conversation_id": "c", "other": 1}
    assert ids_of(batch_of({"content": ""}), memory) == {"session_id": "s", "agent_id": "a", "conversation_id": "c"}
    same = batch_of({"content": "", "agent_id": "a", "conversation_id": "c"})
    assert ids_of(same, memory) == {"session_id": "s", "agent_id": "a", "conversation_id": "c"}
    for another in ({"conversation_id": "d"}, {"agent_id": "b"}):
        assert ids_of(batch_of({"content": "", **another}), memory) == another  # a session is not shared


def test_a_mark_that_somebody_else_has_written_is_none() -> None:
    items = batch_of({"content": "1"}, {"content": "2"}, {"content": "3"}).items
    turn = {"first": 1, "last": 2, "task": "t"}
    assert in_flight_count(Inbox(id="x", items=items, memory={TURN: turn})) == 2
    assert in_flight_count(Inbox(id="x", items=items[2:], memory={TURN: turn})) == 0
    for strange in (None, 3, "x", {"last": 2}, {"first": "a", "last": "b", "task": "t"}):
        assert in_flight_count(Inbox(id="x", items=items, memory={TURN: strange})) == 0


async def test_waiting_for_a_turn_outlives_a_store_that_is_away(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one")
    coder.gate, troubles = Gate(), 0

    async def get(task_ids: Sequence[str]) -> list[Task | None]:
        nonlocal troubles
        if coder.calls and troubles < 2:
            troubles += 1
            raise StoreUnavailable
        return await works.stores.tasks.get(task_ids)

    async def plainly(tasks: Sequence[Task]) -> list[Task]:
        return await enqueue(shop.stores, shop.payloads, tasks)

    feed = AgentConsumer(shop.with_tasks(get=get), plainly, "coder")
    async with shop.worker(), works.house(feed):
        await soon(coder.gate.reached)
        await works.until_so(lambda: troubles == 2)
        coder.gate.open()
        await works.until_empty(TALK)

    assert coder.prompts == ["one"]
    assert await works.events("inbox.batch_returned") == []
