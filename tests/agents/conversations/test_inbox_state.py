"""What an inbox knows besides its items: who feeds on it, what its consumer remembers, and what was put in once."""

import msgspec
import pytest

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    INBOX_EVENTS,
    BlockedReason,
    ClearReason,
    Inbox,
    InboxChange,
    ReturnReason,
    events_of,
    unused,
)
from ade.agents.conversations.model import (
    LARGEST_ITEM,
    LARGEST_MEMORY,
    InboxLimits,
    InvalidInboxItem,
    NewItem,
    StoredItem,
)
from ade.agents.conversations.rules import MOST_KEYS, BatchClaimant, DuplicateItem, confirm, give_back, remember, take
from ade.errors import InvalidInbox, StaleLease
from tests.agents.conversations.items import NOW, barrier, message, notification

LIMITS = InboxLimits(max_items=2, hard_max_items=3)


def put(inbox: Inbox, item: NewItem, limits: InboxLimits | None = None) -> InboxChange[conversations_rules.Put]:
    return conversations_rules.enqueue(inbox, item, limits=limits or InboxLimits(), now=NOW)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def keyed(key: str, text: str = "done") -> NewItem:
    return msgspec.structs.replace(notification(text), key=key)


def taken(inbox: Inbox) -> Inbox:
    return take(inbox, BatchClaimant(lease_id="lease", holder="w", lease_ms=100, steady=0)).after


class TestKeys:
    def test_an_item_with_a_key_is_put_in_once(self) -> None:
        first = put(unused("c"), keyed("task-1"))
        second = put(first.after, keyed("task-1", "done, I say"))

        assert isinstance(first.answer, StoredItem)
        assert second.answer == DuplicateItem("task-1")
        assert not second.is_written
        assert second.notices == ()

    def test_also_when_it_has_long_left(self) -> None:
        inbox = conversations_rules.try_dequeue(put(unused("c"), keyed("task-1")).after, None).after

        assert inbox.items == ()
        assert put(inbox, keyed("task-1")).answer == DuplicateItem("task-1")

    def test_items_of_other_keys_and_without_one_come_as_often_as_they_like(self) -> None:
        inbox = unused("c")
        for item in (keyed("a"), keyed("b"), message("same"), message("same")):
            inbox = put(inbox, item).after

        assert [item.key for item in inbox.items] == ["a", "b", None, None]

    def test_a_refused_item_may_come_again(self) -> None:
        inbox = unused("c")
        for _ in range(3):
            inbox = put(inbox, barrier(), LIMITS).after
        refused = put(inbox, keyed("task-1"), LIMITS)
        emptied = conversations_rules.clear(refused.after, ClearReason.CANCELLED).after

        assert refused.answer is None
        assert isinstance(put(emptied, keyed("task-1"), LIMITS).answer, StoredItem)

    def test_only_the_newest_are_known(self) -> None:
        inbox = unused("c")
        for number in range(MOST_KEYS + 1):
            inbox = conversations_rules.try_dequeue(put(inbox, keyed(f"k{number}")).after, None).after

        assert len(inbox.keys) == MOST_KEYS
        assert isinstance(put(inbox, keyed("k0")).answer, StoredItem)
        assert put(inbox, keyed("k1")).answer == DuplicateItem("k1")

    @pytest.mark.parametrize("key", ["", "k" * 201])
    def test_a_key_is_short(self, key: str) -> None:
        with pytest.raises(InvalidInboxItem, match="1 to 200 characters"):
            put(unused("c"), keyed(key))


class TestLimits:
    def test_they_are_those_of_the_inbox_whoever_writes(self) -> None:
        inbox = put(unused("c"), message(), LIMITS).after
        for _ in range(3):
            inbox = conversations_rules.enqueue(inbox, message(), now=NOW).after

        assert inbox.limits == LIMITS
        assert [item.id for item in inbox.items] == ["q-3", "q-4"]
        wider = put(inbox, message(), InboxLimits()).after
        assert (wider.length, wider.limits) == (3, InboxLimits())


class TestMemory:
    def test_another_consumer_does_not_find_it(self) -> None:
        inbox = conversations_rules.bind(put(unused("c"), message()).after, "agent:coder").after
        inbox = remember(taken(inbox), "lease", {"session_id": "s1"}).after

        assert conversations_rules.bind(inbox, "agent:coder").after.memory == {"session_id": "s1"}
        bound = conversations_rules.bind(inbox, "agent:critic").after
        assert bound.memory == {}
        assert confirm(bound, "lease", {"session_id": "s2"}).after.memory == {}, "it is not its inbox any more"

    def test_it_is_forgotten_on_demand_but_not_what_was_begun(self) -> None:
        inbox = taken(put(unused("c"), message()).after)
        memory = {"session_id": "s1", "turn": {"first": 1}}

        busy = conversations_rules.reset(remember(inbox, "lease", memory).after)
        assert (busy.answer, busy.is_written) == (False, False)
        free = give_back(busy.after, "lease", ReturnReason.FAILED).after
        done = conversations_rules.reset(free)
        kept = {"turn": {"first": 1, "is_reset": True}}  # what it learns is not wanted any more
        assert (done.answer, done.after.memory, done.after.returns) == (True, kept, 0)

    def test_the_holder_of_a_batch_leaves_something_for_the_next(self) -> None:
        inbox = taken(put(unused("c"), message()).after)

        inbox = remember(inbox, "lease", {"session_id": "s1"}).after
        inbox = give_back(inbox, "lease", ReturnReason.FAILED).after

        assert inbox.memory == {"session_id": "s1"}

    def test_it_may_be_left_with_the_confirmation(self) -> None:
        inbox = taken(put(unused("c"), message()).after)

        once = confirm(inbox, "lease", {"turns": 3})
        again = confirm(once.after, "lease", {"turns": 4})

        assert once.after.memory == {"turns": 3}
        assert confirm(inbox, "lease").after.memory == {}
        assert not again.is_written, "the batch is confirmed with what was said first"

    def test_whoever_does_not_hold_the_batch_leaves_nothing(self) -> None:
        inbox = taken(put(unused("c"), message()).after)

        with pytest.raises(StaleLease):
            remember(inbox, "other", {})
        with pytest.raises(StaleLease):
            confirm(inbox, "other", {})

    @pytest.mark.parametrize(
        "memory",
        [
            {"much": "x" * LARGEST_MEMORY},
            {"no": object()},
            {"half": "\ud800"},
            {1: "number"},
            ["no object"],
            {"not": float("nan")},
            {"deep": nested(100)},
            {"deeper": nested(900)},
        ],
    )
    def test_it_is_a_small_object_of_json(self, memory: dict[str, object]) -> None:
        inbox = taken(put(unused("c"), message()).after)

        with pytest.raises(InvalidInbox):
            remember(inbox, "lease", memory)


