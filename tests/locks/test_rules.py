"""Stories about locks, told to the rules alone."""

import pytest

from ade.errors import InvalidLock, LockLost, LockRateLimited, TooManyLocks, UpgradeDeadlock
from ade.locks.model import LockLimits, LockLoad, LockMode, LockState
from ade.locks.requests import WAITER_LEASE_MS, validate_request
from ade.locks.rules import (
    abort_victim,
    acquire,
    downgrade,
    force_release,
    let_pass,
    poll,
    reap,
    release,
    renew,
    upgrade,
)
from tests.locks.memory import READ, WRITE, MemoryLocks, wanting

DB = "database:prod-db-01"
REPO = "repo:app"


@pytest.fixture
def locks() -> MemoryLocks:
    return MemoryLocks()


def take(locks: MemoryLocks, name: str, *wanted: tuple[str, LockMode], priority: int = 5) -> bool:
    """Ask, and stay in line if need be; whether it was granted at once."""
    answer = locks.do(lambda book: acquire(book, wanting(name, *wanted, priority=priority), wait_ms=None))
    return answer is not None and answer.is_granted


def let_go(locks: MemoryLocks, name: str) -> None:
    locks.do(lambda book: release(book, name))


def holding(locks: MemoryLocks) -> set[str]:
    return {one.id for one in locks.requests.values() if one.is_granted}


def told(locks: MemoryLocks) -> list[str]:
    return [event.type for event in locks.events]


