"""Stories about the queue as agents know it, one group for each thing that is known of it."""

import pytest

from ade.agents.conversations.inbox import BlockedReason, ClearReason, DropReason
from ade.agents.conversations.memory_inbox import QueueCallbacks, QueueRuntime
from ade.agents.conversations.model import (
    BARRIERS,
    COALESCABLE,
    InvalidInboxItem,
    ItemBatch,
    ItemKind,
    ItemSource,
    NewItem,
    StoredItem,
)
from tests.agents.conversations.items import NOW, ToldQueue, barrier, message, notification, of_kind

STREAMING, APPROVALS = BlockedReason.STREAMING, BlockedReason.PENDING_APPROVALS


@pytest.fixture
def queue() -> ToldQueue:
    return ToldQueue()


def ids(batch: ItemBatch | None) -> list[str]:
    return [] if batch is None else [item.id for item in batch.items]


def any_of(kind: ItemKind) -> NewItem:
    return message() if kind is ItemKind.MESSAGE else of_kind(kind)


class TestItems:
    def test_an_item_has_what_was_given_and_an_id_and_a_time(self, queue: ToldQueue) -> None:
        given = message("hi", agent="a", conversation="c", client_message_id="cm-7")

        item = queue.enqueue(given)

        assert isinstance(item, StoredItem)
        assert (item.id, item.kind, item.source, item.enqueued_at) == ("q-1", "message", "user", NOW)
        assert (item.client_message_id, item.agent_id, item.conversation_id) == ("cm-7", "a", "c")
        assert (item.content, item.text) == ("hi", None)
        assert queue.told == [("enqueued", "q-1", 1)]

    def test_the_parts_of_a_message_come_out_as_they_went_in(self, queue: ToldQueue) -> None:
        parts: list[dict[str, object]] = [{"type": "text", "text": "look"}, {"type": "image", "source": {"data": "…"}}]
        queue.put(message(parts))

        batch = queue.try_dequeue(None)

        assert batch is not None
        assert batch.items[0].content == parts

    def test_there_are_four_sources_and_six_kinds(self) -> None:
        assert set(ItemSource) == {"user", "task_notification", "subagent", "system"}
        assert {"message", "task_notification", "cron_prompt", "mod_continue"} == COALESCABLE
        assert {"approval_result", "overlay_action"} == BARRIERS

    @pytest.mark.parametrize(
        ("item", "says"),
        [
            (NewItem(kind=ItemKind.MESSAGE), "text or a list of parts"),
            (NewItem(kind=ItemKind.MESSAGE, content=["no part"]), "text or a list of parts"),  # type: ignore[list-item]
            (NewItem(kind=ItemKind.MESSAGE, content="a", text="b"), "no `text`"),
            (NewItem(kind=ItemKind.OVERLAY_ACTION), "has a `text`"),
            (NewItem(kind=ItemKind.OVERLAY_ACTION, text="a", content="b"), "no `content`"),
            (NewItem(kind=ItemKind.CRON_PROMPT, text="a", no_coalesce=True), "for messages"),
            (NewItem(kind=ItemKind.MESSAGE, content="a", cron_task_id="t"), "for cron prompts"),
            (NewItem(kind="letter", text="a"), "not 'letter'"),  # type: ignore[arg-type]
        ],
    )
    def test_an_item_without_what_its_kind_needs_is_refused(self, queue: ToldQueue, item: NewItem, says: str) -> None:
        with pytest.raises(InvalidInboxItem, match=says):
            queue.enqueue(item)

        assert queue.is_empty
        assert queue.told == []


class TestIds:
    def test_items_and_batches_are_counted_in_each_queue(self, queue: ToldQueue) -> None:
        queue.put(message(), barrier(), message())

        batches = [queue.try_dequeue(None) for _ in range(3)]

        assert [ids(batch) for batch in batches] == [["q-1"], ["q-2"], ["q-3"]]
        assert [batch and batch.batch_id for batch in batches] == ["batch-1", "batch-2", "batch-3"]
        other = ToldQueue()
        other.put(message())
        assert other.ids() == ["q-1"]

    def test_an_item_that_was_refused_has_used_up_its_id(self) -> None:
        queue = ToldQueue(max_items=1, hard_max_items=1)
        queue.put(barrier(), barrier())
        queue.try_dequeue(None)

        item = queue.enqueue(message())

        assert isinstance(item, StoredItem)
        assert item.id == "q-3"


