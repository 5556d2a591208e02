"""DurableInbox: the verbs of QueueRuntime on a store that others use too."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.memory_inbox import QueueCallbacks
from ade.agents.conversations.model import InboxLimits, InvalidInboxItem, ItemBatch, StoredItem
from ade.agents.conversations.rules import DuplicateItem
from ade.errors import InvalidInbox, StaleLease, StaleWrite
from ade.testing import TestClock
from tests.agents.conversations.items import barrier, message, notification
from tests.conformance.backends import sound
from tests.domain import BlockedReason, ClearReason, DurableInbox, ReturnReason, Stores, StoreSettings, open_sqlite

LEASE: dict[str, Any] = {"holder": "here", "lease_ms": 30_000}


@pytest.fixture
async def stores(tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    async with sound(
        await open_sqlite(f"sqlite:///{tmp_path / 'ade.db'}", StoreSettings(ballast_mb=0), clock)
    ) as opened:
        yield opened


@pytest.fixture
def inbox(stores: Stores) -> DurableInbox:
    return DurableInbox(stores, "conv-1")


def ids(batch: ItemBatch | None) -> list[str]:
    return [] if batch is None else [item.id for item in batch.items]


async def test_it_does_what_a_queue_in_memory_does(stores: Stores) -> None:
    told: list[tuple[object, ...]] = []
    inbox = DurableInbox(
        stores,
        "conv-1",
        limits=InboxLimits(max_items=3, hard_max_items=3),
        callbacks=QueueCallbacks(
            on_enqueued=lambda item, length: told.append(("enqueued", item.id, length)),
            on_dequeued=lambda batch: told.append(("dequeued", ids(batch), batch.queue_len_after)),
            on_blocked=lambda reason, length: told.append(("blocked", reason, length)),
            on_dropped=lambda item, reason, length: told.append(("dropped", item.id, reason, length)),
            on_removed=lambda item, length: told.append(("removed", item.id, length)),
            on_cleared=lambda reason, count, items: told.append(("cleared", reason, count, len(items))),
        ),
    )
    for item in (message("a"), message("b"), barrier(), message("refused")):
        await inbox.enqueue(item)
    for _ in range(2):
        assert await inbox.try_dequeue(BlockedReason.STREAMING) is None
    await inbox.reset_blocked_state()
    await inbox.try_dequeue(BlockedReason.STREAMING)
    assert [item.content for item in await inbox.peek()] == ["a", "b", None]
    await inbox.remove("q-1")
    assert await inbox.remove("q-1") is None
    assert ids(await inbox.try_dequeue(None)) == ["q-2"]
    assert ids(await inbox.consume_items(5)) == ["q-3"]
    assert (await inbox.consume_items(1), await inbox.length()) == (None, 0)
    await inbox.clear(ClearReason.PROCESSED)

    assert told == [
        ("enqueued", "q-1", 1),
        ("enqueued", "q-2", 2),
        ("enqueued", "q-3", 3),
        ("dropped", "q-4", "buffer_limit", 3),
        ("blocked", "streaming", 3),
        ("blocked", "streaming", 3),
        ("removed", "q-1", 2),
        ("dequeued", ["q-2"], 1),
        ("dequeued", ["q-3"], 0),
        ("cleared", "processed", 0, 0),
    ]


async def test_what_a_callback_raises_is_logged_and_goes_no_further(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(item: StoredItem, length: int) -> None:
        raise ValueError("I cannot hear you")

    inbox = DurableInbox(stores, "conv-1", callbacks=QueueCallbacks(on_enqueued=broken))

    with caplog.at_level(logging.WARNING, logger="ade"):
        assert await inbox.enqueue(message("my secret")) is not None

    assert "on_enqueued" in caplog.text
    assert "I cannot hear you" in caplog.text
    assert "my secret" not in caplog.text


async def test_many_who_put_in_at_once_all_get_their_turn(stores: Stores) -> None:
    async def put(number: int) -> None:
        await DurableInbox(stores, "conv-1").enqueue(message(str(number)))

    await asyncio.gather(*map(put, range(100)))

    items = await DurableInbox(stores, "conv-1").peek()
    assert [item.id for item in items] == [f"q-{number}" for number in range(1, 101)]
    assert sorted(str(item.content) for item in items) == sorted(map(str, range(100)))


async def test_they_stand_in_line_so_nobody_reads_in_vain(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, load = 0, stores.inboxes.load

    async def counted(inbox_id: str) -> Any:
        nonlocal looks
        looks += 1
        return await load(inbox_id)

    monkeypatch.setattr(stores.inboxes, "load", counted)
    await asyncio.gather(*(DurableInbox(stores, "conv-1").enqueue(message()) for _ in range(50)))

    assert looks == 50


async def test_whoever_is_overtaken_by_other_processes_is_patient(
    stores: Stores, tmp_path: Path, clock: TestClock
) -> None:
    """Each has opened the file for itself, so there is no line to stand in."""
    opened = [
        await open_sqlite(f"sqlite:///{tmp_path / 'ade.db'}", StoreSettings(ballast_mb=0), clock) for _ in range(3)
    ]
    inboxes = [DurableInbox(one, "conv-1") for one in (stores, *opened)]

    await asyncio.gather(*(inboxes[number % 4].enqueue(message(str(number))) for number in range(80)))
    for one in opened:
        await one.close()

    assert await inboxes[0].length() == 80


async def test_the_limits_of_an_inbox_hold_for_all_who_write(stores: Stores) -> None:
    small = DurableInbox(stores, "conv-1", limits=InboxLimits(max_items=2, hard_max_items=4))
    await small.enqueue(message("a"))
    for text in "bcd":
        await DurableInbox(stores, "conv-1").enqueue(message(text))

    assert [item.content for item in await small.peek()] == ["c", "d"]


async def test_of_many_who_take_at_once_one_gets_the_batch(stores: Stores) -> None:
    await DurableInbox(stores, "conv-1").enqueue(message())

    async def take(number: int) -> list[str]:
        return ids(await DurableInbox(stores, "conv-1").take(lease_id=f"l{number}", **LEASE))

    assert sorted(await asyncio.gather(*map(take, range(10)))) == [[]] * 9 + [["q-1"]]


async def test_whoever_is_always_too_late_is_told(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else writes between every look and every write."""
    inbox, other, load = DurableInbox(stores, "conv-1"), DurableInbox(stores, "conv-1"), stores.inboxes.load

    async def load_and_be_overtaken(inbox_id: str) -> Any:
        found = await load(inbox_id)
        change = conversations_rules.enqueue(found, message("quick"), limits=InboxLimits(), now=0)
        await stores.inboxes.write(change)
        return found

    monkeypatch.setattr(stores.inboxes, "load", load_and_be_overtaken)
    monkeypatch.setattr("ade.agents.conversations.durable_inbox._PATIENCE_S", 0.01)
    with pytest.raises(StaleWrite):
        await inbox.enqueue(message("slow"))
    monkeypatch.undo()

    assert {item.content for item in await other.peek()} == {"quick"}