class TestNames:
    def test_somebody_feeds_on_it_until_somebody_else_does(self) -> None:
        bound = conversations_rules.bind(unused("c"), "agent:coder")
        assert bound.after.consumer == "agent:coder"
        assert not conversations_rules.bind(bound.after, "agent:coder").is_written
        assert conversations_rules.bind(bound.after, None).after.consumer is None

    @pytest.mark.parametrize("name", ["", "a b", "a\n", "a{1}", "}", "x" * 201, "\ud800", "tab\t", "\u2028"])
    def test_names_that_no_store_should_have_to_keep(self, name: str) -> None:
        with pytest.raises(InvalidInbox, match="1 to 200 printable characters"):
            unused(name)
        with pytest.raises(InvalidInbox, match="consumer"):
            conversations_rules.bind(unused("c"), name)

    @pytest.mark.parametrize("name", ["c", "conv-1:default/ä@x", "x" * 200])
    def test_names_as_agents_give_them(self, name: str) -> None:
        assert unused(name) == Inbox(id=name)


class TestSizes:
    def test_an_item_is_not_larger_than_a_store_can_bear(self) -> None:
        room = LARGEST_ITEM - len(msgspec.json.encode(message("")))

        assert put(unused("c"), message("x" * room)).answer is not None
        with pytest.raises(InvalidInboxItem, match=r"at most 256,000 bytes as JSON, and this one has 256,001"):
            put(unused("c"), message("x" * (room + 1)))

    def test_what_is_no_json_is_refused(self) -> None:
        for content in ("half \ud800", [{"type": object()}], [{"x": nested(5_000)}]):
            with pytest.raises(InvalidInboxItem, match="as JSON"):
                put(unused("c"), message(content))

    def test_nor_does_an_item_lie_so_deep_that_nobody_can_read_it(self) -> None:
        assert put(unused("c"), message([{"x": nested(98)}])).answer is not None
        for depth in (99, 500, 900):
            with pytest.raises(InvalidInboxItem, match=r"at most 100 levels deep|as JSON"):
                put(unused("c"), message([{"x": nested(depth)}]))


class TestEvents:
    def test_the_log_tells_what_happened_and_never_what_was_said(self) -> None:
        secret = "my secret"
        inbox, told = unused("c"), []

        def do(change: InboxChange[object]) -> Inbox:
            told.extend(events_of("c", change.notices, at=NOW))
            return change.after

        small = InboxLimits(max_items=2, hard_max_items=2)
        for _ in range(3):
            inbox = do(put(inbox, message(secret), small))
        inbox = do(conversations_rules.remove(inbox, "q-2"))
        inbox = do(conversations_rules.try_dequeue(inbox, BlockedReason.STREAMING))
        inbox = do(take(inbox, BatchClaimant(lease_id="lease", holder="w", lease_ms=100, steady=0)))
        inbox = do(give_back(inbox, "lease", ReturnReason.FAILED))
        inbox = do(take(inbox, BatchClaimant(lease_id="lease 2", holder="w", lease_ms=100, steady=0)))
        inbox = do(confirm(inbox, "lease 2"))
        inbox = do(put(inbox, message(secret)))
        do(conversations_rules.clear(inbox, ClearReason.CANCELLED))

        assert {event.type for event in told} == INBOX_EVENTS
        assert secret not in str(told)
        assert all(event.payload["inbox_id"] == "c" and event.task_id is None for event in told)
        assert told[0].payload == {
            "inbox_id": "c",
            "item_id": "q-1",
            "client_message_id": "cm-q-1",
            "source": "user",
            "kind": "message",
            "queue_len": 1,
        }
        returned = next(event for event in told if event.type == "inbox.batch_returned")
        assert returned.payload == {
            "inbox_id": "c",
            "batch_id": "batch-1",
            "item_ids": ["q-1"],
            "merged_count": 1,
            "reason": "failed",
            "queue_len_after": 1,
        }
        assert told[-1].payload == {"inbox_id": "c", "reason": "cancelled", "cleared_count": 1, "item_ids": ["q-4"]}