class TestTryDequeue:
    @pytest.mark.parametrize("kind", sorted(COALESCABLE))
    def test_coalescable_items_leave_together(self, queue: ToldQueue, kind: ItemKind) -> None:
        queue.put(message(), any_of(kind), message())

        batch = queue.try_dequeue(None)

        assert batch is not None
        assert (batch.batch_id, batch.merged_count, batch.queue_len_after) == ("batch-1", 3, 0)
        assert ids(batch) == ["q-1", "q-2", "q-3"]
        assert queue.told_of("dequeued") == [("batch-1", 0)]

    @pytest.mark.parametrize("kind", sorted(BARRIERS))
    def test_nothing_joins_over_a_barrier_and_it_leaves_alone(self, queue: ToldQueue, kind: ItemKind) -> None:
        queue.put(message(), notification(), any_of(kind), any_of(kind), message())

        batches = [ids(queue.try_dequeue(None)) for _ in range(5)]

        assert batches == [["q-1", "q-2"], ["q-3"], ["q-4"], ["q-5"], []]

    def test_items_of_another_scope_are_another_turn(self, queue: ToldQueue) -> None:
        queue.put(
            message(agent="a", conversation="1"),
            notification(agent="a", conversation="1"),
            message(agent="a", conversation="2"),
            message(agent="b", conversation="2"),
            message(agent="b"),
            message(),
            message(agent="a", conversation="1"),
        )

        batches = [ids(queue.try_dequeue(None)) for _ in range(7)]

        assert batches == [["q-1", "q-2"], ["q-3"], ["q-4"], ["q-5"], ["q-6"], ["q-7"], []]

    def test_an_empty_queue_gives_nothing_and_says_nothing(self, queue: ToldQueue) -> None:
        assert queue.try_dequeue(None) is None
        assert queue.told == []

    def test_a_message_that_shall_not_be_coalesced_is_a_turn_of_its_own(self, queue: ToldQueue) -> None:
        queue.put(message(), message(no_coalesce=True), message(no_coalesce=True), message(), message())

        batches = [ids(queue.try_dequeue(None)) for _ in range(4)]

        assert batches == [["q-1"], ["q-2"], ["q-3"], ["q-4", "q-5"]]


class TestConsumeItems:
    def test_it_takes_the_first_so_many_whatever_they_are(self, queue: ToldQueue) -> None:
        queue.put(message(conversation="1"), barrier(), message(conversation="2"), message())

        batch = queue.consume_items(3)

        assert batch is not None
        assert (batch.merged_count, batch.queue_len_after) == (3, 1)
        assert ids(batch) == ["q-1", "q-2", "q-3"]
        assert queue.told_of("dequeued") == [("batch-1", 1)]

    def test_it_takes_what_there_is_when_that_is_less(self, queue: ToldQueue) -> None:
        queue.put(message(), message())

        assert ids(queue.consume_items(10)) == ["q-1", "q-2"]
        assert queue.consume_items(1) is None

    @pytest.mark.parametrize("n", [0, -1])
    def test_to_take_none_is_no_batch(self, queue: ToldQueue, n: int) -> None:
        queue.put(message())

        assert queue.consume_items(n) is None
        assert queue.length == 1
        assert queue.told_of("dequeued") == []


class TestSoftLimit:
    def test_the_oldest_coalescable_item_gives_way_to_a_new_one(self) -> None:
        queue = ToldQueue(max_items=2)
        queue.put(message(), notification(), message())

        assert queue.ids() == ["q-2", "q-3"]
        assert queue.told[-2:] == [("dropped", "q-1", DropReason.BUFFER_LIMIT, 2), ("enqueued", "q-3", 2)]

    def test_barriers_stay_where_they_are_and_the_next_coalescable_one_goes(self) -> None:
        queue = ToldQueue(max_items=2)
        queue.put(barrier(), message(), message())

        assert queue.ids() == ["q-1", "q-3"]

    def test_a_barrier_may_go_beyond_it(self) -> None:
        queue = ToldQueue(max_items=1)
        queue.put(message(), barrier())

        assert queue.ids() == ["q-1", "q-2"]
        assert queue.told_of("dropped") == []

    def test_where_nothing_may_be_dropped_the_new_one_comes_on_top(self) -> None:
        queue = ToldQueue(max_items=1)
        queue.put(barrier(), message())

        assert queue.ids() == ["q-1", "q-2"]
        assert queue.told_of("dropped") == []

    def test_scope_does_not_matter_to_who_gives_way(self) -> None:
        queue = ToldQueue(max_items=1)
        queue.put(message(conversation="1"), message(conversation="2"))

        assert queue.ids() == ["q-2"]


