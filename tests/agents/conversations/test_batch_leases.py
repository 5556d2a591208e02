"""Stories about batches that are leased: a taker may die at any moment, and nothing is lost or out of order."""

import msgspec
import pytest

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BatchConfirmed,
    BatchDequeued,
    BatchReturned,
    BlockedReason,
    ClearReason,
    Inbox,
    InboxBlocked,
    InboxCleared,
    ItemDropped,
    Notice,
    ReturnReason,
    batch_of,
)
from ade.agents.conversations.model import InboxLimits, ItemBatch, NewItem
from ade.agents.conversations.rules import BatchClaimant, confirm, expire, give_back, give_up, renew, take, take_items
from ade.errors import StaleLease
from tests.agents.conversations.items import NOW, barrier, message

LEASE_MS = 30_000
BUSY, STREAMING = BlockedReason.RUNTIME_BUSY, BlockedReason.STREAMING


def with_items(*items: NewItem, inbox: Inbox | None = None, limits: InboxLimits | None = None) -> Inbox:
    inbox = inbox or Inbox(id="conversation-1")
    for item in items:
        inbox = conversations_rules.enqueue(inbox, item, limits=limits or InboxLimits(), now=NOW).after
    return inbox


def taker(name: str, steady: int = 0) -> BatchClaimant:
    return BatchClaimant(lease_id=name, holder=f"worker of {name}", lease_ms=LEASE_MS, steady=steady)


def ids(batch: ItemBatch | None) -> list[str]:
    return [] if batch is None else [item.id for item in batch.items]


def kinds(notices: tuple[Notice, ...]) -> list[type[Notice]]:
    return [type(notice) for notice in notices]


