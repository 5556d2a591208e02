"""One conversation: batch after batch, in order, each confirmed when its consumer is done and not before."""

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ade.agents.conversations import batch_lease, durable_inbox
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.agent_consumer import DiscardBatch
from ade.agents.conversations.consumer_loop import ENDED, IDLE, SETTLED
from ade.agents.conversations.inbox import BatchConfirmed, ClearReason, Inbox, InboxChange
from ade.agents.conversations.model import ItemBatch
from ade.errors import StaleWrite
from ade.stores.resource_ports import InboxStore
from tests.agents.conversations.consumers import Listener, Points, Waterworks
from tests.waiting import eventually
from tests.worker.harness import Gate, Replaced, soon

TALK = "talk"


async def test_batches_come_in_order_and_leave_when_they_are_done(works: Waterworks) -> None:
    await works.say(TALK, "one", "two")
    await works.say(TALK, "three", alone=True)
    await works.say(TALK, "four")
    listener = Listener()

    async with works.house(listener):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["one", "two"], ["three"], ["four"]]
    assert await works.confirmed(TALK) == ["q-1", "q-2", "q-3", "q-4"]
    assert await works.held() == []


async def test_what_a_consumer_wants_to_remember_is_there_next_time(works: Waterworks) -> None:
    await works.say(TALK, "one", "two", "three", alone=True)
    listener = Listener()

    async def count(_batch: ItemBatch, inbox: Inbox) -> dict[str, Any] | None:
        turns = inbox.memory.get("turns", 0) + 1
        return {"turns": turns} if turns < 3 else None

    listener.then = count
    async with works.house(listener):
        await works.until_empty(TALK)

    assert listener.memories == [{}, {"turns": 1}, {"turns": 2}]
    assert (await works.inbox(TALK)).memory == {"turns": 2}  # to return nothing changes nothing


async def test_what_comes_meanwhile_is_a_batch_of_its_own_and_nobody_polls_for_it(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener, gate, points = Listener(), Gate(), Points(works.probe, IDLE)
    listener.then = lambda *_: gate()

    async with works.house(listener):
        await soon(gate.reached)
        await works.say(TALK, "two", "three")
        assert (await works.inbox(TALK)).length == 2
        gate.open()
        await points.until(IDLE, TALK)
        await works.say(TALK, "four")
        await points.until(IDLE, TALK, 2)

    assert listener.heard[TALK] == [["one"], ["two", "three"], ["four"]]
    assert listener.most_at_once == 1


async def test_a_batch_that_fails_comes_again_by_itself(works: Waterworks) -> None:
    await works.say(TALK, "one")
    await works.say(TALK, "two", alone=True)
    listener = Listener()

    async def fail_twice(*_: object) -> None:
        if len(listener.heard[TALK]) <= 2:
            raise RuntimeError("not yet")

    listener.then = fail_twice
    async with works.house(listener):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["one"], ["one"], ["one"], ["two"]]
    assert await works.confirmed(TALK) == ["q-1", "q-2"]
    returned = await works.events("inbox.batch_returned")
    assert [event.payload["reason"] for event in returned] == ["failed", "failed"]


async def test_a_consumer_may_give_a_batch_up(works: Waterworks) -> None:
    await works.say(TALK, "hopeless")
    await works.say(TALK, "fine", alone=True)
    listener = Listener()

    async def choose(batch: ItemBatch, _inbox: Inbox) -> None:
        if batch.items[0].content == "hopeless":
            raise DiscardBatch(ClearReason.ERROR)

    listener.then = choose
    async with works.house(listener):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["hopeless"], ["fine"]]
    assert await works.confirmed(TALK) == ["q-2"]
    [cleared] = await works.events("inbox.cleared")
    assert (cleared.payload["reason"], cleared.payload["item_ids"]) == ("error", ["q-1"])


async def test_a_memory_that_cannot_be_kept_is_a_failure(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener = Listener()

    async def remember(*_: object) -> dict[str, Any]:
        return {"all of it": "x" * 100_000} if len(listener.heard[TALK]) == 1 else {"little": 1}

    listener.then = remember
    async with works.house(listener):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["one"], ["one"]]
    assert (await works.inbox(TALK)).memory == {"little": 1}


async def test_the_lease_is_renewed_while_the_consumer_works(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener = Listener()

    async def until_renewed(_batch: ItemBatch, inbox: Inbox) -> None:
        assert inbox.lease is not None
        first = inbox.lease.until

        async def look() -> bool:
            lease = (await works.inbox(TALK)).lease
            assert lease is not None
            return lease.until > first + 500

        await eventually(look)

    listener.then = until_renewed
    async with works.house(listener, lease_s=4.0):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["one"]]


