"""Documents on servers: repeated calls, keys that are lost or spoiled, news for other processes, rates that go away."""

from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from ade.errors import NotConfirmed, StaleWrite, StoreCorrupt
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.documents import RedisDocuments
from ade.stores.redis.scan import PartitionScan
from ade.stores.redis.wakeups import RedisWakeups
from tests.domain import RULES, Document, DocumentWrite, Event, RedisSettings, parse_url
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.ports import OnePort, RepeatingLink

OPTIONS = RedisSettings(allow_volatile=True, partitions=4)


class Shelf(OnePort):
    """The documents of one store, and a link to it whose calls can be repeated."""

    def __init__(self, link: RepeatingLink) -> None:
        super().__init__(link)
        self.store = RedisDocuments(link, self.wakeups)

    async def put(self, number: int, *, seen: int | None = 0, ends_in_s: int | None = None) -> None:
        ends = None if ends_in_s is None else self.clock.now() + 1_000 * ends_in_s
        write = DocumentWrite(kind="user", id="ada", body=Raw(b"%d" % number), seen=seen, expires_at=ends)
        await self.store.write([write], [Event(type=f"user.changed_{number}", at=1)])

    async def ada(self) -> Document | None:
        [found] = await self.store.fetch("user", ["ada"])
        return found


@pytest.fixture
async def shelf(server: Server) -> AsyncIterator[Shelf]:
    opened = Shelf(RepeatingLink(parse_url(server.url), OPTIONS))
    yield opened
    await opened.close()


async def test_a_call_whose_answer_was_lost_does_no_harm_when_it_comes_again(shelf: Shelf) -> None:
    shelf.link.loses_answers = True

    await shelf.put(1)
    await shelf.put(2, seen=1)
    await shelf.store.write([DocumentWrite(kind="user", id="ada", seen=2)])
    await shelf.put(3)
    await shelf.store.write([], [Event(type="login.refused", at=1)])
    assert [await shelf.store.take_rate("login", 2, 10_000) for _ in range(3)] == [0, 0, 5_000]

    assert await shelf.ada() == Document(kind="user", id="ada", body=Raw(b"3"), version=3)
    assert await shelf.told() == ["user.changed_1", "user.changed_2", "user.changed_3", "login.refused"]


async def test_a_late_repetition_does_not_undo_what_was_written_since(shelf: Shelf) -> None:
    await shelf.put(1, seen=None)
    await shelf.put(2, seen=None)

    await shelf.link.send_again("document_write", 0)

    assert await shelf.ada() == Document(kind="user", id="ada", body=Raw(b"2"), version=2)


async def test_a_write_that_replicas_did_not_confirm_is_there_all_the_same(
    server_binary: Binary, server_pool: Pool
) -> None:
    options = RedisSettings(allow_volatile=True, durability="strong", confirm_timeout_s=0.01)
    shelf = Shelf(RepeatingLink(parse_url(server_pool.standalone(server_binary.kind).url), options))
    with pytest.raises(NotConfirmed):
        await shelf.put(1)
    with pytest.raises(StaleWrite):
        await shelf.put(2)

    assert await shelf.ada() == Document(kind="user", id="ada", body=Raw(b"1"), version=1)
    await shelf.close()


async def test_a_document_that_cannot_be_read_is_named_and_keeps_no_others_from_expiring(shelf: Shelf) -> None:
    await shelf.put(1, ends_in_s=1)
    session = DocumentWrite(kind="session", id="s1", body=Raw(b"1"), expires_at=shelf.clock.now() + 2_000)
    await shelf.store.write([session])
    await shelf.link.ask(0, ("HSET", f"{shelf.prefix}documents:user", "ada", "?"))
    shelf.clock.advance(3)

    with pytest.raises(StoreCorrupt, match="user 'ada' cannot be read"):
        await shelf.ada()
    assert await shelf.broken() == ["every_document_is_whole: the user ada cannot be read"]
    await shelf.store.expire_documents(10)

    assert await shelf.link.ask(0, ("EXISTS", f"{shelf.prefix}documents:session")) == [0]


async def test_ends_that_were_lost_or_made_up_are_found_and_put_right(shelf: Shelf) -> None:
    await shelf.put(1, ends_in_s=10)
    assert await shelf.broken() == []
    await shelf.link.ask(
        0, ("DEL", f"{shelf.prefix}document:ends"), ("ZADD", f"{shelf.prefix}document:ends", 1, "session:s1")
    )

    broken = await shelf.broken()
    await PartitionScan(shelf.link, 0, mend=True).everything()

    assert sorted(broken) == [
        "every_document_is_whole: the session s1 has a wrong expiry entry",
        "every_document_is_whole: the user ada has a wrong expiry entry",
    ]
    assert await shelf.broken() == []
    shelf.clock.advance(11)
    assert await shelf.store.expire_documents(10) == 1


async def test_an_end_that_came_too_early_removes_nothing(shelf: Shelf) -> None:
    await shelf.put(1, ends_in_s=10)
    await shelf.link.ask(0, ("ZADD", f"{shelf.prefix}document:ends", 1, "user:ada"))

    await shelf.store.expire_documents(10)

    assert await shelf.ada() is not None
    assert await shelf.broken() == []


@pytest.mark.parametrize("key", ["documents:user", "document:ends", "document:marks", "events"])
async def test_a_key_of_a_wrong_type_is_named_and_nothing_is_written(shelf: Shelf, key: str) -> None:
    await shelf.link.ask(0, ("SET", shelf.prefix + key, "x"))
    before = sorted((await shelf.link.ask(0, ("KEYS", "*")))[0])

    with pytest.raises(StoreCorrupt, match=key):
        await shelf.put(1, ends_in_s=10)

    assert sorted((await shelf.link.ask(0, ("KEYS", "*")))[0]) == before


async def test_the_server_forgets_a_rate_that_is_all_free(shelf: Shelf) -> None:
    await shelf.store.take_rate("login", 2, 10_000)

    [left_ms] = await shelf.link.ask(0, ("PTTL", f"{shelf.prefix}document:rate:login"))

    assert 60_000 < left_ms <= 65_000


async def test_another_process_hears_that_rules_have_changed(shelf: Shelf) -> None:
    other = RedisClient(shelf.link.place, OPTIONS)
    wakeups = RedisWakeups(other)
    try:
        await wakeups.wait(RULES, wakeups.generation(RULES), 5)  # the subscription is there
        seen = wakeups.generation(RULES)

        await shelf.put(1)
        await wakeups.wait(RULES, seen, 5)

        assert wakeups.generation(RULES) > seen
    finally:
        wakeups.close()
        await other.close()
