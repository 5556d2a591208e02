"""Takers that die, come late or ask twice, in any order: nothing is lost, confirmed twice or out of order."""

import itertools

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BatchConfirmed,
    BlockedReason,
    ClearReason,
    Inbox,
    InboxChange,
    InboxCleared,
    ItemDropped,
    ItemRemoved,
    Other,
    ReturnReason,
)
from ade.agents.conversations.model import InboxLimits, ItemBatch, NewItem, StoredItem
from ade.agents.conversations.rules import BatchClaimant, confirm, expire, give_back, give_up, renew, take, take_items
from ade.errors import StaleLease
from tests.agents.conversations.items import NOW
from tests.agents.conversations.test_memory_inbox_machine import items
from tests.depth import examples

LEASE_MS = 100
pick = st.integers(0, 1_000_000)


class LeasingMachine(RuleBasedStateMachine):
    """The naive model: `line` has every seq that must still come, in order, and the first `out` of them are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox(id="conversation-1")
        self.rows: dict[int, StoredItem] = {}  # what a store would have that keeps items one by one
        self.limits = InboxLimits()
        self.steady = 0
        self.numbers = itertools.count(1)
        self.line: list[int] = []
        self.out, self.holder, self.until = 0, "", 0
        self.leases = ["never given"]
        self.confirmed: list[int] = []
        self.let_go: list[int] = []
        self.put: list[int] = []

    @initialize(soft=st.integers(1, 6), more=st.integers(0, 6))
    def set_limits(self, soft: int, more: int) -> None:
        self.limits = InboxLimits(max_items=soft, hard_max_items=soft + more)

    def write(self, change: InboxChange[Other]) -> Other:
        """As a store does: only if the version is the one that was seen; and all of it goes through JSON."""
        assert change.before == self.inbox
        assert change.after.version - change.before.version in (0, 1)
        assert change.is_written == (change.after != change.before)
        for item in change.removed:
            del self.rows[item.seq]
        for item in change.added:
            self.rows[item.seq] = item
        self.inbox = msgspec.json.decode(msgspec.json.encode(change.after), type=Inbox)
        for notice in change.notices:
            match notice:
                case BatchConfirmed(batch):
                    self.confirmed += [item.seq for item in batch.items]
                case ItemDropped(item) | ItemRemoved(item) if item.seq in self.put:
                    self.let_go.append(item.seq)
                case InboxCleared(items=gone):
                    self.let_go += [item.seq for item in gone]
        return change.answer

    # what comes in, and what is taken out of the line

    @rule(item=items())
    def enqueue(self, item: NewItem) -> None:
        before, hard = self.inbox.waiting, self.limits.hard_max_items
        is_full = len(before) >= hard or len(self.line) >= 2 * hard
        queued = self.write(conversations_rules.enqueue(self.inbox, item, limits=self.limits, now=NOW))
        assert (queued is None) == is_full
        if not isinstance(queued, StoredItem):
            return
        self.put.append(queued.seq)
        self.line.append(queued.seq)
        old = [one for one in before if one.is_coalescable]
        if len(before) >= self.limits.max_items and item.is_coalescable and old:
            self.line.remove(old[0].seq)
            assert self.let_go[-1] == old[0].seq

    @rule(number=pick)
    def remove(self, number: int) -> None:
        if not self.line:
            return
        seq = self.line[number % len(self.line)]
        removed = self.write(conversations_rules.remove(self.inbox, f"q-{seq}"))
        assert (removed is None) == (seq in self.line[: self.out])
        if removed is not None:
            self.line.remove(seq)

    @rule()
    def clear(self) -> None:
        self.write(conversations_rules.clear(self.inbox, ClearReason.CANCELLED))
        self.line = self.line[: self.out]

    # who takes

    def taker(self) -> BatchClaimant:
        lease_id = f"lease-{next(self.numbers)}"
        self.leases.append(lease_id)
        return BatchClaimant(lease_id=lease_id, holder="worker", lease_ms=LEASE_MS, steady=self.steady)

    def note(self, taker: BatchClaimant, batch: ItemBatch | None, *, may_have: bool) -> None:
        if self.out and self.until <= self.steady:
            self.out = 0
        if self.out or not self.line or not may_have:
            assert batch is None
            return
        assert batch is not None
        assert [item.seq for item in batch.items] == self.line[: batch.merged_count]
        assert batch.queue_len_after == len(self.line) - batch.merged_count
        self.out, self.holder, self.until = batch.merged_count, taker.lease_id, taker.until

    @rule()
    def take(self) -> None:
        taker = self.taker()
        batch = self.write(take(self.inbox, taker))
        self.note(taker, batch, may_have=True)
        if batch is not None:
            self.joins_exactly_what_may_be_joined(batch.items)

    def joins_exactly_what_may_be_joined(self, batch: tuple[StoredItem, ...]) -> None:
        def may_follow(one: StoredItem, other: StoredItem) -> bool:
            both = (one, other)
            return one.scope == other.scope and all(item.is_coalescable and not item.no_coalesce for item in both)

        assert all(may_follow(one, other) for one, other in itertools.pairwise(batch))
        assert not (self.inbox.waiting and may_follow(batch[-1], self.inbox.waiting[0]))

    @rule(count=st.sampled_from([0, 1, 2, 3, 50]))
    def take_so_many(self, count: int) -> None:
        taker = self.taker()
        batch = self.write(take_items(self.inbox, taker, count))
        self.note(taker, batch, may_have=count > 0)
        if batch is not None:
            assert batch.merged_count == min(count, len(self.line))

    @rule(reason=st.sampled_from(BlockedReason))
    def have_a_reason_not_to(self, reason: BlockedReason) -> None:
        taker = self.taker()
        self.note(taker, self.write(take(self.inbox, taker, reason)), may_have=False)

    @rule()
    def ask_once_more(self) -> None:
        if not self.out:
            return
        same = BatchClaimant(lease_id=self.holder, holder="worker", lease_ms=LEASE_MS, steady=self.steady)
        batch = self.write(take(self.inbox, same))
        assert batch is not None
        assert [item.seq for item in batch.items] == self.line[: self.out]
        self.until = max(self.until, same.until)

    # how it ends: well, badly, late, or twice

    def some_lease(self, number: int) -> str:
        """Mostly of the one who has the batch, else of any that ever was."""
        return self.holder if number % 3 and self.out else self.leases[number % len(self.leases)]

    @rule(number=pick)
    def confirm(self, number: int) -> None:
        lease_id = self.some_lease(number)
        is_holder = bool(self.out) and lease_id == self.holder
        try:
            batch = self.write(confirm(self.inbox, lease_id))
        except StaleLease:
            assert not is_holder
            return
        assert (batch is not None) == is_holder
        if is_holder:
            self.line, self.out = self.line[self.out :], 0

    @rule(number=pick, reason=st.sampled_from(ReturnReason))
    def give_back(self, number: int, reason: ReturnReason) -> None:
        lease_id = self.some_lease(number)
        try:
            self.write(give_back(self.inbox, lease_id, reason))
        except StaleLease:
            assert not (self.out and lease_id == self.holder)
            return
        assert lease_id == self.holder
        self.out = 0

    @rule(number=pick)
    def give_up(self, number: int) -> None:
        lease_id = self.some_lease(number)
        try:
            self.write(give_up(self.inbox, lease_id, ClearReason.ERROR))
        except StaleLease:
            assert not (self.out and lease_id == self.holder)
            return
        self.line, self.out = self.line[self.out :], 0

    @rule(number=pick)
    def renew(self, number: int) -> None:
        lease_id = self.some_lease(number)
        try:
            self.write(renew(self.inbox, lease_id, lease_ms=LEASE_MS, steady=self.steady))
        except StaleLease:
            assert not (self.out and lease_id == self.holder)
            return
        self.until = max(self.until, self.steady + LEASE_MS)

    @rule(ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS]))
    def pass_time(self, ms: int) -> None:
        self.steady += ms

    @rule()
    def sweep(self) -> None:
        batch = self.write(expire(self.inbox, steady=self.steady))
        is_lost = bool(self.out) and self.until <= self.steady
        assert (batch is not None) == is_lost
        if is_lost:
            self.out = 0

    # what always holds

    @invariant()
    def the_inbox_has_what_must_still_come_in_order(self) -> None:
        assert [item.seq for item in self.inbox.items] == self.line == sorted(self.line)
        assert len(self.inbox.taken) == self.out
        assert tuple(self.rows[seq] for seq in sorted(self.rows)) == self.inbox.items

    @invariant()
    def nothing_is_lost_and_nothing_comes_twice(self) -> None:
        assert sorted([*self.line, *self.confirmed, *self.let_go]) == self.put

    @invariant()
    def confirmed_in_the_order_it_came_in(self) -> None:
        assert self.confirmed == sorted(self.confirmed)

    @invariant()
    def no_inbox_grows_without_end(self) -> None:
        assert len(self.inbox.items) <= 2 * self.limits.hard_max_items


TestLeasingMachine = LeasingMachine.TestCase
TestLeasingMachine.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