class TestHardLimit:
    @pytest.mark.parametrize("kind", sorted(ItemKind))
    def test_every_kind_is_refused_and_told_as_dropped(self, kind: ItemKind) -> None:
        queue = ToldQueue(max_items=1, hard_max_items=2)
        queue.put(barrier(), barrier())

        assert queue.enqueue(any_of(kind)) is None

        assert queue.ids() == ["q-1", "q-2"]
        assert queue.told[-1] == ("dropped", "q-3", DropReason.BUFFER_LIMIT, 2)

    def test_it_comes_before_the_soft_limit(self) -> None:
        queue = ToldQueue(max_items=1, hard_max_items=1)
        queue.put(message())

        assert queue.enqueue(message()) is None
        assert queue.ids() == ["q-1"]

    def test_there_are_two_reasons_to_drop(self) -> None:
        assert set(DropReason) == {"buffer_limit", "stale_generation"}


class TestBlocked:
    def test_a_reason_is_told_once_and_nothing_is_taken(self, queue: ToldQueue) -> None:
        queue.put(message(), message())

        assert queue.try_dequeue(STREAMING) is None
        assert queue.try_dequeue(STREAMING) is None

        assert queue.told_of("blocked") == [(STREAMING, 2)]
        assert queue.length == 2

    def test_another_reason_is_news_and_so_is_the_first_one_after_it(self, queue: ToldQueue) -> None:
        queue.put(message())

        for reason in (STREAMING, APPROVALS, STREAMING):
            queue.try_dequeue(reason)

        assert queue.told_of("blocked") == [(STREAMING, 1), (APPROVALS, 1), (STREAMING, 1)]

    def test_an_empty_queue_is_not_blocked(self, queue: ToldQueue) -> None:
        queue.try_dequeue(STREAMING)

        assert queue.told == []

    def test_more_items_are_no_news(self, queue: ToldQueue) -> None:
        queue.put(message())
        queue.try_dequeue(STREAMING)
        queue.put(message())
        queue.try_dequeue(STREAMING)

        assert len(queue.told_of("blocked")) == 1

    def test_once_it_was_not_blocked_it_is_news_again(self, queue: ToldQueue) -> None:
        queue.put(barrier(), barrier())
        queue.try_dequeue(STREAMING)
        queue.try_dequeue(None)
        queue.try_dequeue(STREAMING)

        assert queue.told_of("blocked") == [(STREAMING, 2), (STREAMING, 1)]

    @pytest.mark.parametrize("ending", ["consume", "remove", "clear"])
    def test_when_the_queue_was_empty_in_between_it_is_news_again(self, queue: ToldQueue, ending: str) -> None:
        queue.put(message())
        queue.try_dequeue(STREAMING)
        match ending:
            case "consume":
                queue.consume_items(1)
            case "remove":
                queue.remove("q-1")
            case _:
                queue.clear(ClearReason.CANCELLED)
        queue.put(message())
        queue.try_dequeue(STREAMING)

        assert queue.told_of("blocked") == [(STREAMING, 1), (STREAMING, 1)]

    def test_when_some_are_left_it_is_no_news(self, queue: ToldQueue) -> None:
        queue.put(message(), message(), message())
        queue.try_dequeue(STREAMING)
        queue.consume_items(1)
        queue.remove("q-2")
        queue.try_dequeue(STREAMING)

        assert len(queue.told_of("blocked")) == 1

    def test_an_item_that_takes_the_place_of_the_only_one_is_no_news(self) -> None:
        queue = ToldQueue(max_items=1)
        queue.put(message())
        queue.try_dequeue(STREAMING)
        queue.put(message())
        queue.try_dequeue(STREAMING)

        assert len(queue.told_of("blocked")) == 1

    def test_an_idle_consumer_makes_it_news_again(self, queue: ToldQueue) -> None:
        queue.put(message())
        queue.try_dequeue(STREAMING)
        queue.reset_blocked_state()
        queue.try_dequeue(STREAMING)

        assert len(queue.told_of("blocked")) == 2

    def test_there_are_six_reasons(self) -> None:
        assert set(BlockedReason) == {
            "streaming",
            "pending_approvals",
            "overlay_open",
            "command_running",
            "interrupt_in_progress",
            "runtime_busy",
        }


