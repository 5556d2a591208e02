"""Random histories of inboxes that several consumers use at once: every store does what the rules of the core say.

A consumer decides on what it has seen, which may be old. Its write is carried out if nobody has written since, and is
refused otherwise; a write that is repeated happens once.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec import structs

from ade import NewItem
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BlockedReason,
    ClearReason,
    Inbox,
    InboxChange,
    ReturnReason,
    events_of,
    unused,
)
from ade.errors import StaleLease, StaleWrite
from tests.agents.conversations.test_memory_inbox_machine import items
from tests.conformance.backends import BACKENDS
from tests.conformance.histories import StoreHistories, play
from tests.domain import BatchClaimant, InboxLimits

INBOXES = ("conv:1", "conv:2", "ä/3")
CODER, CRITIC = "agent:coder", "agent:critic"
LEASE_MS = 10_000
LIMITS = InboxLimits(max_items=3, hard_max_items=5)
places = st.tuples(st.integers(0, 2), st.sampled_from(INBOXES))  # a consumer, and the inbox it is about
sights = st.sampled_from([True, True, True, False])  # whether it looks first, or decides on what it saw last
keys = st.sampled_from([None, None, "k1", "k2"])
Decide = Callable[[Inbox], InboxChange[Any]]


class InboxHistories(StoreHistories):
    """Everything is done twice: by the store, and on records of the core in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.stores.inboxes
        self.numbers = itertools.count(1)
        self.kept = {name: unused(name) for name in INBOXES}
        self.written_at = dict.fromkeys(INBOXES, 0)
        self.seen: dict[tuple[int, str], Inbox] = {}
        self.leases: dict[str, str] = dict.fromkeys(INBOXES, "never given")  # the newest of each
        self.told: list[tuple[str, dict[str, object]]] = []

    def teardown(self) -> None:
        listed = self.do(self.store.list_inboxes("", 100))
        events = self.do(self.stores.events.read(0, 10_000))
        super().teardown()
        used = [inbox for name, inbox in sorted(self.kept.items()) if inbox.version]
        assert [(one.id, one.version, one.waiting, one.taken, one.consumer) for one in listed] == [
            (one.id, one.version, one.length, len(one.taken), one.consumer) for one in used
        ]
        assert [(event.type, event.payload) for event in events] == self.told

    def decide(self, place: tuple[int, str], looks: bool, decide: Decide, *, repeats: bool = False) -> None:
        """One consumer decides and writes; what comes of it is what the core says of the records that are kept."""
        name = place[1]
        if looks or place not in self.seen:
            self.seen[place] = self.do(self.store.load(name))
            assert self.seen[place] == self.kept[name]
        try:
            change = decide(self.seen[place])
        except StaleLease:
            return
        token = f"w{next(self.numbers)}"
        if change.is_written and change.before.version != self.kept[name].version:
            with pytest.raises(StaleWrite):
                self.do(self.store.write(change, token))
            return
        for _ in range(1 + repeats):
            self.do(self.store.write(change, token))
        if change.is_written:
            self.kept[name], self.written_at[name] = change.after, self.clock.now()
            events = events_of(name, change.notices, at=self.clock.now())
            self.told += [(event.type, event.payload) for event in events]

    @rule(place=places, looks=sights, item=items(), key=keys, repeats=st.booleans())
    def enqueue(self, place: tuple[int, str], looks: bool, item: NewItem, key: str | None, repeats: bool) -> None:
        keyed, now = structs.replace(item, key=key), self.clock.now()
        self.decide(
            place,
            looks,
            lambda inbox: conversations_rules.enqueue(inbox, keyed, limits=LIMITS, now=now),
            repeats=repeats,
        )

    @rule(place=places, looks=sights, reason=st.sampled_from([None, None, *BlockedReason]), repeats=st.booleans())
    def take(self, place: tuple[int, str], looks: bool, reason: BlockedReason | None, repeats: bool) -> None:
        self.leases[place[1]] = lease_id = f"lease-{next(self.numbers)}"
        taker = BatchClaimant(lease_id=lease_id, holder=f"{place[0]}", lease_ms=LEASE_MS, steady=self.clock.steady())
        self.decide(place, looks, lambda inbox: conversations_rules.take(inbox, taker, reason), repeats=repeats)

    @rule(place=places, looks=sights, end=st.sampled_from(["confirm", "give_back", "give_up", "renew", "remember"]))
    def go_on(self, place: tuple[int, str], looks: bool, end: str) -> None:
        lease_id, steady = self.leases[place[1]], self.clock.steady()
        ends: dict[str, Decide] = {
            "confirm": lambda inbox: conversations_rules.confirm(inbox, lease_id, {"by": place[0]}),
            "give_back": lambda inbox: conversations_rules.give_back(inbox, lease_id, ReturnReason.FAILED),
            "give_up": lambda inbox: conversations_rules.give_up(inbox, lease_id, ClearReason.ERROR),
            "renew": lambda inbox: conversations_rules.renew(inbox, lease_id, lease_ms=LEASE_MS, steady=steady),
            "remember": lambda inbox: conversations_rules.remember(inbox, lease_id, {"at": steady}),
        }
        self.decide(place, looks, ends[end])

    @rule(place=places, looks=sights, number=st.integers(1, 9))
    def remove(self, place: tuple[int, str], looks: bool, number: int) -> None:
        self.decide(place, looks, lambda inbox: conversations_rules.remove(inbox, f"q-{number}"))

    @rule(place=places, looks=sights)
    def clear(self, place: tuple[int, str], looks: bool) -> None:
        self.decide(place, looks, lambda inbox: conversations_rules.clear(inbox, ClearReason.CANCELLED))

    @rule(place=places, looks=sights, consumer=st.sampled_from([CODER, CODER, CRITIC, None]))
    def bind(self, place: tuple[int, str], looks: bool, consumer: str | None) -> None:
        self.decide(place, looks, lambda inbox: conversations_rules.bind(inbox, consumer))

    @rule(seconds=st.sampled_from([0.001, 4, 11]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(limit=st.sampled_from([1, 10]))
    def forget(self, limit: int) -> None:
        moment = self.clock.now() - 3_000
        idle = [name for name in INBOXES if self.kept[name].version and not self.kept[name].items]
        old = [name for name in idle if self.written_at[name] < moment]
        forgotten = self.do(self.store.forget_empty(moment, limit))
        assert min(len(old), limit) <= forgotten <= len(old)  # of a cluster each partition may forget so many
        for name in old:
            found = self.do(self.store.load(name))
            assert found in (self.kept[name], unused(name))
            self.kept[name] = found
            self.seen = {place: inbox for place, inbox in self.seen.items() if place[1] != name}

    @invariant()
    def consumers_find_what_waits_longest_first(self) -> None:
        def since(inbox: Inbox) -> tuple[int, str]:
            return inbox.items[0].enqueued_at, inbox.id

        steady = self.clock.steady()
        free = [one for one in self.kept.values() if one.items and not (one.lease and one.lease.until > steady)]
        expected = [one.id for one in sorted(free, key=since) if one.consumer in (CODER, CRITIC)]
        assert self.do(self.store.ready(frozenset({CODER, CRITIC}), 2)) == expected[:2]


@pytest.mark.deep
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_whatever_consumers_do_inboxes_are_as_the_core_says(backend_name: str) -> None:
    assert play(InboxHistories, backend_name, in_depth=12, steps=30) > 0