async def test_who_has_lost_the_lease_is_stopped_and_confirms_nothing(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener, gate, stopped = Listener(), Gate(), asyncio.Event()

    async def work(*_: object) -> dict[str, Any]:
        try:
            await gate()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return {"by": "me"}

    listener.then = work
    async with works.house(listener, lease_s=4.0):
        await soon(gate.reached)
        await works.take_away(TALK)
        await soon(stopped)

        inbox = await works.inbox(TALK)
        assert inbox.lease is not None
        assert inbox.lease.holder == "thief"
        assert inbox.memory == {}
    assert await works.confirmed(TALK) == []


async def test_a_result_that_comes_too_late_is_not_confirmed(works: Waterworks) -> None:
    """It swallows that it is cancelled, and answers all the same."""
    await works.say(TALK, "one")
    listener, gate, points = Listener(), Gate(), Points(works.probe, SETTLED)

    async def stubborn(*_: object) -> dict[str, Any]:
        try:
            await gate()
        except asyncio.CancelledError:
            return {"by": "a dead one"}
        return {}

    listener.then = stubborn
    async with works.house(listener, lease_s=4.0):
        await soon(gate.reached)
        await works.take_away(TALK)
        await points.until(SETTLED, TALK)

    assert await works.confirmed(TALK) == []
    assert (await works.inbox(TALK)).memory == {}


async def test_a_batch_of_somebody_who_went_silent_is_taken_when_its_lease_is_over(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener = Listener()
    await works.take_away(TALK, lease_ms=700)
    await works.say(TALK, "two")

    async with works.house(listener, poll_s=0.1):
        await works.until_empty(TALK)

    assert listener.heard[TALK] == [["one", "two"]]  # as if it had never left


async def test_a_batch_that_is_done_is_confirmed_though_others_are_quicker(
    works: Waterworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await works.say(TALK, "one")
    monkeypatch.setattr(durable_inbox, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(batch_lease, "_AGAIN_S", 0.01)
    listener, overtaken = Listener(), 3

    async def write(change: InboxChange[Any], write_id: str | None = None) -> None:
        nonlocal overtaken
        if overtaken and any(isinstance(notice, BatchConfirmed) for notice in change.notices):
            overtaken -= 1
            raise StaleWrite
        await works.stores.inboxes.write(change, write_id)

    busy = cast(InboxStore, Replaced(works.stores.inboxes, {"write": write}))
    async with works.house(listener, stores=replace(works.stores, inboxes=busy)):
        await works.until_empty(TALK)

    assert (listener.heard[TALK], overtaken) == ([["one"]], 0)
    assert await works.confirmed(TALK) == ["q-1"]


async def test_whoever_is_stopped_lets_the_turn_finish(works: Waterworks) -> None:
    await works.say(TALK, "one", "two", alone=True)
    listener, gate = Listener(), Gate()
    listener.then = lambda *_: gate()

    async with works.house(listener) as running:
        await soon(gate.reached)
        running.stop.set()
        gate.open()
        await asyncio.wait_for(running.job, 60)

    assert listener.heard[TALK] == [["one"]]
    assert await works.confirmed(TALK) == ["q-1"]
    assert (await works.inbox(TALK)).length == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_turn_that_takes_longer_than_the_grace_is_given_back_at_no_cost(
    works: Waterworks, is_cancelled: bool
) -> None:
    await works.say(TALK, "one")
    listener, gate = Listener(), Gate()
    listener.then = lambda *_: gate()

    async with works.house(listener, grace_s=0.05) as running:
        await soon(gate.reached)
        if is_cancelled:
            running.job.cancel()
        else:
            running.stop.set()
        await asyncio.wait({running.job}, timeout=60)

    inbox = await works.inbox(TALK)
    assert (inbox.length, inbox.lease, inbox.returns) == (1, None, 0)
    [returned] = await works.events("inbox.batch_returned")
    assert returned.payload["reason"] == "released"
    assert await works.held() == []


async def test_a_pump_ends_when_nothing_comes(works: Waterworks) -> None:
    await works.say(TALK, "one")
    listener, points = Listener(), Points(works.probe, ENDED)

    async with works.house(listener, idle_s=0.05):
        await points.until(ENDED, TALK)
        assert await works.held() == []
        await works.say(TALK, "two")
        await points.until(ENDED, TALK, 2)

    assert listener.heard[TALK] == [["one"], ["two"]]


async def test_an_inbox_that_is_bound_to_somebody_else_is_left_to_him(works: Waterworks) -> None:
    await works.say(TALK, "one", "two", alone=True)
    listener, points = Listener(), Points(works.probe, ENDED)

    async def rebind(*_: object) -> None:
        await works.stores.inboxes.write(conversations_rules.bind(await works.inbox(TALK), "agent:critic"))

    listener.then = rebind
    async with works.house(listener):
        await points.until(ENDED, TALK)

    assert listener.heard[TALK] == [["one"]]
    assert (await works.inbox(TALK)).length == 1