class TestTaking:
    def test_a_batch_that_is_taken_does_not_wait_and_is_not_gone(self) -> None:
        change = take(with_items(message(), message(), barrier()), taker("a"))

        assert ids(change.answer) == ["q-1", "q-2"]
        assert change.after.length == 1
        assert [item.id for item in change.after.taken] == ["q-1", "q-2"]
        assert [item.id for item in change.after.waiting] == ["q-3"]
        assert change.notices == (BatchDequeued(batch_of(change.after)),)  # type: ignore[arg-type]  # there is one
        assert change.removed == change.added == ()

    def test_while_it_is_out_nobody_else_gets_any_and_hears_why_once(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        first = take(inbox, taker("b"))
        second = take(first.after, taker("c"))

        assert first.answer is second.answer is None
        assert first.notices == (InboxBlocked(BUSY, 1),)
        assert second.notices == ()
        assert not second.is_written

    def test_the_verbs_without_leases_keep_away_too(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        assert conversations_rules.try_dequeue(inbox, None).notices == (InboxBlocked(BUSY, 1),)
        assert conversations_rules.consume_items(inbox, 1).answer is None

    def test_a_reason_of_the_taker_goes_before_that(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        assert take(inbox, taker("b"), STREAMING).notices == (InboxBlocked(STREAMING, 1),)

    def test_a_reason_not_to_take_is_told_like_without_leases(self) -> None:
        change = take(with_items(message()), taker("a"), STREAMING)

        assert change.answer is None
        assert change.notices == (InboxBlocked(STREAMING, 1),)

    def test_exactly_so_many_can_be_taken(self) -> None:
        inbox = with_items(message(), barrier(), message())

        change = take_items(inbox, taker("a"), 2)

        assert ids(change.answer) == ["q-1", "q-2"]
        assert take_items(change.after, taker("b"), 2).answer is None
        assert take_items(inbox, taker("a"), 0).answer is None

    def test_from_an_empty_inbox_nothing_is_taken(self) -> None:
        change = take(Inbox(id="conversation-1"), taker("a"))

        assert change.answer is None
        assert not change.is_written

    @pytest.mark.parametrize("again", ["take", "take_items"])
    def test_who_did_not_hear_the_answer_asks_again_and_gets_the_same_batch(self, again: str) -> None:
        inbox = take(with_items(message()), taker("a")).after
        inbox = with_items(message(), inbox=inbox)

        same = taker("a", steady=1_000)
        change = take(inbox, same) if again == "take" else take_items(inbox, same, 5)

        assert ids(change.answer) == ["q-1"]
        assert change.notices == ()
        assert change.after.lease is not None
        assert change.after.lease.until == 1_000 + LEASE_MS

    def test_the_lease_of_a_finished_batch_is_not_good_for_another(self) -> None:
        inbox = confirm(take(with_items(message(), barrier()), taker("a")).after, "a").after

        with pytest.raises(StaleLease, match="take with a new one"):
            take(inbox, taker("a"))


class TestConfirming:
    def test_a_confirmed_batch_is_gone_for_good(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        change = confirm(inbox, "a")

        assert ids(change.answer) == ["q-1"]
        assert kinds(change.notices) == [BatchConfirmed]
        assert [item.id for item in change.removed] == ["q-1"]
        assert [item.id for item in change.after.items] == ["q-2"]
        assert change.after.lease is None

    def test_to_confirm_once_more_changes_nothing(self) -> None:
        inbox = confirm(take(with_items(message()), taker("a")).after, "a").after

        again = confirm(inbox, "a")

        assert again.answer is None
        assert again.notices == ()
        assert not again.is_written

    def test_who_lost_the_batch_cannot_confirm_it(self) -> None:
        inbox = take(with_items(message()), taker("slow")).after
        inbox = take(inbox, taker("quick", steady=LEASE_MS)).after

        with pytest.raises(StaleLease, match="conversation-1"):
            confirm(inbox, "slow")

        assert ids(confirm(inbox, "quick").answer) == ["q-1"]

    def test_who_is_late_can_confirm_as_long_as_nobody_noticed(self) -> None:
        inbox = take(with_items(message()), taker("slow")).after

        assert ids(confirm(inbox, "slow").answer) == ["q-1"]  # no time is asked for: the fence is the lease's id

    def test_items_that_came_meanwhile_stay(self) -> None:
        inbox = take(with_items(message()), taker("a")).after
        inbox = with_items(message(), inbox=inbox)

        assert [item.id for item in confirm(inbox, "a").after.items] == ["q-2"]


class TestReturning:
    def test_the_batch_of_a_dead_taker_is_the_next_to_be_taken(self) -> None:
        inbox = take(with_items(message(), barrier(), message()), taker("dead")).after

        change = take(inbox, taker("next", steady=LEASE_MS))

        assert ids(change.answer) == ["q-1"]
        assert kinds(change.notices) == [BatchReturned, BatchDequeued]
        assert change.after.version == inbox.version + 1
        assert change.answer is not None
        assert change.answer.batch_id == "batch-2"

    def test_it_is_joined_by_what_came_after_it_as_if_it_had_never_left(self) -> None:
        inbox = take(with_items(message()), taker("dead")).after
        inbox = with_items(message(), barrier(), inbox=inbox)

        change = take(inbox, taker("next", steady=LEASE_MS))

        assert ids(change.answer) == ["q-1", "q-2"]

    def test_a_lease_counts_until_its_last_moment(self) -> None:
        inbox = take(with_items(message()), taker("a")).after

        assert expire(inbox, steady=LEASE_MS - 1).answer is None
        assert ids(expire(inbox, steady=LEASE_MS).answer) == ["q-1"]

    def test_the_sweep_leaves_an_inbox_alone_where_nothing_is_out(self) -> None:
        assert not expire(with_items(message()), steady=LEASE_MS).is_written

    def test_who_renews_keeps_the_batch(self) -> None:
        inbox = take(with_items(message()), taker("a")).after
        inbox = renew(inbox, "a", lease_ms=LEASE_MS, steady=20_000).after

        assert expire(inbox, steady=LEASE_MS).answer is None
        assert ids(expire(inbox, steady=20_000 + LEASE_MS).answer) == ["q-1"]

    def test_a_renewal_makes_no_lease_shorter_and_brings_none_back(self) -> None:
        inbox = take(with_items(message()), taker("a")).after

        assert not renew(inbox, "a", lease_ms=1, steady=0).is_written
        with pytest.raises(StaleLease):
            renew(expire(inbox, steady=LEASE_MS).after, "a", lease_ms=LEASE_MS, steady=LEASE_MS)

    def test_order_is_kept_and_nothing_moves(self) -> None:
        inbox = take(with_items(message("1"), message("2")), taker("a")).after
        inbox = with_items(message("3"), inbox=inbox)

        change = give_back(inbox, "a", ReturnReason.FAILED)

        assert change.after.items == inbox.items
        assert [item.content for item in change.after.waiting] == ["1", "2", "3"]
        assert [notice.queue_len for notice in change.notices if isinstance(notice, BatchReturned)] == [3]

    def test_no_limit_is_applied_to_what_comes_back(self) -> None:
        limits = InboxLimits(max_items=1, hard_max_items=1)
        inbox = take(with_items(message(), limits=limits), taker("a")).after
        inbox = with_items(barrier(), inbox=inbox, limits=limits)

        inbox = give_back(inbox, "a", ReturnReason.FAILED).after

        assert inbox.length == 2
        refused = conversations_rules.enqueue(inbox, message(), limits=limits, now=NOW)
        assert refused.answer is None
        assert kinds(refused.notices) == [ItemDropped]

    def test_what_fails_again_and_again_does_not_let_the_inbox_grow_for_ever(self) -> None:
        limits = InboxLimits(max_items=2, hard_max_items=2)
        inbox = Inbox(id="conversation-1")
        for number in range(10):
            inbox = with_items(barrier(), barrier(), barrier(), inbox=inbox, limits=limits)
            inbox = take_items(inbox, taker(str(number)), 100).after
            inbox = with_items(barrier(), barrier(), barrier(), inbox=inbox, limits=limits)
            inbox = give_back(inbox, str(number), ReturnReason.FAILED).after

        assert [item.id for item in inbox.items] == ["q-1", "q-2", "q-4", "q-5"]

    def test_it_is_counted_how_often_in_a_row_except_for_what_was_handed_back_unharmed(self) -> None:
        inbox = with_items(message(), barrier())
        for name, reason in [("a", ReturnReason.FAILED), ("b", ReturnReason.RELEASED), ("c", ReturnReason.LOST)]:
            inbox = give_back(take(inbox, taker(name)).after, name, reason).after
        assert inbox.returns == 2

        assert confirm(take(inbox, taker("d")).after, "d").after.returns == 0

    def test_what_comes_back_into_an_empty_inbox_makes_a_reason_news_again(self) -> None:
        inbox = take(with_items(message()), taker("z"), STREAMING).after
        inbox = take_items(inbox, taker("a"), 1).after

        inbox = give_back(inbox, "a", ReturnReason.RELEASED).after

        assert take(inbox, taker("b"), STREAMING).notices == (InboxBlocked(STREAMING, 1),)


class TestGivingUp:
    def test_a_batch_that_shall_not_be_tried_again_is_told_as_cleared(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        change = give_up(inbox, "a", ClearReason.ERROR)

        assert [item.id for item in change.after.items] == ["q-2"]
        assert change.notices == (InboxCleared(ClearReason.ERROR, 1, change.removed),)

    def test_for_an_error_it_counts_as_one_that_came_back(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        assert give_up(inbox, "a", ClearReason.ERROR).after.returns == 1
        assert give_up(inbox, "a", ClearReason.CANCELLED).after.returns == 0

    def test_what_is_to_be_remembered_is_written_in_the_same_step(self) -> None:
        inbox = take(with_items(message()), taker("a")).after

        assert give_up(inbox, "a", ClearReason.ERROR, {"session_id": "s"}).after.memory == {"session_id": "s"}

    def test_only_its_holder_can_give_it_up_or_back(self) -> None:
        inbox = take(with_items(message()), taker("a")).after

        with pytest.raises(StaleLease):
            give_up(inbox, "b", ClearReason.ERROR)
        with pytest.raises(StaleLease):
            give_back(inbox, "b", ReturnReason.FAILED)


class TestWhatIsOutIsOut:
    def test_limits_and_drops_are_for_those_that_wait(self) -> None:
        limits = InboxLimits(max_items=1, hard_max_items=2)
        inbox = take(with_items(message(), limits=limits), taker("a")).after

        second = conversations_rules.enqueue(inbox, message(), limits=limits, now=NOW)
        third = conversations_rules.enqueue(second.after, message(), limits=limits, now=NOW)

        assert second.notices[-1].queue_len == 1  # type: ignore[union-attr]  # Enqueued has one
        assert [item.id for item in third.after.items] == ["q-1", "q-3"]
        assert [item.id for item in third.removed] == ["q-2"]
        assert [item.id for item in third.added] == ["q-3"]

    def test_what_is_out_can_neither_be_removed_nor_cleared(self) -> None:
        inbox = take(with_items(message(), barrier()), taker("a")).after

        assert conversations_rules.remove(inbox, "q-1").answer is None
        cleared = conversations_rules.clear(inbox, ClearReason.CANCELLED)

        assert [item.id for item in cleared.answer] == ["q-2"]
        assert ids(confirm(cleared.after, "a").answer) == ["q-1"]


class TestKeeping:
    def test_an_inbox_is_the_same_after_it_was_stored(self) -> None:
        parts: list[dict[str, object]] = [{"type": "text", "text": "hi"}]
        inbox = with_items(message(parts, agent="a", conversation="c"), barrier(), message("plain", no_coalesce=True))
        inbox = take(take(inbox, taker("z"), STREAMING).after, taker("a")).after

        assert msgspec.json.decode(msgspec.json.encode(inbox), type=Inbox) == inbox

    def test_every_notice_can_be_sent_and_read(self) -> None:
        change = take(with_items(message()), taker("a"))
        for notice in (*change.notices, *give_back(change.after, "a", ReturnReason.LOST).notices):
            assert msgspec.json.decode(msgspec.json.encode(notice), type=Notice) == notice

    def test_to_clear_nothing_is_written_too_for_it_is_told(self) -> None:
        change = conversations_rules.clear(Inbox(id="conversation-1"), ClearReason.SHUTDOWN)

        assert change.is_written
        assert kinds(change.notices) == [InboxCleared]