async def test_a_batch_is_taken_renewed_and_confirmed(inbox: DurableInbox, clock: TestClock) -> None:
    await inbox.enqueue(message("a"), consumer="agent:coder")
    await inbox.enqueue(message("b"))

    assert ids(await inbox.take(lease_id="l1", **LEASE)) == ["q-1", "q-2"]
    assert ids(await inbox.take(lease_id="l1", **LEASE)) == ["q-1", "q-2"], "the answer was lost on its way"
    assert await inbox.take(lease_id="l2", **LEASE) is None
    assert await inbox.length() == 0

    clock.advance(20)
    assert (await inbox.renew("l1", lease_ms=30_000)).until == clock.steady() + 30_000
    await inbox.remember("l1", {"session_id": "s1"})
    assert ids(await inbox.confirm("l1", {"session_id": "s2"})) == ["q-1", "q-2"]
    assert await inbox.confirm("l1") is None, "once more is harmless"

    state = await inbox.state()
    assert (state.items, state.memory, state.consumer) == ((), {"session_id": "s2"}, "agent:coder")


async def test_the_batch_of_a_dead_taker_is_there_for_all_verbs(inbox: DurableInbox, clock: TestClock) -> None:
    for item in (message("a"), message("b"), barrier()):
        await inbox.enqueue(item)
    await inbox.take(lease_id="dead", **LEASE)
    assert await inbox.remove("q-1") is None, "it is taken"

    clock.advance(30)
    assert [item.id for item in await inbox.peek()] == ["q-1", "q-2", "q-3"]
    assert await inbox.length() == 3
    assert (await inbox.remove("q-1")) is not None
    assert ids(await inbox.try_dequeue(None)) == ["q-2"]
    with pytest.raises(StaleLease):
        await inbox.confirm("dead")


async def test_a_late_taker_whom_nobody_missed_may_still_confirm(inbox: DurableInbox, clock: TestClock) -> None:
    await inbox.enqueue(message())
    await inbox.take(lease_id="late", **LEASE)
    clock.advance(31)

    assert ids(await inbox.confirm("late")) == ["q-1"]


async def test_a_batch_is_given_back_or_up(inbox: DurableInbox) -> None:
    await inbox.enqueue(message("a"))
    await inbox.enqueue(barrier())

    assert ids(await inbox.take_items(2, lease_id="l1", **LEASE)) == ["q-1", "q-2"]
    await inbox.give_back("l1", ReturnReason.FAILED)
    assert (await inbox.state()).returns == 1
    assert ids(await inbox.take(lease_id="l2", **LEASE)) == ["q-1"]
    await inbox.give_up("l2", ClearReason.ERROR)

    assert [item.id for item in await inbox.peek()] == ["q-2"]


async def test_an_item_with_a_key_is_put_in_once_whoever_puts_it_in(stores: Stores) -> None:
    keyed = structs.replace(notification(), key="task-1")
    puts = await asyncio.gather(*(DurableInbox(stores, "conv-1").enqueue(keyed) for _ in range(5)))

    assert sorted(type(put).__name__ for put in puts) == [DuplicateItem.__name__] * 4 + [StoredItem.__name__]
    assert DuplicateItem("task-1") in puts


async def test_a_consumer_is_bound_with_or_without_an_item(inbox: DurableInbox, stores: Stores) -> None:
    await inbox.bind("agent:critic")
    await inbox.enqueue(message())
    assert await stores.inboxes.ready(frozenset({"agent:critic"}), 10) == ["conv-1"]

    await inbox.enqueue(message(), consumer="agent:coder")
    assert await stores.inboxes.ready(frozenset({"agent:coder"}), 10) == ["conv-1"]


async def test_what_cannot_be_kept_is_refused(inbox: DurableInbox, stores: Stores) -> None:
    with pytest.raises(InvalidInboxItem):
        await inbox.enqueue(message("x" * 300_000))
    with pytest.raises(InvalidInbox):
        DurableInbox(stores, "no\nsuch")
    assert await stores.inboxes.list_inboxes("", 10) == []


async def test_a_put_into_a_full_inbox_may_still_bind_it(stores: Stores) -> None:
    inbox = DurableInbox(stores, "conv-1", limits=InboxLimits(max_items=1, hard_max_items=1))
    await inbox.enqueue(barrier())

    assert await inbox.enqueue(notification(), consumer="agent:coder") is None
    assert (await inbox.state()).consumer == "agent:coder"
