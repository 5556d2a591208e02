"""Random histories of locks: whatever is done in whatever order, a store's books hold what the rules alone make of it.

The rules have a machine of their own that shows that nobody holds what conflicts, tokens rise and nobody waits in vain;
what holds for them holds for every store that has the same in its books.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from ade.errors import AdeError
from ade.locks import rules as locks_rules
from ade.locks.deadlocks import DeadlockVictimChoice, QueueReorder
from ade.locks.rules import LockTable
from tests.conformance.backends import BACKENDS
from tests.conformance.histories import StoreHistories, play
from tests.domain import LockLimits, LockMode, LockQuery, LockRequest, validate_request
from tests.locks.memory import READ, WRITE, MemoryLocks

Answer = TypeVar("Answer")
RESOURCES = ("db:a", "db:b", "repo:c")
specs = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from([READ, WRITE]), min_size=1, max_size=3)
pick = st.integers(min_value=0, max_value=1_000_000)
waits = st.sampled_from([None, None, 0, 5_000])
NARROW = LockLimits(waiters_per_resource=3, requests_per_owner=4, acquires=2, acquires_per_ms=7_000)
limits = st.sampled_from([LockLimits(), LockLimits(acquires=3, acquires_per_ms=2_000), NARROW])


class LockHistories(StoreHistories):
    """Everything is done twice: by the store, and by the rules in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.model = MemoryLocks()
        self.numbers = itertools.count()
        self.store = self.stores.locks
        self.told = 0

    def both(self, action: Coroutine[Any, Any, Answer], verb: Callable[[LockTable], Answer]) -> None:
        self.model.now_us, self.model.steady_ms = self.clock.now() * 1000, self.clock.steady()
        expected = _outcome(lambda: self.model.do(verb))
        assert _outcome(lambda: self.do(action)) == expected

    def some(self, number: int) -> LockRequest | None:
        known = sorted(self.model.requests)
        return self.model.requests[known[number % len(known)]] if known else None

    @rule(
        spec=specs,
        priority=st.integers(0, 9),
        wait_ms=waits,
        first_seq=st.sampled_from([0, 0, 1, 3]),
        alone=st.booleans(),
        allowed=limits,
    )
    def ask(
        self,
        spec: dict[str, LockMode],
        priority: int,
        wait_ms: int | None,
        first_seq: int,
        alone: bool,
        allowed: LockLimits,
    ) -> None:
        number = next(self.numbers)
        request = validate_request(
            id=f"r{number}",
            owner=f"o{number % 3}",
            scope=f"s{number}",
            wanted=spec.items(),
            priority=priority,
            unattended=alone,
        )
        self._ask(request, wait_ms, first_seq, allowed)

    @rule(number=pick, allowed=limits)
    def ask_again(self, number: int, allowed: LockLimits) -> None:
        if (request := self.some(number)) and request.upgrades is None:
            self._ask(request, None, 0, allowed)

    @rule(spec=specs, wait_ms=waits, allowed=limits)
    def ask_without_a_loop(self, spec: dict[str, LockMode], wait_ms: int | None, allowed: LockLimits) -> None:
        number = next(self.numbers)
        request = validate_request(id=f"r{number}", owner=f"o{number % 3}", scope=f"s{number}", wanted=spec.items())
        crowd = self.model.crowd(request)

        async def acquire() -> LockRequest | None:
            return await asyncio.to_thread(self.store.acquire_blocking, request, wait_ms=wait_ms, limits=allowed)

        self.both(
            acquire(), lambda book: locks_rules.acquire(book, request, wait_ms=wait_ms, crowd=crowd, limits=allowed)
        )

    @rule(number=pick)
    def let_go_without_a_loop(self, number: int) -> None:
        ids = [request.id for request in [self.some(number)] if request]

        async def release() -> list[LockRequest | None]:
            return await asyncio.to_thread(self.store.release_blocking, "default", ids)

        self.both(release(), lambda book: [locks_rules.release(book, each) for each in ids])

    def _ask(self, request: LockRequest, wait_ms: int | None, first_seq: int, allowed: LockLimits) -> None:
        crowd = self.model.crowd(request)
        self.both(
            self.store.acquire(request, wait_ms=wait_ms, first_seq=first_seq, limits=allowed),
            lambda book: locks_rules.acquire(
                book, request, wait_ms=wait_ms, first_seq=first_seq, crowd=crowd, limits=allowed
            ),
        )

    @rule(number=pick)
    def let_go(self, number: int) -> None:
        if request := self.some(number):
            self.both(
                self.store.release("default", [request.id, "nobody"]),
                lambda book: [locks_rules.release(book, each) for each in (request.id, "nobody")],
            )

    @rule(numbers=st.lists(pick, min_size=1, max_size=3))
    def renew(self, numbers: list[int]) -> None:
        ids = [request.id for number in numbers if (request := self.some(number))]
        self.both(self.store.renew("default", ids), lambda book: [locks_rules.renew(book, each) for each in ids])

    @rule(number=pick)
    def renew_without_a_loop(self, number: int) -> None:
        ids = [request.id for request in [self.some(number)] if request]

        async def renew() -> list[LockRequest | None]:
            return await asyncio.to_thread(self.store.renew_blocking, "default", ids)

        self.both(renew(), lambda book: [locks_rules.renew(book, each) for each in ids])

    @rule(numbers=st.lists(pick, min_size=1, max_size=3))
    def poll(self, numbers: list[int]) -> None:
        ids = [request.id for number in numbers if (request := self.some(number))]
        self.both(self.store.poll("default", ids), lambda book: [locks_rules.poll(book, each) for each in ids])

    @rule(number=pick, wait_ms=waits)
    def widen(self, number: int, wait_ms: int | None) -> None:
        if (request := self.some(number)) and request.is_granted:
            at, up = request.resources[0], f"u{next(self.numbers)}"
            self.both(
                self.store.upgrade("default", request.id, at, upgrade_id=up, wait_ms=wait_ms),
                lambda book: locks_rules.upgrade(book, request.id, at, upgrade_id=up, wait_ms=wait_ms),
            )

    @rule(number=pick)
    def narrow(self, number: int) -> None:
        if (request := self.some(number)) and request.is_granted:
            at = request.resources[0]
            self.both(
                self.store.downgrade("default", request.id, at),
                lambda book: locks_rules.downgrade(book, request.id, at),
            )

    @rule(number=pick)
    def take_away(self, number: int) -> None:
        if request := self.some(number):
            self.both(
                self.store.take_away("default", request.id, reason="stuck", by="ada"),
                lambda book: locks_rules.force_release(book, request.id, reason="stuck", by="ada"),
            )

    @rule(number=pick)
    def give_way(self, number: int) -> None:
        if request := self.some(number):
            self.both(
                self.store.cure("default", DeadlockVictimChoice(request.id), ("a", "b")),
                lambda book: locks_rules.abort_victim(book, request.id, cycle=("a", "b")),
            )

    @rule(number=pick, other=pick)
    def let_pass(self, number: int, other: int) -> None:
        first, second = self.some(number), self.some(other)
        if first and second:
            self.both(
                self.store.cure("default", QueueReorder(first.id, second.id), ()),
                lambda book: locks_rules.let_pass(book, first.id, before=second.id),
            )

    @rule()
    def sweep(self) -> None:
        steady = self.clock.steady()
        ends = {one.id: min(one.lease_until, one.wait_until or one.lease_until) for one in self.model.requests.values()}
        dead = sorted(one for one, end in ends.items() if end <= steady)
        self.model.now_us, self.model.steady_ms = self.clock.now() * 1000, steady
        self.model.do(lambda book: locks_rules.reap(book, dead))
        self.do(self.store.bury(100))
        self.told = len(self.model.events)  # the dead are buried in any order

    @rule(seconds=st.sampled_from([0.001, 1, 6, 16, 31]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def put_the_clock_back(self) -> None:
        self.clock.jump_wall(-60)

    @invariant()
    def the_books_agree(self) -> None:
        found = self.do(self.store.find(LockQuery(namespace="default")))
        assert {one.id: one for one in found} == self.model.requests
        called = self.do(self.store.called(1_000))
        assert {one.id for one in called} == {one.id for one in self.model.requests.values() if one.is_called}
        for kind in ("db", "repo", "d"):
            of_kind = self.do(self.store.find(LockQuery(kind=kind)))
            assert [one.id for one in of_kind] == sorted(
                one.id for one in self.model.requests.values() if one.stands_at(kind)
            )
        ids = [*self.model.requests, "nobody"]
        assert self.do(self.store.look("default", ids)) == [*self.model.requests.values(), None]

    @invariant()
    def the_log_tells_the_same(self) -> None:
        new, self.told = self.model.events[self.told :], len(self.model.events)
        if new:
            newest = self.do(self.stores.events.newest(len(new)))
            assert [(one.type, one.actor, one.payload) for one in newest] == [
                (one.type, one.actor, one.payload) for one in new
            ]


def _outcome(action: Callable[[], Answer]) -> Answer | str:
    try:
        return action()
    except AdeError as error:
        return f"{error.code}: {error.detail}"


@pytest.mark.deep
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_whatever_happens_the_books_hold_what_the_rules_say(backend_name: str) -> None:
    assert play(LockHistories, backend_name, in_depth=30, steps=30) > 0
