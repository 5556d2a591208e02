"""Locks on every store: one at a time, in turn, and whoever dies is in nobody's way."""

import asyncio

import pytest
from msgspec import structs

from ade.errors import LockLost, LockRateLimited, TooManyLocks, UpgradeDeadlock
from ade.locks.deadlocks import DeadlockVictimChoice, QueueReorder
from ade.stores.resource_ports import LockQuery, LockStore, LockUpdates
from tests.clocks import set_back
from tests.conformance.scene import Scene
from tests.domain import LockLimits, LockMode, LockRequest, validate_request

READ, WRITE = LockMode.SHARED, LockMode.EXCLUSIVE
DB, REPO = "database:prod-db-01", "repo:app"
USUAL = LockLimits()


class People:
    """Who asks for locks. A request is named after whoever asks, and owned by it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store: LockStore = scene.stores.locks

    async def ask(
        self,
        who: str,
        *wanted: tuple[str, LockMode],
        namespace: str = "default",
        owner: str | None = None,
        wait_ms: int | None = None,
        limits: LockLimits = USUAL,
        **more: object,
    ) -> LockRequest | None:
        request = validate_request(
            id=who,
            owner=owner or who,
            scope=who,
            wanted=wanted or [(DB, WRITE)],
            namespace=namespace,
            **more,  # type: ignore[arg-type]  # any field of a request, by its name
        )
        return await self.store.acquire(request, wait_ms=wait_ms, limits=limits)

    async def hold(self, who: str, *wanted: tuple[str, LockMode], **more: object) -> LockRequest:
        granted = await self.ask(who, *wanted, **more)  # type: ignore[arg-type]  # passed on as given
        assert granted is not None
        assert granted.is_granted, f"{who} has to wait"
        return granted

    async def leave(self, who: str) -> LockRequest | None:
        [left] = await self.store.release("default", [who])
        return left

    async def holders(self, namespace: str = "default") -> list[str]:
        return [one.id for one in await self.store.find(LockQuery(namespace=namespace)) if one.is_granted]

    async def events(self) -> list[str]:
        told = await self.scene.stores.events.read(0, 1000)
        return [f"{event.type} {event.payload['request_id']}" for event in told if event.type.startswith("lock.")]


@pytest.fixture
def people(scene: Scene) -> People:
    return People(scene)


def tokens(request: LockRequest | None) -> list[int]:
    assert request is not None
    return [item.token for item in request.items]


async def test_one_at_a_time_in_the_order_they_came(people: People) -> None:
    await people.hold("ada")
    await people.ask("bob")
    await people.ask("cy")

    assert await people.holders() == ["ada"]
    await people.leave("ada")
    assert await people.holders() == ["bob"]
    await people.leave("bob")
    assert await people.holders() == ["cy"]
    assert await people.events() == [
        "lock.acquired ada",
        "lock.queued bob",
        "lock.queued cy",
        "lock.released ada",
        "lock.promoted bob",
        "lock.released bob",
        "lock.promoted cy",
    ]


async def test_who_must_not_wait_is_not_put_in_line(people: People) -> None:
    await people.hold("ada")

    assert await people.ask("bob", wait_ms=0) is None

    assert await people.store.find(LockQuery(owner="bob")) == []


async def test_readers_share_and_do_not_overtake_a_writer_that_waits(people: People) -> None:
    await people.hold("ada", (DB, READ))
    await people.hold("bob", (DB, READ))
    await people.ask("writer", (DB, WRITE))
    await people.ask("late", (DB, READ))

    await people.leave("ada")
    assert await people.holders() == ["bob"]
    await people.leave("bob")
    assert await people.holders() == ["writer"]
    await people.leave("writer")
    assert await people.holders() == ["late"]


async def test_those_who_matter_more_go_first(people: People) -> None:
    await people.hold("ada")
    await people.ask("patient", priority=9)
    await people.ask("urgent", priority=0)

    await people.leave("ada")

    assert await people.holders() == ["urgent"]


async def test_a_lease_that_runs_out_lets_the_next_one_in(people: People) -> None:
    await people.hold("ada", ttl_ms=30_000)
    await people.ask("bob")
    people.scene.clock.advance(10)
    await people.store.poll("default", ["bob"])
    people.scene.clock.advance(10)
    await people.store.poll("default", ["bob"])
    people.scene.clock.advance(10)

    [bob] = await people.store.poll("default", ["bob"])

    assert bob is not None
    assert bob.is_granted
    assert await people.leave("ada") is None
    assert "lock.expired ada" in await people.events()


async def test_the_sweep_buries_the_dead_where_nobody_looks(people: People) -> None:
    await people.hold("ada")
    await people.hold("zoe", namespace="elsewhere")
    people.scene.clock.advance(31)

    assert await people.store.bury(100) == 2

    assert await people.store.find(LockQuery()) == []
    assert await people.store.bury(100) == 0


async def test_a_renewal_keeps_a_lock_and_never_brings_one_back(people: People) -> None:
    held = await people.hold("ada", ttl_ms=30_000)
    people.scene.clock.advance(29)
    [renewed] = await people.store.renew("default", ["ada"])
    assert renewed is not None
    assert (renewed.lease_until, renewed.heartbeats) == (held.lease_until + 29_000, 1)
    assert tokens(renewed) == tokens(held)

    people.scene.clock.advance(31)

    assert await people.store.renew("default", ["ada", "nobody"]) == [None, None]


async def test_a_waiter_that_died_is_passed_over(people: People) -> None:
    await people.hold("ada", ttl_ms=60_000)
    await people.ask("dead")
    people.scene.clock.advance(10)
    await people.ask("alive")
    people.scene.clock.advance(10)

    await people.leave("ada")

    assert await people.holders() == ["alive"]


async def test_who_waits_only_for_a_while_is_let_go(people: People) -> None:
    await people.hold("ada")
    await people.ask("bob", wait_ms=2_000)
    people.scene.clock.advance(3)

    assert await people.store.poll("default", ["bob"]) == [None]


async def test_a_share_becomes_exclusive_before_everybody_else(people: People) -> None:
    ada = await people.hold("ada", (DB, READ))
    await people.hold("bob", (DB, READ))
    await people.ask("writer")

    await people.store.upgrade("default", "ada", DB, upgrade_id="up", wait_ms=None)
    await people.leave("bob")

    [widened] = await people.store.look("default", ["ada"])
    assert widened is not None
    assert widened.mode_of(DB) is WRITE
    assert tokens(widened) > tokens(ada)
    assert await people.holders() == ["ada"]


async def test_a_second_upgrade_is_refused_at_once(people: People) -> None:
    await people.hold("ada", (DB, READ))
    await people.hold("bob", (DB, READ))
    await people.store.upgrade("default", "ada", DB, upgrade_id="up-a", wait_ms=None)

    with pytest.raises(UpgradeDeadlock, match="ada also shares the lock"):
        await people.store.upgrade("default", "bob", DB, upgrade_id="up-b", wait_ms=None)
    with pytest.raises(LockLost):
        await people.store.upgrade("default", "nobody", DB, upgrade_id="up-n", wait_ms=None)


async def test_an_upgrade_goes_with_the_share_that_it_was_to_widen(people: People) -> None:
    await people.hold("ada", (DB, READ), ttl_ms=1_000)
    await people.hold("bob", (DB, READ))
    await people.store.upgrade("default", "ada", DB, upgrade_id="up", wait_ms=None)
    people.scene.clock.advance(2)

    await people.leave("bob")

    assert await people.store.find(LockQuery()) == []


async def test_a_downgrade_lets_readers_in(people: People) -> None:
    ada = await people.hold("ada")
    await people.ask("bob", (DB, READ))

    shared = await people.store.downgrade("default", "ada", DB)

    assert tokens(shared) == tokens(ada)
    assert await people.holders() == ["ada", "bob"]
    with pytest.raises(LockLost):
        await people.store.downgrade("default", "nobody", DB)


async def test_several_are_taken_together_or_not_at_all(people: People) -> None:
    await people.hold("ada", (REPO, WRITE))
    both = await people.ask("both", (DB, WRITE), (REPO, WRITE))
    assert both is not None
    assert both.is_waiting
    await people.ask("behind", (DB, READ))

    await people.leave("ada")

    assert await people.holders() == ["both"]
    [granted] = await people.store.look("default", ["both"])
    assert len(set(tokens(granted))) == 2


async def test_an_operator_takes_a_lock_away(people: People) -> None:
    await people.hold("ada", purpose="migration")
    await people.ask("bob")

    taken = await people.store.take_away("default", "ada", reason="stuck", by="operator")

    assert taken is not None
    assert await people.holders() == ["bob"]
    assert await people.store.renew("default", ["ada"]) == [None]
    told = [event for event in await people.scene.stores.events.read(0, 100) if event.type == "lock.lost"]
    assert [(event.actor, event.payload["reason"], event.payload["by"]) for event in told] == [
        ("ada", "stuck", "operator")
    ]
    assert await people.store.take_away("default", "ada", reason="stuck", by="operator") is None


async def test_who_gives_way_hears_of_it_and_the_next_one_is_let_in(people: People) -> None:
    await people.hold("ada", (DB, READ))
    await people.ask("writer")
    await people.ask("reader", (DB, READ))

    victim = await people.store.cure("default", DeadlockVictimChoice("writer"), ("a", "b"))

    assert await people.store.look("default", ["writer"]) == [victim]
    assert await people.holders() == ["ada", "reader"]
    assert await people.store.cure("default", DeadlockVictimChoice("writer"), ("a", "b")) is None


async def test_a_line_may_be_put_in_another_order(people: People) -> None:
    await people.hold("ada")
    await people.ask("bob")
    await people.ask("cy")

    moved = await people.store.cure("default", QueueReorder("cy", "bob"), ())
    await people.leave("ada")

    assert moved is not None
    assert await people.holders() == ["cy"]


async def test_nobody_asks_for_more_than_is_allowed(people: People) -> None:
    few = LockLimits(waiters_per_resource=1, requests_per_owner=2)
    await people.ask("a1", owner="ada", limits=few)
    await people.ask("a2", (REPO, WRITE), owner="ada", limits=few)
    with pytest.raises(TooManyLocks, match="ada has 2 locks"):
        await people.ask("a3", ("repo:other", WRITE), owner="ada", limits=few)

    await people.ask("bob", limits=few)
    with pytest.raises(TooManyLocks, match=f"1 requests wait for {DB}"):
        await people.ask("cy", limits=few)

    assert [one.id for one in await people.store.find(LockQuery())] == ["a1", "a2", "bob"]


class TestHowOftenOneMayAsk:
    LIMITS = LockLimits(acquires=2, acquires_per_ms=10_000)

    async def refused(self, people: People, who: str, **more: object) -> int:
        with pytest.raises(LockRateLimited, match="ada has exceeded its rate limit for locks") as told:
            await people.ask(who, (f"repo:{who}", WRITE), owner="ada", limits=self.LIMITS, **more)  # type: ignore[arg-type]  # passed on as given
        assert f"after {told.value.retry_after_ms} ms" in told.value.detail
        return told.value.retry_after_ms

    async def test_who_asks_too_often_hears_when_to_ask_again(self, people: People) -> None:
        await people.hold("a1", owner="ada", limits=self.LIMITS)
        await people.hold("a2", (REPO, WRITE), owner="ada", limits=self.LIMITS)
        people.scene.clock.advance(1)
        before = await people.events()

        assert await self.refused(people, "a3") == 4_000

        assert await people.events() == before
        assert await people.store.look("default", ["a3"]) == [None]
        people.scene.clock.advance(3.999)
        assert await self.refused(people, "a3") == 1
        people.scene.clock.advance(0.001)
        await people.hold("a3", ("repo:a3", WRITE), owner="ada", limits=self.LIMITS)
        assert await self.refused(people, "a4") == 5_000

    async def test_others_and_other_namespaces_have_a_rate_of_their_own(self, people: People) -> None:
        for number in range(2):
            await people.ask(f"a{number}", owner="ada", limits=self.LIMITS)
        await self.refused(people, "a3")

        assert await people.ask("b", owner="bob", limits=self.LIMITS) is not None
        await people.hold("e", owner="ada", namespace="elsewhere", limits=self.LIMITS)
        assert await people.holders("elsewhere") == ["e"]

    async def test_the_same_request_again_costs_nothing(self, people: People) -> None:
        for _ in range(5):
            await people.hold("a1", owner="ada", limits=self.LIMITS)
            await people.ask("a2", owner="ada", limits=self.LIMITS, unattended=True)

        await people.leave("a1")
        fetched = await people.ask("a2", owner="ada", limits=self.LIMITS)
        assert fetched is not None
        assert fetched.is_granted
        await self.refused(people, "a3")

    async def test_asking_in_vain_counts_too(self, people: People) -> None:
        await people.hold("holder")
        for number in range(2):
            assert await people.ask(f"a{number}", owner="ada", wait_ms=0, limits=self.LIMITS) is None

        await self.refused(people, "a3", wait_ms=0)

    async def test_what_is_refused_for_another_reason_costs_nothing(self, people: People) -> None:
        none = LockLimits(requests_per_owner=0, acquires=2, acquires_per_ms=10_000)
        for number in range(5):
            with pytest.raises(TooManyLocks):
                await people.ask(f"a{number}", owner="ada", limits=none)

        await people.hold("a", owner="ada", limits=self.LIMITS)

    async def test_a_clock_that_is_put_back_locks_nobody_out(self, people: People) -> None:
        for number in range(2):
            await people.ask(f"a{number}", owner="ada", limits=self.LIMITS)
        set_back(people.scene.clock, 3600)

        await people.hold("a3", ("repo:a3", WRITE), owner="ada", limits=self.LIMITS)
        assert await self.refused(people, "a4") == 5_000
        people.scene.clock.advance(5)
        await people.hold("a4", ("repo:a4", WRITE), owner="ada", limits=self.LIMITS)

    async def test_the_sweep_takes_nothing_from_who_has_asked_lately(self, people: People) -> None:
        for number in range(2):
            await people.ask(f"a{number}", owner="ada", limits=self.LIMITS)
        await people.store.bury(100)
        await self.refused(people, "a3")

        people.scene.clock.advance(100)
        await people.store.bury(100)
        await people.hold("a4", ("repo:a4", WRITE), owner="ada", limits=self.LIMITS)
        assert await people.holders() == ["a4"]


async def test_asking_again_changes_nothing_but_that_a_lease_begins_anew(people: People) -> None:
    held = await people.hold("ada")
    queued = await people.ask("bob")
    before = await people.events()
    people.scene.clock.advance(1)

    assert await people.ask("ada") == structs.replace(held, lease_until=held.lease_until + 1_000)
    assert await people.ask("bob") == queued
    assert await people.events() == before


async def test_tokens_rise_also_when_the_clock_is_put_back(people: People) -> None:
    given = []
    for number in range(3):
        given += tokens(await people.hold(f"holder-{number}"))
        await people.leave(f"holder-{number}")
        people.scene.clock.jump_wall(-60)

    assert given == sorted(set(given))


async def test_namespaces_do_not_meet(people: People) -> None:
    for namespace in ("one", "two", "three"):
        await people.hold(f"holder-of-{namespace}", namespace=namespace)

    assert await people.holders("two") == ["holder-of-two"]
    assert await people.store.release("one", ["holder-of-two"]) == [None]
    assert len(await people.store.find(LockQuery())) == 3


async def test_books_are_looked_at_by_resource_and_by_owner(people: People) -> None:
    await people.hold("h", (DB, WRITE), owner="ada")
    await people.ask("w", (DB, WRITE), owner="bob")
    await people.hold("r", (REPO, WRITE), owner="bob")

    by_resource = await people.store.find(LockQuery(namespace="default", resource=DB))
    by_owner = await people.store.find(LockQuery(owner="bob"))
    by_both = await people.store.find(LockQuery(resource=DB, owner="bob", limit=1))

    assert [one.id for one in by_both] == ["w"]
    assert [one.id for one in by_resource] == ["h", "w"]
    assert [one.id for one in by_owner] == ["r", "w"]
    assert len(await people.store.find(LockQuery(limit=1))) == 1


async def test_books_are_looked_at_by_the_kind_of_resource(people: People) -> None:
    await people.hold("h", (DB, WRITE), owner="ada")
    await people.hold("both", ("database:b", READ), ("database:c", READ), (REPO, READ), owner="bob")
    await people.ask("w", (DB, WRITE), owner="bob")
    await people.hold("bare", ("database", WRITE))
    await people.hold("near", ("databases:x", WRITE))
    await people.hold("else", (DB, WRITE), namespace="elsewhere")

    async def found(**wanted: object) -> list[str]:
        return [one.id for one in await people.store.find(LockQuery(**wanted))]  # type: ignore[arg-type]  # by name

    assert await found(kind="database") == ["bare", "both", "else", "h", "w"]
    assert await found(kind="database", namespace="default") == ["bare", "both", "h", "w"]
    assert await found(kind="database", namespace="default", limit=2) == ["bare", "both"]
    assert await found(kind="repo") == ["both"]
    assert await found(kind="data") == []
    assert await found(kind="repo", owner="ada") == []
    assert await found(kind="database", owner="bob") == ["both", "w"]
    assert await found(kind="database", owner="bob", limit=1) == ["both"]
    assert await found(resource=DB, kind="database") == ["h", "w"]
    assert await found(resource=DB, kind="repo") == []

    await people.store.cure("default", DeadlockVictimChoice("w"), ("a",))
    await people.leave("both")
    assert await found(kind="database", owner="bob") == [], "one gave way, the other is gone"
    assert await found(kind="repo") == []


async def test_the_log_of_a_task_tells_of_its_locks(people: People) -> None:
    task = await people.scene.start()
    await people.hold("ada", task_id=task.id)
    await people.leave("ada")
    await people.scene.succeed(task)

    told = await people.scene.event_types(task.id)

    assert told == ["task.created", "task.claimed", "lock.acquired", "lock.released", "task.succeeded"]


async def test_whoever_follows_hears_who_was_let_in_or_that_somebody_was(people: People) -> None:
    heard = asyncio.Event()

    def tell(news: LockUpdates | None) -> None:
        if news is None or any(one.id == "bob" and one.is_granted for one in news.settled):
            heard.set()

    unfollow = people.store.follow(tell)
    try:
        await people.hold("ada")
        await people.ask("bob")
        await people.leave("ada")
        async with asyncio.timeout(60):
            await heard.wait()
        assert await people.holders() == ["bob"]
    finally:
        unfollow()
