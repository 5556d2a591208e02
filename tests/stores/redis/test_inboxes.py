"""Inboxes on servers: repeated calls, keys that are lost or spoiled, one partition for each inbox, no memory left."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ade import NewItem
from ade.agents.conversations import rules as conversations_rules
from ade.errors import NotConfirmed, StaleWrite, StoreCorrupt, StoreFull
from ade.stores.ports import INBOX
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.inboxes import RedisInboxes
from ade.stores.redis.partitions import partition_of_key
from ade.stores.redis.scan import PartitionScan
from ade.stores.redis.wakeups import RedisWakeups
from tests.agents.conversations.items import message, notification
from tests.domain import BatchClaimant, ClearReason, InboxChange, InboxLimits, RedisSettings, parse_url
from tests.servers.binaries import Binary
from tests.servers.pool import Pool
from tests.servers.server import Server
from tests.stores.redis.ports import OnePort, RepeatingLink

OPTIONS = RedisSettings(allow_volatile=True, partitions=4)
CODER = "agent:coder"


class Post(OnePort):
    """The inboxes of one store, and a link to it whose calls can be repeated."""

    def __init__(self, link: RepeatingLink) -> None:
        super().__init__(link)
        self.store = RedisInboxes(link, self.wakeups)

    async def putting(self, inbox_id: str, new: NewItem) -> InboxChange[Any]:
        return conversations_rules.enqueue(
            await self.store.load(inbox_id), new, limits=InboxLimits(), now=self.clock.now()
        )

    async def put(self, inbox_id: str = "c", new: NewItem | None = None) -> None:
        await self.store.write(await self.putting(inbox_id, new or message()))

    async def take(self, lease_id: str, inbox_id: str = "c") -> None:
        taker = BatchClaimant(lease_id=lease_id, holder="w", lease_ms=30_000, steady=self.clock.steady())
        await self.store.write(conversations_rules.take(await self.store.load(inbox_id), taker))

    async def bind(self, inbox_id: str = "c") -> None:
        await self.store.write(conversations_rules.bind(await self.store.load(inbox_id), CODER))

    async def ids(self, inbox_id: str = "c") -> list[str]:
        return [item.id for item in (await self.store.load(inbox_id)).items]


@pytest.fixture
async def post(server: Server) -> AsyncIterator[Post]:
    opened = Post(RepeatingLink(parse_url(server.url), OPTIONS))
    yield opened
    await opened.close()


async def test_a_call_whose_answer_was_lost_does_no_harm_when_it_comes_again(post: Post) -> None:
    post.link.loses_answers = True

    await post.put()
    await post.put(new=notification())
    await post.take("l1")
    await post.store.write(conversations_rules.confirm(await post.store.load("c"), "l1"))

    assert (await post.store.load("c")).version == 4
    assert await post.told() == [
        "inbox.item_enqueued",
        "inbox.item_enqueued",
        "inbox.batch_dequeued",
        "inbox.batch_confirmed",
    ]


async def test_a_late_repetition_does_not_undo_what_was_written_since(post: Post) -> None:
    await post.put()
    await post.put()
    await post.take("l1")

    await post.link.send_again("inbox_admit", 0)

    assert await post.ids() == ["q-1", "q-2"]
    assert (await post.store.load("c")).lease is not None
    assert await post.broken() == []


async def test_a_write_that_replicas_did_not_confirm_is_there_all_the_same(
    server_binary: Binary, server_pool: Pool
) -> None:
    options = RedisSettings(allow_volatile=True, durability="strong", confirm_timeout_s=0.01)
    post = Post(RepeatingLink(parse_url(server_pool.standalone(server_binary.kind).url), options))
    change = await post.putting("c", message())
    with pytest.raises(NotConfirmed):
        await post.store.write(change)
    with pytest.raises(StaleWrite):
        await post.store.write(change)

    assert await post.ids() == ["q-1"]
    await post.close()


async def test_places_that_were_lost_or_made_up_are_found_and_put_right(post: Post) -> None:
    for name in ("c", "held", "empty"):
        await post.bind(name)
    await post.put("c")
    await post.put("held")
    await post.take("l1", "held")
    assert await post.broken() == []
    lost = [f"{post.prefix}inbox:{each}" for each in ("all", "held", "empty", f"fed:{CODER}")]
    await post.link.ask(0, ("DEL", *lost), ("ZADD", f"{post.prefix}inbox:fed:nobody", 1, "c"))

    broken = await post.broken()
    await PartitionScan(post.link, 0, mend=True).everything()

    assert sorted(broken) == [
        "every_inbox_is_whole: the inbox c has another consumer than nobody",
        "every_inbox_is_whole: the inbox c has wrong index entries",
        "every_inbox_is_whole: the inbox empty has wrong index entries",
        "every_inbox_is_whole: the inbox held has wrong index entries",
    ]
    assert await post.broken() == []
    assert await post.store.ready(frozenset({CODER}), 10) == ["c"]
    assert [one.id for one in await post.store.list_inboxes("", 10)] == ["c", "empty", "held"]
    post.clock.advance(1)
    assert await post.store.forget_empty(post.clock.now(), 10) == 1


async def test_an_inbox_that_cannot_be_read_is_named_and_keeps_no_others_from_being_forgotten(post: Post) -> None:
    for name in ("a", "b"):
        await post.bind(name)
    await post.link.ask(0, ("HSET", f"{post.prefix}inbox:record:a", "stands", "?", "head", "{"))
    post.clock.advance(1)

    with pytest.raises(StoreCorrupt, match="the inbox a cannot be read"):
        await post.store.load("a")
    assert await post.broken() == ["every_inbox_is_whole: the inbox a cannot be read"]
    assert await post.store.forget_empty(post.clock.now(), 10) == 1


async def test_items_that_cannot_be_read_can_be_cleared_all_the_same(post: Post) -> None:
    await post.put()
    await post.put()
    deep = f'{{"id":"q-1","seq":1,"enqueued_at":0,"kind":"message","content":[{{"x":{"[" * 5000}{"]" * 5000}}}]}}'
    await post.link.ask(0, ("HSET", f"{post.prefix}inbox:record:c", "1", deep))

    with pytest.raises(StoreCorrupt, match="ade inbox clear c"):
        await post.store.load("c")
    await post.store.write(conversations_rules.discard(await post.store.load("c", outline=True), ClearReason.ERROR))
    assert (await post.store.load("c")).items == ()
    assert await post.broken() == []


async def test_an_item_that_is_lost_is_noticed(post: Post) -> None:
    await post.put()
    await post.put()
    await post.link.ask(0, ("HDEL", f"{post.prefix}inbox:record:c", "1"))

    assert await post.broken() == ["every_inbox_is_whole: the inbox c has another number of items than its head states"]


@pytest.mark.parametrize("key", ["inbox:record:c", "inbox:all", "inbox:held", "inbox:empty", "events"])
async def test_a_key_of_a_wrong_type_is_named_and_nothing_is_written(post: Post, key: str) -> None:
    change = await post.putting("c", message())
    await post.link.ask(0, ("SET", post.prefix + key, "x"))
    before = sorted((await post.link.ask(0, ("KEYS", "*")))[0])

    with pytest.raises(StoreCorrupt, match=r"inbox:|events"):
        await post.store.write(change)

    assert sorted((await post.link.ask(0, ("KEYS", "*")))[0]) == before


async def test_without_memory_no_message_is_taken_in_but_batches_may_end(post: Post) -> None:
    await post.put()
    await post.take("l1")
    [(_, limit)] = await post.link.ask(0, ("CONFIG", "GET", "maxmemory"))
    await post.link.ask(0, ("CONFIG", "SET", "maxmemory", "1mb"))
    try:
        with pytest.raises(StoreFull):
            await post.put()
        await post.put(new=notification())
        await post.store.write(conversations_rules.confirm(await post.store.load("c"), "l1"))
    finally:
        await post.link.ask(0, ("CONFIG", "SET", "maxmemory", limit))

    assert await post.ids() == ["q-2"]


async def test_an_inbox_is_whole_in_one_partition_of_a_cluster(server_binary: Binary, server_pool: Pool) -> None:
    post = Post(RepeatingLink(parse_url(server_pool.cluster(server_binary.kind).url), OPTIONS))
    names = [f"conv:{number}" for number in range(12)]
    for name in names:
        await post.bind(name)
        await post.put(name)

    for partition in range(4):
        prefix = post.link.names[partition].prefix
        [records] = await post.link.ask(partition, ("ZRANGE", f"{prefix}inbox:all", 0, -1))
        assert [each.decode() for each in records] == sorted(
            name for name in names if partition_of_key(name, 4) == partition
        )
    assert len({partition_of_key(name, 4) for name in names}) == 4
    assert sorted(await post.store.ready(frozenset({CODER}), 100)) == sorted(names)
    assert [one.id for one in await post.store.list_inboxes("", 5)] == sorted(names)[:5]
    assert await post.broken() == []
    await post.close()


async def test_another_process_hears_of_what_is_written(post: Post) -> None:
    other = RedisClient(post.link.place, OPTIONS)
    wakeups = RedisWakeups(other)
    try:
        await wakeups.wait(INBOX, wakeups.generation(INBOX), 5)  # the subscription is there
        seen = wakeups.generation(INBOX)
        await post.put()
        await wakeups.wait(INBOX, seen, 5)
        assert wakeups.generation(INBOX) > seen
    finally:
        wakeups.close()
        await other.close()