class TestOneAtATime:
    def test_a_second_writer_waits_until_the_first_lets_go(self, locks: MemoryLocks) -> None:
        assert take(locks, "a", (DB, WRITE))
        assert not take(locks, "b", (DB, WRITE))

        let_go(locks, "a")

        assert holding(locks) == {"b"}
        assert told(locks) == ["lock.acquired", "lock.queued", "lock.released", "lock.promoted"]

    def test_readers_share_and_a_writer_waits_for_all_of_them(self, locks: MemoryLocks) -> None:
        assert take(locks, "r1", (DB, READ))
        assert take(locks, "r2", (DB, READ))
        assert not take(locks, "w", (DB, WRITE))

        let_go(locks, "r1")
        assert holding(locks) == {"r2"}

        let_go(locks, "r2")
        assert holding(locks) == {"w"}

    def test_a_reader_does_not_go_past_a_waiting_writer(self, locks: MemoryLocks) -> None:
        take(locks, "r1", (DB, READ))
        take(locks, "w", (DB, WRITE))

        assert not take(locks, "r2", (DB, READ))

    def test_whoever_must_not_wait_is_told_so_and_leaves_nothing_behind(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))

        assert locks.do(lambda book: acquire(book, wanting("b", (DB, WRITE)), wait_ms=0)) is None
        assert set(locks.requests) == {"a"}

    def test_asking_again_changes_nothing(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        before = dict(locks.requests)

        assert take(locks, "a", (DB, WRITE))
        assert locks.requests == before

    def test_releasing_twice_is_no_error(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        let_go(locks, "a")

        assert locks.do(lambda book: release(book, "a")) is None


class TestTheLine:
    def test_first_come_first_served_inside_a_priority(self, locks: MemoryLocks) -> None:
        names = ["a", "b", "c", "d"]
        for name in names:
            take(locks, name, (DB, WRITE))
        order = []
        for _ in names:
            [holder] = holding(locks)
            order.append(holder)
            let_go(locks, holder)

        assert order == names

    def test_a_better_priority_goes_first_but_not_for_ever(self, locks: MemoryLocks) -> None:
        take(locks, "holder", (DB, WRITE))
        take(locks, "patient", (DB, WRITE), priority=9)
        overtaken = 0
        for number in range(100):
            take(locks, f"urgent-{number}", (DB, WRITE), priority=0)
            [holder] = holding(locks)
            if holder == "patient":
                break
            let_go(locks, holder)
            overtaken += 1

        assert 0 < overtaken <= 9 * 8 + 1

    def test_a_reader_behind_a_writer_that_gives_up_goes_on(self, locks: MemoryLocks) -> None:
        take(locks, "r1", (DB, READ))
        take(locks, "w", (DB, WRITE))
        take(locks, "r2", (DB, READ))

        let_go(locks, "w")

        assert holding(locks) == {"r1", "r2"}

    def test_only_so_many_may_wait(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        crowd, limits = LockLoad(waiting=3), LockLimits(waiters_per_resource=3)

        with pytest.raises(TooManyLocks):
            locks.do(lambda b: acquire(b, wanting("b", (DB, WRITE)), wait_ms=None, crowd=crowd, limits=limits))
        of_owner, owners = LockLoad(of_owner=7), LockLimits(requests_per_owner=7)
        with pytest.raises(TooManyLocks):
            locks.do(lambda b: acquire(b, wanting("b", (REPO, READ)), wait_ms=None, crowd=of_owner, limits=owners))


class TestHowOftenOneMayAsk:
    LIMITS = LockLimits(acquires=2, acquires_per_ms=1_000)

    def ask(self, locks: MemoryLocks, name: str, wait_ms: int | None = None) -> object:
        request = validate_request(id=name, owner="ada", scope=name, wanted=[(DB, WRITE)])
        crowd = locks.crowd(request)
        return locks.do(lambda book: acquire(book, request, wait_ms=wait_ms, crowd=crowd, limits=self.LIMITS))

    def test_after_two_at_once_it_is_one_every_half_second(self, locks: MemoryLocks) -> None:
        self.ask(locks, "a")
        self.ask(locks, "b", wait_ms=0)
        before = dict(locks.requests), dict(locks.rates), list(locks.events)

        with pytest.raises(LockRateLimited, match="after 500 ms") as told:
            self.ask(locks, "c")

        assert told.value.retry_after_ms == 500
        assert (locks.requests, locks.rates, locks.events) == before
        locks.pass_time(500)
        self.ask(locks, "c")

    def test_to_ask_how_one_stands_is_free(self, locks: MemoryLocks) -> None:
        for _ in range(10):
            self.ask(locks, "a")

        self.ask(locks, "b")
        with pytest.raises(LockRateLimited):
            self.ask(locks, "c")


class TestLeases:
    def test_a_lock_that_is_not_renewed_goes_to_the_next(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        take(locks, "b", (DB, WRITE))
        for _ in range(2):
            locks.pass_time(14_000)
            locks.do(lambda book: poll(book, "b"))
        assert holding(locks) == {"a"}
        locks.pass_time(2_000)

        assert locks.do(lambda book: poll(book, "b")) is not None
        assert holding(locks) == {"b"}
        assert locks.do(lambda book: renew(book, "a")) is None, "a renewal never brings a lock back"
        assert "lock.expired" in told(locks)

    def test_a_renewed_lock_stays(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        for _ in range(10):
            locks.pass_time(10_000)
            assert locks.do(lambda book: renew(book, "a")) is not None
        locks.do(lambda book: reap(book, ["a"]))

        assert holding(locks) == {"a"}
        assert locks.requests["a"].heartbeats == 10

    def test_a_dead_waiter_is_skipped(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        take(locks, "dead", (DB, WRITE))
        locks.pass_time(WAITER_LEASE_MS)
        take(locks, "c", (DB, WRITE))

        let_go(locks, "a")

        assert holding(locks) == {"c"}

    def test_a_waiter_waits_no_longer_than_it_said(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        locks.do(lambda book: acquire(book, wanting("b", (DB, WRITE)), wait_ms=2_000))
        locks.pass_time(2_000)

        assert locks.do(lambda book: poll(book, "b")) is None

    def test_tokens_rise_even_if_the_clock_goes_back(self, locks: MemoryLocks) -> None:
        tokens = []
        for name in "abc":
            take(locks, name, (DB, WRITE))
            tokens.append(locks.requests[name].items[0].token)
            let_go(locks, name)
            locks.now_us -= 3_600_000_000

        assert tokens == sorted(set(tokens))
        assert tokens[0] >= 1_700_000_000_000_000


class TestSeveralAtOnce:
    def test_all_or_nothing(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))

        assert not take(locks, "both", (DB, READ), (REPO, WRITE))
        assert take(locks, "other", ("repo:lib", WRITE))
        assert not take(locks, "late", (REPO, READ)), "it came later than the one that waits for both"

        let_go(locks, "a")
        assert holding(locks) == {"both", "other"}
        let_go(locks, "both")
        assert holding(locks) == {"late", "other"}

    def test_two_that_name_them_in_different_order_do_not_block_each_other(self, locks: MemoryLocks) -> None:
        assert take(locks, "a", (DB, WRITE), (REPO, WRITE))
        assert not take(locks, "b", (REPO, WRITE), (DB, WRITE))
        let_go(locks, "a")

        assert holding(locks) == {"b"}

    def test_naming_one_twice_means_the_stricter_mode(self) -> None:
        request = validate_request(id="x", owner="o", scope="s", wanted=[(DB, WRITE), (DB, READ)])

        assert [(item.resource, item.mode) for item in request.items] == [(DB, WRITE)]

    @pytest.mark.parametrize(
        "wanted", [[], [("", READ)], [("a{b}", READ)], [("tab\t", READ)], [("ü" * 300, READ)]], ids=repr
    )
    def test_names_that_cannot_be_kept_are_refused(self, wanted: list[tuple[str, LockMode]]) -> None:
        with pytest.raises(InvalidLock):
            validate_request(id="x", owner="o", scope="s", wanted=wanted)

    @pytest.mark.parametrize("ttl_ms", [0, 999, 3_600_001])
    def test_a_lease_is_neither_too_short_nor_too_long(self, ttl_ms: int) -> None:
        with pytest.raises(InvalidLock):
            validate_request(id="x", owner="o", scope="s", wanted=[(DB, READ)], ttl_ms=ttl_ms)


class TestWideningAndNarrowing:
    def test_a_sole_reader_becomes_the_writer_at_once_under_a_new_token(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, READ))
        before = locks.requests["a"].items[0].token

        widened = locks.do(lambda book: upgrade(book, "a", DB, upgrade_id="u", wait_ms=None))

        assert widened is not None
        assert widened.mode_of(DB) is WRITE
        assert widened.items[0].token > before

    def test_it_waits_before_everybody_else(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, READ))
        take(locks, "b", (DB, READ))
        take(locks, "w", (DB, WRITE), priority=0)
        locks.do(lambda book: upgrade(book, "a", DB, upgrade_id="u", wait_ms=None))

        let_go(locks, "b")

        assert holding(locks) == {"a"}
        assert locks.requests["a"].mode_of(DB) is WRITE
        assert "u" not in locks.requests

    def test_the_second_one_hears_at_once_that_it_cannot_be(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, READ))
        take(locks, "b", (DB, READ))
        locks.do(lambda book: upgrade(book, "a", DB, upgrade_id="ua", wait_ms=None))

        with pytest.raises(UpgradeDeadlock):
            locks.do(lambda book: upgrade(book, "b", DB, upgrade_id="ub", wait_ms=None))

    def test_who_has_lost_the_share_cannot_widen_it(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, READ))
        locks.pass_time(30_000)

        with pytest.raises(LockLost):
            locks.do(lambda book: upgrade(book, "a", DB, upgrade_id="u", wait_ms=None))

    def test_a_waiting_upgrade_goes_with_its_share(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, READ))
        take(locks, "b", (DB, READ))
        locks.do(lambda book: upgrade(book, "a", DB, upgrade_id="u", wait_ms=None))

        let_go(locks, "a")

        assert set(locks.requests) == {"b"}

    def test_a_writer_that_becomes_a_reader_lets_other_readers_in(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        take(locks, "r", (DB, READ))
        token = locks.requests["a"].items[0].token

        locks.do(lambda book: downgrade(book, "a", DB))

        assert holding(locks) == {"a", "r"}
        assert locks.requests["a"].items[0].token == token


class TestOperators:
    def test_a_lock_can_be_taken_away_with_a_reason(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        take(locks, "b", (DB, WRITE))

        locks.do(lambda book: force_release(book, "a", reason="stuck since noon", by="ada"))

        assert holding(locks) == {"b"}
        lost = next(event for event in locks.events if event.type == "lock.lost")
        assert (lost.payload["reason"], lost.payload["by"]) == ("stuck since noon", "ada")

    def test_one_that_gives_way_keeps_what_it_holds_and_its_age(self, locks: MemoryLocks) -> None:
        take(locks, "a", (DB, WRITE))
        take(locks, "b", (DB, WRITE))
        take(locks, "c", (DB, WRITE))
        gone = locks.do(lambda book: abort_victim(book, "b", cycle=("a", "b")))
        assert gone is not None
        heard = locks.do(lambda book: poll(book, "b"))
        assert heard is not None
        assert heard.state is LockState.VICTIM, "it hears of it when it asks"

        locks.do(lambda book: acquire(book, wanting("b2", (DB, WRITE)), wait_ms=None, first_seq=gone.seq))
        let_go(locks, "a")

        assert holding(locks) == {"b2"}

    def test_one_may_be_let_pass(self, locks: MemoryLocks) -> None:
        take(locks, "r", (DB, READ))
        take(locks, "w", (DB, WRITE))
        take(locks, "late", (DB, READ))

        locks.do(lambda book: let_pass(book, "late", before="w"))

        assert holding(locks) == {"r", "late"}
