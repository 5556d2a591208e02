"""Any order of verbs, deaths and passing time: nobody holds what conflicts, tokens rise, and nobody waits in vain."""

import itertools
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ade.errors import LockLost, UpgradeDeadlock
from ade.locks.model import FRONT, OVERTAKING, LockMode, LockRequest, conflict, place_in_line
from ade.locks.rules import abort_victim, acquire, downgrade, force_release, poll, reap, release, renew, upgrade
from tests.depth import examples
from tests.locks.memory import READ, WRITE, MemoryLocks, wanting

RESOURCES = ("db:a", "db:b", "repo:c")
modes = st.sampled_from([READ, WRITE])
specs = st.dictionaries(st.sampled_from(RESOURCES), modes, min_size=1, max_size=3)
pick = st.integers(min_value=0, max_value=1_000_000)


class LockMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.locks = MemoryLocks()
        self.numbers = itertools.count()
        self.highest: dict[str, int] = defaultdict(int)
        self.overtaken: dict[str, int] = defaultdict(int)
        self.seen_events = self.weighed_events = 0

    def some(self, number: int) -> LockRequest | None:
        known = sorted(self.locks.requests)
        return self.locks.requests[known[number % len(known)]] if known else None

    @rule(spec=specs, priority=st.integers(0, 9), wait=st.sampled_from([None, 0, 5_000]))
    def ask(self, spec: dict[str, LockMode], priority: int, wait: int | None) -> None:
        request = wanting(f"r{next(self.numbers)}", *spec.items(), priority=priority)
        self.locks.do(lambda book: acquire(book, request, wait_ms=wait))

    @rule(number=pick)
    def let_go(self, number: int) -> None:
        if request := self.some(number):
            self.locks.do(lambda book: release(book, request.id))

    @rule(number=pick)
    def beat(self, number: int) -> None:
        if request := self.some(number):
            verb = renew if request.is_granted else poll
            self.locks.do(lambda book: verb(book, request.id))

    @rule(number=pick)
    def widen(self, number: int) -> None:
        if (request := self.some(number)) and request.is_granted:
            resource, upgrade_id = request.resources[0], f"u{next(self.numbers)}"
            try:
                self.locks.do(lambda book: upgrade(book, request.id, resource, upgrade_id=upgrade_id, wait_ms=None))
            except (UpgradeDeadlock, LockLost):
                return

    @rule(number=pick)
    def narrow(self, number: int) -> None:
        if (request := self.some(number)) and request.is_granted:
            try:
                self.locks.do(lambda book: downgrade(book, request.id, request.resources[0]))
            except LockLost:
                return

    @rule(number=pick)
    def take_by_force(self, number: int) -> None:
        if request := self.some(number):
            self.locks.do(lambda book: force_release(book, request.id, reason="test", by="operator"))

    @rule(number=pick)
    def give_way(self, number: int) -> None:
        if request := self.some(number):
            self.locks.do(lambda book: abort_victim(book, request.id, cycle=()))

    @rule(ms=st.sampled_from([1, 1_000, 6_000, 16_000, 31_000]))
    def pass_time(self, ms: int) -> None:
        """Whoever does not beat in time is dead from here on."""
        self.locks.pass_time(ms)

    @rule()
    def put_the_clock_back(self) -> None:
        self.locks.now_us -= 60_000_000

    @rule()
    def sweep(self) -> None:
        self.locks.do(lambda book: reap(book, list(self.locks.requests)))

    def alive(self) -> list[LockRequest]:
        steady = self.locks.steady_ms
        return [
            one
            for one in self.locks.requests.values()
            if one.lease_until > steady and (one.is_granted or one.wait_until is None or one.wait_until > steady)
        ]

    @invariant()
    def nobody_holds_what_conflicts(self) -> None:
        granted = [one for one in self.alive() if one.is_granted]
        for one, other in itertools.combinations(granted, 2):
            for resource in set(one.resources) & set(other.resources):
                mine, theirs = one.mode_of(resource), other.mode_of(resource)
                assert mine is not None
                assert theirs is not None
                assert not conflict(mine, theirs), (one, other)

    @invariant()
    def tokens_rise(self) -> None:
        new, self.weighed_events = self.locks.events[self.weighed_events :], len(self.locks.events)
        for event in new:
            if event.type in {"lock.acquired", "lock.promoted"}:
                for item in event.payload["items"]:  # type: ignore[attr-defined]  # a list of dicts
                    assert item["token"] > self.highest[item["resource"]]
                    self.highest[item["resource"]] = item["token"]
            elif event.type == "lock.upgraded":
                for item in event.payload["items"]:  # type: ignore[attr-defined]  # a list of dicts
                    self.highest[item["resource"]] = max(self.highest[item["resource"]], item["token"])

    @invariant()
    def nobody_is_passed_by_who_comes_behind(self) -> None:
        new, self.seen_events = self.locks.events[self.seen_events :], len(self.locks.events)
        let_in = {str(event.payload["request_id"]) for event in new if event.type in {"lock.acquired", "lock.promoted"}}
        winners = [one for one in self.locks.requests.values() if one.id in let_in]
        waiting = [one for one in self.alive() if one.is_waiting]
        for winner, waiter in itertools.product(winners, waiting):
            if not self._conflict(winner, waiter):
                continue
            assert place_in_line(winner) < place_in_line(waiter), (winner, waiter)
            if winner.seq > waiter.seq:
                self.overtaken[waiter.id] += 1
                assert self.overtaken[waiter.id] <= OVERTAKING * 9

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        alive = self.alive()
        if len(alive) < len(self.locks.requests):
            return  # some are dead and nobody has looked since
        for waiter in alive:
            if waiter.is_waiting:
                assert any(self._stands_in_the_way(other, waiter) for other in alive), waiter

    def _stands_in_the_way(self, other: LockRequest, waiter: LockRequest) -> bool:
        if other.id in (waiter.id, waiter.upgrades):
            return False
        if not other.is_granted and (not other.is_waiting or place_in_line(other) > place_in_line(waiter)):
            return False
        return self._conflict(other, waiter)

    @staticmethod
    def _conflict(one: LockRequest, other: LockRequest) -> bool:
        modes = ((one.mode_of(item.resource), item.mode) for item in other.items)
        return any(mine is not None and conflict(mine, theirs) for mine, theirs in modes)

    @invariant()
    def an_upgrade_has_its_share(self) -> None:
        for waiter in self.alive():
            if waiter.upgrades is not None and waiter.is_waiting:  # one that gave way waits for nothing
                assert waiter.rank == FRONT
                assert waiter.upgrades in self.locks.requests


TestLockMachine = LockMachine.TestCase
TestLockMachine.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
