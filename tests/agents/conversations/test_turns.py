"""Stories about turns, limits, and lines of the protocol."""

import math

import pytest

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import BlockedReason, ClearReason, Inbox, Notice, wire_event
from ade.agents.conversations.memory_inbox import QueueCallbacks, notify
from ade.agents.conversations.model import (
    MOST_ITEMS,
    InboxLimits,
    ItemKind,
    NewItem,
    StoredItem,
    inbox_limits,
    numbered,
)
from ade.agents.conversations.rules import merged_content, turn_length
from tests.agents.conversations.items import NOW, ToldQueue, barrier, message, notification


def queued(*items: NewItem) -> list[StoredItem]:
    return [numbered(item, seq, NOW) for seq, item in enumerate(items, start=1)]


class TestMerging:
    def test_items_become_one_turn_with_a_line_end_between_them(self) -> None:
        parts: list[dict[str, object]] = [{"type": "text", "text": "see"}, {"type": "image", "source": "…"}]

        content = merged_content(queued(message("hi"), message(parts), notification("<task-notification>")))

        assert content == [
            {"type": "text", "text": "hi"},
            {"type": "text", "text": "\n"},
            {"type": "text", "text": "see"},
            {"type": "image", "source": "…"},
            {"type": "text", "text": "\n"},
            {"type": "text", "text": "<task-notification>"},
        ]

    def test_no_items_make_no_turn(self) -> None:
        assert merged_content([]) is None

    def test_the_parts_of_an_item_are_not_touched(self) -> None:
        items = queued(message([{"type": "text", "text": "a"}]), message("b"))
        merged_content(items)

        assert items[0].content == [{"type": "text", "text": "a"}]


class TestTurnLength:
    def test_the_run_of_the_head_is_one_turn(self) -> None:
        items = queued(message(), notification(), message(conversation="other"), message())

        assert turn_length(items) == 2

    def test_notifications_alone_wake_only_those_who_let_them(self) -> None:
        items = queued(notification(), notification(), barrier(), message())

        assert turn_length(items) == 2
        assert turn_length(items, {ItemKind.MESSAGE}) == 0
        assert turn_length(queued(notification(), message()), {ItemKind.MESSAGE}) == 2

    def test_a_barrier_at_the_head_is_no_turn_and_neither_is_nothing(self) -> None:
        assert turn_length(queued(barrier(), message())) == 0
        assert turn_length([]) == 0

    def test_who_wants_barriers_too_gets_them_one_by_one(self) -> None:
        assert turn_length(queued(barrier(), barrier(), message()), frozenset(ItemKind)) == 1

    def test_a_consumer_takes_as_many_as_it_counted(self) -> None:
        queue = ToldQueue()
        queue.put(message(), notification(), barrier())

        batch = queue.consume_items(turn_length(queue.peek()))

        assert batch is not None
        assert batch.merged_count == 2


class TestLimits:
    @pytest.mark.parametrize(
        ("given", "limits"),
        [
            ((None, None), (100, 300)),
            ((5, None), (5, 15)),
            ((5, 7), (5, 7)),
            ((5, 2), (5, 5)),
            ((2.9, 4.2), (2, 4)),
            ((0, 0), (100, 300)),
            ((-3, -3), (100, 300)),
            ((math.nan, math.nan), (100, 300)),
            (("many", "more"), (100, 300)),
            ((math.inf, None), (MOST_ITEMS, 3 * MOST_ITEMS)),
            ((10, math.inf), (10, MOST_ITEMS)),
        ],
    )
    def test_whatever_is_given_the_limits_make_sense(
        self, given: tuple[float | None, float | None], limits: tuple[int, int]
    ) -> None:
        assert inbox_limits(*given) == InboxLimits(max_items=limits[0], hard_max_items=limits[1])


class TestWire:
    def steps(self) -> list[Notice]:
        limits = InboxLimits(max_items=2, hard_max_items=3)
        inbox, notices = Inbox(id="conversation-1"), list[Notice]()
        for item in (message(client_message_id="mine"), notification(), message()):
            change = conversations_rules.enqueue(inbox, item, limits=limits, now=NOW)
            inbox, notices = change.after, [*notices, *change.notices]
        for later in (
            conversations_rules.try_dequeue(inbox, BlockedReason.STREAMING),
            conversations_rules.try_dequeue(inbox, None),
            conversations_rules.clear(inbox, ClearReason.ERROR),
            conversations_rules.remove(inbox, "q-2"),
        ):
            notices += later.notices
        return notices

    def test_every_notice_of_the_protocol_has_its_line(self) -> None:
        lines = [wire_event(notice, session_id="s", uuid="u") for notice in self.steps()]

        envelope = {"session_id": "s", "uuid": "u"}
        enqueued = {"type": "queue_item_enqueued", "source": "user", "kind": "message", **envelope}
        notified = {**enqueued, "source": "system", "kind": "task_notification"}
        assert lines == [
            {**enqueued, "item_id": "q-1", "client_message_id": "mine", "queue_len": 1},
            {**notified, "item_id": "q-2", "client_message_id": "cm-q-2", "queue_len": 2},
            {"type": "queue_item_dropped", "item_id": "q-1", "reason": "buffer_limit", "queue_len": 2, **envelope},
            {**enqueued, "item_id": "q-3", "client_message_id": "cm-q-3", "queue_len": 2},
            {"type": "queue_blocked", "reason": "streaming", "queue_len": 2, **envelope},
            {
                "type": "queue_batch_dequeued",
                "batch_id": "batch-1",
                "item_ids": ["q-2", "q-3"],
                "merged_count": 2,
                "queue_len_after": 0,
                **envelope,
            },
            {"type": "queue_cleared", "reason": "error", "cleared_count": 2, **envelope},
            None,
        ]

    def test_every_notice_says_what_to_call_with_what(self) -> None:
        called = list[tuple[str, tuple[object, ...]]]()
        callbacks = QueueCallbacks(
            on_enqueued=lambda *given: called.append(("enqueued", given)),
            on_dequeued=lambda *given: called.append(("dequeued", given)),
            on_blocked=lambda *given: called.append(("blocked", given)),
            on_cleared=lambda *given: called.append(("cleared", given)),
            on_dropped=lambda *given: called.append(("dropped", given)),
            on_removed=lambda *given: called.append(("removed", given)),
        )
        for notice in self.steps():
            notify(callbacks, notice, None)

        names = [name for name, _ in called]
        assert names == ["enqueued", "enqueued", "dropped", "enqueued", "blocked", "dequeued", "cleared", "removed"]
        assert called[4] == ("blocked", (BlockedReason.STREAMING, 2))
