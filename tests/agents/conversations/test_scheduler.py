"""Many conversations: one pump for each among all processes, so many at once, and none that spoils the rest."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.consumer_loop import ENDED, IDLE, LOOKED, REFUSED, RESTING, SETTLED, ConversationProbe
from ade.agents.conversations.model import ItemBatch
from ade.agents.conversations.rules import RestartLimits
from ade.agents.conversations.scheduler import resource_of
from ade.errors import StoreUnavailable
from ade.events.model import ALERT
from ade.failures import Backoff
from ade.stores.resource_ports import InboxStore
from tests.agents.conversations.consumers import Listener, Points, Waterworks
from tests.conformance.backends import BACKENDS
from tests.domain import Inbox, ReturnReason, Stores
from tests.worker.harness import Gate, Replaced, soon

QUICK = RestartLimits(most=4, window_ms=3_000, most_in_a_row=2, pause=Backoff(base_ms=0, cap_ms=0))
FOR_LONG = RestartLimits(window_ms=600_000, most_in_a_row=2, pause=Backoff(base_ms=0, cap_ms=0))


@pytest.fixture
async def other_process(tmp_path: Path, works: Waterworks) -> AsyncIterator[Stores]:
    """The same file once more, as another process has it."""
    if not (tmp_path / "ade.db").exists():
        pytest.skip("processes on a server are killed in tests/faults")
    opened = await BACKENDS["sqlite"].open(tmp_path, None)
    yield opened
    await opened.close()


async def test_two_processes_never_pump_the_same_conversation(works: Waterworks, other_process: Stores) -> None:
    await works.say("talk", "one", "two", alone=True)
    first, second, gate = Listener(), Listener(), Gate()
    first.then = lambda *_: gate()
    probe = ConversationProbe()
    points = Points(probe, REFUSED, IDLE)

    async with works.house(first) as house:
        await soon(gate.reached)
        inbox = await works.inbox("talk")
        assert inbox.lease is not None
        async with works.house(second, stores=other_process, probe=probe, poll_s=0.05):
            # The lease of the batch alone would not keep it away for ever.
            await works.stores.inboxes.write(
                conversations_rules.give_back(inbox, inbox.lease.id, ReturnReason.RELEASED)
            )
            await points.until(REFUSED, "talk", 3)
            assert second.heard == {}
            assert await works.held() == [resource_of("talk")]

            gate.open()
            house.stop.set()
            await asyncio.wait_for(house.job, 60)
            await points.until(IDLE, "talk")

    assert first.heard["talk"] == [["one"]]
    assert second.heard["talk"] == [["one"], ["two"]]  # the first one had not confirmed it: its lease was gone
    assert await works.confirmed("talk") == ["q-1", "q-2"]


async def test_only_so_many_conversations_are_served_at_once_and_all_are_served(works: Waterworks) -> None:
    talks = [f"talk-{number}" for number in range(12)]
    for talk in talks:
        await works.say(talk, "one", "two", alone=True)
    listener, three = Listener(), asyncio.Event()

    async def meet(*_: object) -> None:
        """Nobody goes on before there are three at once."""
        if listener.at_once == 3:
            three.set()
        await soon(three)

    listener.then = meet
    async with works.house(listener, most_pumps=3, idle_s=600.0):
        await works.until_empty(*talks)

    assert listener.most_at_once == 3
    assert all(listener.heard[talk] == [["one"], ["two"]] for talk in talks)


async def test_a_busy_conversation_makes_room_for_one_that_waits(works: Waterworks) -> None:
    await works.say("busy", "first", alone=True)
    listener = Listener()
    order: list[str] = []

    async def never_empty(batch: ItemBatch, inbox: Inbox) -> None:
        order.append(inbox.id)
        if inbox.id == "busy" and "quiet" not in order:
            if len(order) == 2:
                await works.say("quiet", "please", alone=True)
            await works.say("busy", f"more {len(order)}", alone=True)

    listener.then = never_empty
    async with works.house(listener, most_pumps=1, batches_in_a_row=3):
        await works.until_so(lambda: "quiet" in order)
        await works.until_empty("busy", "quiet")

    assert listener.most_at_once == 1


async def test_what_is_left_over_from_before_is_begun_little_by_little(works: Waterworks) -> None:
    talks = [f"talk-{number}" for number in range(10)]
    for talk in talks:
        await works.say(talk, "one")
    listener, begun = Listener(), list[float]()

    async def note(*_: object) -> None:
        begun.append(asyncio.get_running_loop().time())

    listener.then = note
    start = asyncio.get_running_loop().time()
    async with works.house(listener, starts_per_s=25.0):
        await works.until_empty(*talks)

    assert begun[-1] - start >= (len(talks) - 1) / 25 - 0.1  # but for those that may start together
    assert {talk: len(heard) for talk, heard in listener.heard.items()} == dict.fromkeys(talks, 1)


async def test_a_conversation_that_fails_too_often_rests_people_hear_of_it_and_it_goes_on(works: Waterworks) -> None:
    await works.say("talk", "one")
    listener, points = Listener(), Points(works.probe, RESTING)

    async def fail_twice(*_: object) -> None:
        if len(listener.heard["talk"]) <= 2:
            raise RuntimeError("not yet")

    listener.then = fail_twice
    async with works.house(listener, restarts=QUICK):
        await works.until_empty("talk")

    assert len(listener.heard["talk"]) == 3
    assert points.passed[RESTING, "talk"] == 1
    [alert] = await works.events(ALERT)
    told = alert.payload
    assert (told["what"], told["inbox_id"], told["in_a_row"]) == ("conversation_rests", "talk", 2)


async def test_those_that_rest_take_no_place_and_stay_with_their_pump(works: Waterworks) -> None:
    await works.say("bad", "one")
    listener, points = Listener(), Points(works.probe, RESTING)

    async def fail(_batch: ItemBatch, inbox: Inbox) -> None:
        if inbox.id == "bad":
            raise RuntimeError("never")

    listener.then = fail
    async with works.house(listener, restarts=FOR_LONG, most_pumps=1):
        await points.until(RESTING, "bad")
        await works.say("good", "one")
        await works.until_empty("good")
        assert resource_of("bad") in await works.held()  # no other process tries it meanwhile

    assert len(listener.heard["bad"]) == 2
    assert (await works.inbox("bad")).length == 1


async def test_what_has_failed_elsewhere_rests_before_it_is_tried(works: Waterworks) -> None:
    """Perhaps it has ended all who had it, and nobody was left to count."""
    await works.say("talk", "one")
    for _ in range(2):
        lease = await works.take_away("talk", lease_ms=0)
    listener, points = Listener(), Points(works.probe, RESTING)
    assert lease

    async with works.house(listener, restarts=FOR_LONG):
        await points.until(RESTING, "talk")

    assert listener.heard == {}


async def test_conversations_of_other_consumers_are_left_alone(works: Waterworks) -> None:
    await works.say("talk", "one", consumer="agent:critic")
    await works.say("mine", "one")
    listener = Listener()

    async with works.house(listener):
        await works.until_empty("mine")

    assert list(listener.heard) == ["mine"]
    assert (await works.inbox("talk")).length == 1


async def test_a_store_that_is_away_for_a_while_ends_nothing_for_good(works: Waterworks) -> None:
    await works.say("talk", "one")
    listener, troubles = Listener(), {"ready": 2, "load": 1, "write": 1}

    def failing(name: str) -> Any:
        real = getattr(works.stores.inboxes, name)

        async def call(*arguments: Any) -> Any:
            if troubles[name]:
                troubles[name] -= 1
                raise StoreUnavailable
            return await real(*arguments)

        return call

    flaky = cast(InboxStore, Replaced(works.stores.inboxes, {name: failing(name) for name in troubles}))
    async with works.house(listener, stores=replace(works.stores, inboxes=flaky), poll_s=0.02):
        await works.until_empty("talk")

    assert set(troubles.values()) == {0}
    assert await works.confirmed("talk") == ["q-1"]


async def test_a_confirmation_that_does_not_get_through_is_repeated_and_counts_once(works: Waterworks) -> None:
    await works.say("talk", "one")
    listener, lost = Listener(), 3

    async def write(*arguments: Any) -> None:
        nonlocal lost
        [change] = arguments
        await works.stores.inboxes.write(change)
        if listener.heard and lost:
            lost -= 1
            raise StoreUnavailable  # it was written, but the answer did not come

    flaky = cast(InboxStore, Replaced(works.stores.inboxes, {"write": write}))
    async with works.house(listener, stores=replace(works.stores, inboxes=flaky)):
        await works.until_empty("talk")
        await works.until_so(lambda: listener.at_once == 0)

    assert listener.heard["talk"] == [["one"]]
    assert await works.confirmed("talk") == ["q-1"]


async def test_rings_that_come_fast_are_answered_together(works: Waterworks) -> None:
    listener, points = Listener(), Points(works.probe, LOOKED, SETTLED)

    async with works.house(listener):
        await points.until(LOOKED, "")
        looks = points.passed[LOOKED, ""]
        for _ in range(500):
            works.stores.wakeups.notify("inbox")
        await works.say("talk", "one")
        await points.until(SETTLED, "talk")
        assert points.passed[LOOKED, ""] - looks < 50


async def test_a_house_without_work_ends_at_once(works: Waterworks) -> None:
    listener, points = Listener(), Points(works.probe, LOOKED, ENDED)

    async with works.house(listener) as running:
        await points.until(LOOKED, "")
        running.stop.set()
        await asyncio.wait_for(running.job, 60)

    assert listener.heard == {}


def test_very_long_ids_have_a_lock_of_a_possible_name() -> None:
    assert resource_of("talk") == "conversation:talk"
    long = "\N{GRINNING FACE}" * 200
    assert len(resource_of(long).encode()) < 200
    assert resource_of(long) != resource_of(long[:-1])
