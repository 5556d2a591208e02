"""Documents on every store: all or none, never over what nobody has seen, and gone when their time is over."""

import asyncio
from collections.abc import Awaitable

import pytest
from msgspec import Raw, structs

from ade.errors import StaleWrite
from tests.conformance.scene import Scene
from tests.domain import RULES, Document, DocumentWrite, Event

USER, SESSION = "user", "session"


class Shelf:
    """Documents with a number in their body, and what the log tells of them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = scene.stores.documents

    async def put(self, *writes: DocumentWrite, events: tuple[str, ...] = ()) -> None:
        await self.store.write(writes, [self.event(name) for name in events])

    async def get(self, document_id: str, kind: str = USER) -> Document | None:
        [found] = await self.store.fetch(kind, [document_id])
        return found

    async def version(self, document_id: str, kind: str = USER) -> int | None:
        found = await self.get(document_id, kind)
        return None if found is None else found.version

    async def ids(self, kind: str = USER) -> list[str]:
        return [document.id for document in await self.store.list_documents(kind)]

    def event(self, name: str) -> Event:
        return Event(type=name, at=self.scene.clock.now(), actor="root", payload={"user": "ada"})

    async def told(self) -> list[str]:
        return [event.type for event in await self.scene.stores.events.read(0, 1_000)]

    def in_seconds(self, seconds: float) -> int:
        return self.scene.clock.now() + round(seconds * 1000)


@pytest.fixture
def shelf(scene: Scene) -> Shelf:
    return Shelf(scene)


def user(
    document_id: str, number: int = 1, *, seen: int | None = 0, expires_at: int | None = None, kind: str = USER
) -> DocumentWrite:
    body = Raw(b'{"number":%d,"name":"\xc3\x84da"}' % number)
    return DocumentWrite(kind=kind, id=document_id, body=body, seen=seen, expires_at=expires_at)


def no(document_id: str, *, seen: int | None, kind: str = USER) -> DocumentWrite:
    return DocumentWrite(kind=kind, id=document_id, seen=seen)


async def test_a_document_is_kept_as_it_was_written(shelf: Shelf) -> None:
    await shelf.put(user("ada", 7, expires_at=shelf.in_seconds(60)))

    assert await shelf.get("ada") == Document(
        kind=USER, id="ada", body=Raw(b'{"number":7,"name":"\xc3\x84da"}'), version=1, expires_at=shelf.in_seconds(60)
    )


async def test_documents_are_fetched_in_the_order_asked_and_listed_by_id(shelf: Shelf) -> None:
    names = ["zoe", "ada", "émile", "bob"]
    await shelf.put(*map(user, names), user("ada", kind=SESSION))

    found = await shelf.store.fetch(USER, ["bob", "nobody", "zoe", "bob"])

    assert [document and document.id for document in found] == ["bob", None, "zoe", "bob"]
    assert await shelf.ids() == sorted(names)
    assert await shelf.ids(SESSION) == ["ada"]
    assert await shelf.ids("setting") == []
    assert await shelf.store.fetch(USER, []) == []


async def test_a_write_over_what_was_seen_counts_on(shelf: Shelf) -> None:
    await shelf.put(user("ada"))
    await shelf.put(user("ada", 2, seen=1))
    await shelf.put(user("ada", 3, seen=None))

    assert await shelf.version("ada") == 3
    assert await shelf.get("ada") == Document(
        kind=USER, id="ada", body=Raw(b'{"number":3,"name":"\xc3\x84da"}'), version=3
    )


@pytest.mark.parametrize(
    "stale",
    [user("ada", 9, seen=0), user("ada", 9, seen=1), user("ada", 9, seen=3), user("eve", seen=1), no("ada", seen=1)],
    ids=["taken for new", "changed since", "never was", "is not there", "removed as it was"],
)
async def test_a_stale_write_is_refused_with_all_that_came_with_it(shelf: Shelf, stale: DocumentWrite) -> None:
    await shelf.put(user("ada"), user("bob"), events=("user.created",))
    await shelf.put(user("ada", 2, seen=1))
    before = await shelf.store.list_documents(USER)
    seen = shelf.scene.stores.wakeups.generation(RULES)

    with pytest.raises(StaleWrite, match=stale.id):
        await shelf.put(user("new"), user("bob", 5, seen=1), no("bob", seen=2), stale, events=("user.changed",))

    assert await shelf.store.list_documents(USER) == before
    assert await shelf.told() == ["user.created"]
    assert shelf.scene.stores.wakeups.generation(RULES) == seen


async def test_of_two_who_have_seen_the_same_one_writes(shelf: Shelf) -> None:
    await shelf.put(user("ada"))

    async def write(number: int) -> bool:
        try:
            await shelf.put(user("ada", number, seen=1), events=(f"user.changed_{number}",))
        except StaleWrite:
            return False
        return True

    answers = await asyncio.gather(*map(write, range(20)))

    assert sum(answers) == 1
    winner = answers.index(True)
    assert await shelf.told() == [f"user.changed_{winner}"]
    assert await shelf.get("ada") == Document(
        kind=USER, id="ada", body=Raw(b'{"number":%d,"name":"\xc3\x84da"}' % winner), version=2
    )


async def test_a_document_that_comes_back_has_no_version_it_had_before(shelf: Shelf) -> None:
    await shelf.put(user("ada"))
    await shelf.put(user("ada", 2, seen=1))
    await shelf.put(no("ada", seen=2))
    assert await shelf.get("ada") is None
    await shelf.put(user("ada", 3))

    assert await shelf.version("ada") == 3
    for seen in (1, 2):
        with pytest.raises(StaleWrite):
            await shelf.put(user("ada", 4, seen=seen))


async def test_what_is_not_there_can_be_removed_unless_somebody_has_seen_it(shelf: Shelf) -> None:
    await shelf.put(no("ada", seen=None), no("ada", seen=0))
    with pytest.raises(StaleWrite):
        await shelf.put(no("ada", seen=1))
    await shelf.put(user("ada"))
    await shelf.put(no("ada", seen=None))

    assert await shelf.ids() == []


async def test_writes_of_one_call_are_carried_out_in_their_order(shelf: Shelf) -> None:
    await shelf.put(user("ada"), user("ada", 2, seen=1), no("ada", seen=2), user("ada", 4), user("bob"))

    assert await shelf.version("ada") == 3
    assert await shelf.ids() == ["ada", "bob"]


async def test_a_document_is_gone_when_its_time_is_over(shelf: Shelf) -> None:
    await shelf.put(user("short", expires_at=shelf.in_seconds(10), kind=SESSION), user("long", kind=SESSION))
    shelf.scene.clock.advance(9.999)
    assert await shelf.ids(SESSION) == ["long", "short"]
    shelf.scene.clock.advance(0.001)

    assert await shelf.get("short", SESSION) is None
    assert await shelf.ids(SESSION) == ["long"]
    with pytest.raises(StaleWrite):
        await shelf.put(user("short", 2, seen=1, kind=SESSION))
    await shelf.put(user("short", 2, kind=SESSION))
    assert await shelf.version("short", SESSION) == 2


async def test_what_has_expired_is_removed_a_few_at_a_time(shelf: Shelf) -> None:
    names = [f"session-{number}" for number in range(5)]
    await shelf.put(*(user(name, expires_at=shelf.in_seconds(10), kind=SESSION) for name in names))
    await shelf.put(user(names[0], 2, seen=1, expires_at=shelf.in_seconds(60), kind=SESSION))
    await shelf.put(user(names[1], 2, seen=1, kind=SESSION))
    await shelf.put(no(names[2], seen=1, kind=SESSION))
    assert await shelf.store.expire_documents(100) == 0
    shelf.scene.clock.advance(11)

    assert await shelf.store.expire_documents(1) == 1
    assert await shelf.store.expire_documents(100) == 1
    assert await shelf.store.expire_documents(100) == 0
    assert await shelf.ids(SESSION) == names[:2]


async def test_a_version_that_was_swept_away_does_not_come_again(shelf: Shelf) -> None:
    await shelf.put(user("ada", expires_at=shelf.in_seconds(10)))
    await shelf.put(user("ada", 2, seen=1, expires_at=shelf.in_seconds(10)))
    shelf.scene.clock.advance(11)
    await shelf.store.expire_documents(100)

    await shelf.put(user("ada", 3))

    with pytest.raises(StaleWrite):
        await shelf.put(user("ada", 4, seen=2))
    assert await shelf.version("ada") == 3


async def test_the_log_tells_of_it_in_the_same_write(shelf: Shelf) -> None:
    await shelf.put(user("ada"), events=("user.created", "token.created"))
    await shelf.put(events=("login.refused",))
    await shelf.put()

    [first, *_] = found = await shelf.scene.stores.events.read(0, 10)
    assert [event.type for event in found] == ["user.created", "token.created", "login.refused"]
    assert (first.at, first.task_id, first.actor, first.payload) == (
        shelf.scene.clock.now(),
        None,
        "root",
        {"user": "ada"},
    )


async def test_whoever_keeps_a_copy_is_told_that_something_changed(shelf: Shelf) -> None:
    wakeups = shelf.scene.stores.wakeups

    async def rings(action: Awaitable[object]) -> bool:
        seen = wakeups.generation(RULES)
        await action
        return wakeups.generation(RULES) > seen

    assert await rings(shelf.put(user("ada")))
    assert await rings(shelf.put(user("ada", 2, seen=1)))
    assert await rings(shelf.put(no("ada", seen=2)))
    assert not await rings(shelf.put(structs.replace(user("bob"), is_quiet=True)))
    assert await rings(shelf.put(structs.replace(user("cy"), is_quiet=True), user("dan")))
    assert not await rings(shelf.put(events=("login.refused",)))
    assert not await rings(shelf.get("ada"))


async def test_a_rate_lets_so_many_try_at_once_and_then_one_after_the_other(shelf: Shelf) -> None:
    async def attempt(key: str = "login:ada") -> int:
        return await shelf.store.take_rate(key, 3, 60_000)

    assert [await attempt() for _ in range(4)] == [0, 0, 0, 20_000]
    assert await attempt("login:{bob}") == 0
    shelf.scene.clock.advance(19.999)
    assert await attempt() == 1
    shelf.scene.clock.advance(0.001)
    assert await attempt() == 0, "who was refused has used up nothing"
    assert await attempt() == 20_000
    shelf.scene.clock.advance(60)
    assert [await attempt() for _ in range(4)] == [0, 0, 0, 20_000]


async def test_of_many_who_try_at_once_so_many_may(shelf: Shelf) -> None:
    answers = await asyncio.gather(*(shelf.store.take_rate("login", 5, 1_000) for _ in range(40)))

    assert answers.count(0) == 5
    assert set(answers) == {0, 200}


async def test_several_starts_are_taken_all_or_none(shelf: Shelf) -> None:
    async def attempt(times: int) -> int:
        return await shelf.store.take_rate("web", 10, 1_000, times=times)

    assert [await attempt(6), await attempt(6), await attempt(4)] == [0, 200, 0]
    assert await attempt(1) == 100
    shelf.scene.clock.advance(0.3)
    assert [await attempt(4), await attempt(3), await attempt(1)] == [100, 0, 100]


async def test_rates_go_by_a_clock_that_nobody_puts_back(shelf: Shelf) -> None:
    assert await shelf.store.take_rate("login", 1, 10_000) == 0
    shelf.scene.clock.jump_wall(3_600)
    assert await shelf.store.take_rate("login", 1, 10_000) == 10_000
    shelf.scene.clock.jump_wall(-7_200)
    shelf.scene.clock.advance(10)

    assert await shelf.store.take_rate("login", 1, 10_000) == 0


async def test_a_rate_whose_period_was_shortened_keeps_nobody_out_for_longer_than_that(shelf: Shelf) -> None:
    assert await shelf.store.take_rate("login", 1, 86_400_000) == 0

    assert await shelf.store.take_rate("login", 2, 10_000) == 0
    assert await shelf.store.take_rate("login", 2, 10_000) == 5_000


async def test_a_rate_that_is_all_free_is_forgotten_and_nothing_is_lost_with_it(shelf: Shelf) -> None:
    await shelf.store.take_rate("login", 1, 10_000)
    await shelf.store.expire_documents(100)
    assert await shelf.store.take_rate("login", 1, 10_000) == 10_000
    shelf.scene.clock.advance(71)

    await shelf.store.expire_documents(100)

    assert await shelf.store.expire_documents(100) == 0
    assert await shelf.store.take_rate("login", 1, 10_000) == 0
    assert await shelf.store.take_rate("login", 1, 10_000) == 10_000