class TestClear:
    @pytest.mark.parametrize("reason", sorted(ClearReason))
    def test_all_items_go_and_are_told(self, queue: ToldQueue, reason: ClearReason) -> None:
        queue.put(message(), barrier())

        queue.clear(reason)

        assert queue.is_empty
        assert queue.told[-1] == ("cleared", reason, 2, ["q-1", "q-2"])

    def test_it_is_told_even_when_there_was_nothing(self, queue: ToldQueue) -> None:
        queue.clear(ClearReason.SHUTDOWN)

        assert queue.told == [("cleared", ClearReason.SHUTDOWN, 0, [])]

    def test_there_are_five_reasons(self) -> None:
        assert set(ClearReason) == {"processed", "error", "cancelled", "shutdown", "stale_generation"}


class TestRemove:
    def test_one_item_goes_and_the_others_keep_their_order(self, queue: ToldQueue) -> None:
        queue.put(message(), message(), message())

        removed = queue.remove("q-2")

        assert removed is not None
        assert removed.id == "q-2"
        assert queue.ids() == ["q-1", "q-3"]
        assert queue.told[-1] == ("removed", "q-2", 2)

    def test_an_item_that_is_not_there_is_no_error(self, queue: ToldQueue) -> None:
        assert queue.remove("q-1") is None
        assert queue.told == []


class TestLooking:
    def test_peek_takes_nothing(self, queue: ToldQueue) -> None:
        queue.put(message(), barrier())

        assert queue.ids() == queue.ids() == ["q-1", "q-2"]
        assert (queue.length, queue.is_empty) == (2, False)


class TestCallbacks:
    def test_what_a_callback_raises_harms_nobody_and_goes_to_whoever_asked_for_it(self) -> None:
        raised: list[str] = []
        boom = ZeroDivisionError("boom")

        def fail(*_: object) -> None:
            raise boom

        queue = QueueRuntime(
            clock=lambda: NOW,
            max_items=1,
            callbacks=QueueCallbacks(
                on_enqueued=fail, on_dequeued=fail, on_blocked=fail, on_cleared=fail, on_dropped=fail, on_removed=fail
            ),
            on_error=lambda name, error: raised.append(name) if error is boom else None,
        )

        queue.enqueue(message())
        queue.enqueue(message())
        queue.try_dequeue(STREAMING)
        assert ids(queue.try_dequeue(None)) == ["q-2"]
        queue.enqueue(message())
        queue.remove("q-3")
        queue.clear(ClearReason.ERROR)

        assert raised == [
            "on_enqueued",
            "on_dropped",
            "on_enqueued",
            "on_blocked",
            "on_dequeued",
            "on_enqueued",
            "on_removed",
            "on_cleared",
        ]

    def test_a_callback_that_raises_is_swallowed_when_nobody_asked(self) -> None:
        queue = QueueRuntime(clock=lambda: NOW, callbacks=QueueCallbacks(on_dequeued=lambda batch: 1 / 0))
        queue.enqueue(message())

        assert ids(queue.consume_items(1)) == ["q-1"]

    def test_a_callback_may_use_the_queue(self) -> None:
        def answer(batch: ItemBatch) -> None:
            if batch.batch_id == "batch-1":
                used.enqueue(notification())

        used = QueueRuntime(clock=lambda: NOW, callbacks=QueueCallbacks(on_dequeued=answer))
        used.enqueue(message())

        assert ids(used.try_dequeue(None)) == ["q-1"]
        assert ids(used.try_dequeue(None)) == ["q-2"]

    def test_without_callbacks_nothing_is_told_and_all_works(self) -> None:
        queue = QueueRuntime(clock=lambda: NOW)
        queue.enqueue(message())
        queue.clear(ClearReason.PROCESSED)

        assert queue.is_empty
