"""Inboxes on every store: read whole, written as one, never over what nobody has seen, found by who feeds on them."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from ade import ItemKind, NewItem
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import (
    BlockedReason,
    ClearReason,
    Inbox,
    InboxChange,
    InboxSummary,
    Other,
    ReturnReason,
)
from ade.errors import InvalidInbox, StaleLease, StaleWrite
from ade.stores.ports import INBOX
from tests.agents.conversations.items import barrier, message, notification
from tests.conformance.scene import Scene
from tests.domain import BatchClaimant, InboxLimits

CODER, CRITIC = "agent:coder", "agent:critic"
LEASE_MS = 30_000
Decide = Callable[[Inbox], InboxChange[Other]]


class Post:
    """Somebody who reads an inbox, decides, and writes."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = scene.stores.inboxes

    async def do(self, inbox_id: str, decide: Decide[Other], write_id: str | None = None) -> Other:
        change = decide(await self.store.load(inbox_id))
        await self.store.write(change, write_id)
        return change.answer

    def putting(self, item: NewItem, limits: InboxLimits | None = None) -> Decide[conversations_rules.Put]:
        now = self.scene.clock.now()
        return lambda inbox: conversations_rules.enqueue(inbox, item, limits=limits or InboxLimits(), now=now)

    async def put(self, inbox_id: str, *items: NewItem, consumer: str | None = CODER) -> None:
        await self.do(inbox_id, lambda inbox: conversations_rules.bind(inbox, consumer))
        for item in items:
            await self.do(inbox_id, self.putting(item))

    def taker(self, lease_id: str) -> BatchClaimant:
        steady = self.scene.clock.steady()
        return BatchClaimant(lease_id=lease_id, holder=f"holder of {lease_id}", lease_ms=LEASE_MS, steady=steady)

    async def take(self, inbox_id: str, lease_id: str) -> list[str]:
        batch = await self.do(inbox_id, lambda inbox: conversations_rules.take(inbox, self.taker(lease_id)))
        return [] if batch is None else [item.id for item in batch.items]

    async def ready(self, *consumers: str, limit: int = 100) -> list[str]:
        return await self.store.ready(frozenset(consumers or {CODER}), limit)

    async def told(self) -> list[str]:
        return [event.type.removeprefix("inbox.") for event in await self.scene.stores.events.read(0, 1_000)]


@pytest.fixture
def post(scene: Scene) -> Post:
    return Post(scene)


async def test_an_inbox_nobody_has_used_is_empty(post: Post) -> None:
    assert await post.store.load("c") == Inbox(id="c")
    assert await post.store.list_inboxes("", 10) == []
    with pytest.raises(InvalidInbox):
        await post.store.load("no such {id}")


async def test_an_inbox_is_read_as_it_was_written(post: Post) -> None:
    parts: list[dict[str, object]] = [{"type": "text", "text": "Ä\x00\U0001f600"}, {"type": "image", "n": [1.5, None]}]
    items = [
        message(parts, agent="a", conversation="c", client_message_id="cm-7", no_coalesce=True),
        NewItem(kind=ItemKind.CRON_PROMPT, text="wake up", cron_task_id="t", key="k 1"),
        barrier('"quoted" \\ text\n'),
    ]
    await post.put("conv-1:ä/@", *items)
    await post.take("conv-1:ä/@", "lease")
    await post.do(
        "conv-1:ä/@", lambda inbox: conversations_rules.remember(inbox, "lease", {"turns": 3, "of": ["Ä", None, 1.5]})
    )
    change = conversations_rules.take(await post.store.load("conv-1:ä/@"), post.taker("x"), BlockedReason.STREAMING)
    await post.store.write(change)

    found = await post.store.load("conv-1:ä/@")

    assert found == change.after
    assert [msgspec.structs.asdict(item) | {"id": 0, "seq": 0, "enqueued_at": 0} for item in found.items] == [
        msgspec.structs.asdict(item) | {"id": 0, "seq": 0, "enqueued_at": 0} for item in items
    ]
    assert (found.consumer, found.memory, found.keys) == (CODER, {"turns": 3, "of": ["Ä", None, 1.5]}, ("k 1",))
    assert (found.told, found.lease and found.lease.id) == (BlockedReason.STREAMING, "lease")


async def test_items_keep_their_order_beyond_ten(post: Post) -> None:
    await post.put("c", *(message(str(number)) for number in range(12)))

    assert [item.content for item in (await post.store.load("c")).items] == [str(number) for number in range(12)]


async def test_of_two_who_have_seen_the_same_one_writes(post: Post) -> None:
    await post.put("c", message())
    seen, told = await post.store.load("c"), await post.told()

    async def write(_: int) -> bool:
        try:
            await post.store.write(post.putting(message("the same from all"))(seen))
        except StaleWrite:
            return False
        return True

    assert sum(await asyncio.gather(*map(write, range(10)))) == 1
    assert len((await post.store.load("c")).items) == 2
    assert await post.told() == [*told, "item_enqueued"]


async def test_a_write_whose_answer_was_lost_may_be_repeated_and_happens_once(post: Post) -> None:
    change = post.putting(message())(await post.store.load("c"))

    await post.store.write(change, "w1")
    await post.store.write(change, "w1")
    for number in range(5):
        await post.do("c", post.putting(message(f"by others {number}")))
    await post.store.write(change, "w1")

    assert [item.id for item in (await post.store.load("c")).items] == [f"q-{number}" for number in range(1, 7)]
    assert await post.told() == ["item_enqueued"] * 6
    with pytest.raises(StaleWrite):
        await post.store.write(change, "w2")


async def test_the_log_tells_of_every_write_in_the_same_write(post: Post) -> None:
    small = InboxLimits(max_items=1, hard_max_items=1)
    await post.do("c", post.putting(message("my secret"), small))
    await post.do("c", post.putting(message("my secret"), small))
    await post.take("c", "l1")
    await post.do("c", lambda inbox: conversations_rules.give_back(inbox, "l1", ReturnReason.FAILED))
    await post.take("c", "l2")
    await post.do("c", lambda inbox: conversations_rules.confirm(inbox, "l2"))
    await post.do("c", lambda inbox: conversations_rules.clear(inbox, ClearReason.ERROR))

    assert await post.told() == [
        "item_enqueued",
        "item_dropped",
        "batch_dequeued",
        "batch_returned",
        "batch_dequeued",
        "batch_confirmed",
        "cleared",  # of nothing
    ]
    events = await post.scene.stores.events.read(0, 100)
    assert "my secret" not in str(events)
    assert {event.payload["inbox_id"] for event in events} == {"c"}
    assert [(event.task_id, event.at) for event in events] == [(None, post.scene.clock.now())] * 7


async def test_whoever_waits_is_told_of_what_is_written_and_of_nothing_else(post: Post) -> None:
    wakeups = post.scene.stores.wakeups
    seen = wakeups.generation(INBOX)
    await post.put("c", message())
    after = wakeups.generation(INBOX)
    await post.do("c", lambda inbox: conversations_rules.remove(inbox, "q-77"))

    assert after > seen
    assert wakeups.generation(INBOX) == after


async def test_a_consumer_finds_the_inboxes_that_wait_longest_first(post: Post) -> None:
    for name, consumer in (("b", CODER), ("a", CODER), ("other", CRITIC), ("free", None), ("c", CODER)):
        post.scene.clock.advance(1)
        await post.put(name, message(), message(), consumer=consumer)
    await post.put("empty")

    assert await post.ready() == ["b", "a", "c"]
    assert await post.ready(limit=2) == ["b", "a"]
    assert await post.ready(CRITIC, CODER) == ["b", "a", "other", "c"]
    assert await post.ready(CRITIC, CODER, limit=3) == ["b", "a", "other"]
    assert await post.ready("nobody") == []
    assert await post.store.ready(frozenset(), 10) == []

    await post.do("b", lambda inbox: conversations_rules.clear(inbox, ClearReason.CANCELLED))
    await post.do("a", lambda inbox: conversations_rules.bind(inbox, CRITIC))
    await post.do("other", lambda inbox: conversations_rules.bind(inbox, None))
    await post.do("c", lambda inbox: conversations_rules.remove(inbox, "q-1"))
    assert (await post.ready(), await post.ready(CRITIC)) == (["c"], ["a"])


async def test_of_whose_inbox_a_batch_is_out_finds_it_again_when_that_ends(post: Post) -> None:
    await post.put("c", message(), barrier())
    assert await post.take("c", "l1") == ["q-1"]
    assert await post.ready() == []

    await post.do("c", lambda inbox: conversations_rules.confirm(inbox, "l1"))
    assert await post.ready() == ["c"], "the barrier waits"

    assert await post.take("c", "l2") == ["q-2"]
    await post.do("c", lambda inbox: conversations_rules.give_back(inbox, "l2", ReturnReason.RELEASED))
    assert await post.ready() == ["c"]

    await post.take("c", "l3")
    await post.do("c", lambda inbox: conversations_rules.give_up(inbox, "l3", ClearReason.ERROR))
    assert await post.ready() == []


async def test_the_batch_of_a_dead_consumer_goes_back_to_the_head_in_order(post: Post) -> None:
    await post.put("c", *(message(str(number)) for number in range(3)))
    assert await post.take("c", "dead") == ["q-1", "q-2", "q-3"]
    await post.put("c", notification("later"))
    post.scene.clock.advance(LEASE_MS / 1000 - 0.001)
    assert (await post.ready(), await post.take("c", "early")) == ([], [])

    post.scene.clock.advance(0.001)
    assert await post.ready() == ["c"]
    assert await post.take("c", "next") == ["q-1", "q-2", "q-3", "q-4"]
    assert await post.ready() == []

    for late in (
        lambda inbox: conversations_rules.confirm(inbox, "dead"),
        lambda inbox: conversations_rules.remember(inbox, "dead", {"late": True}),
        lambda inbox: conversations_rules.renew(inbox, "dead", lease_ms=LEASE_MS, steady=post.scene.clock.steady()),
    ):
        with pytest.raises(StaleLease):
            await post.do("c", late)
    assert (await post.store.load("c")).returns == 1
    await post.do("c", lambda inbox: conversations_rules.confirm(inbox, "next"))
    assert (await post.store.load("c")).items == ()


async def test_one_who_renews_keeps_its_batch(post: Post) -> None:
    await post.put("c", message())
    await post.take("c", "slow")
    for _ in range(3):
        post.scene.clock.advance(LEASE_MS / 2000)
        steady = post.scene.clock.steady()
        renew = partial(conversations_rules.renew, lease_id="slow", lease_ms=LEASE_MS, steady=steady)
        await post.do("c", renew)

    assert await post.ready() == []
    assert await post.take("c", "other") == []


async def test_inboxes_are_listed_by_id_page_by_page(post: Post) -> None:
    names = sorted(["b", "a", "B", "ä", "a:1", "z", "\U0001f600", "\uff5e"])
    for name in names:
        await post.put(name, message(), barrier(), consumer=None)

    page = await post.store.list_inboxes("", 3)
    rest = await post.store.list_inboxes(page[-1].id, 100)

    assert [each.id for each in (*page, *rest)] == names
    assert await post.store.list_inboxes(names[-1], 10) == []


async def test_a_list_tells_how_each_inbox_stands(post: Post) -> None:
    put_in, steady = post.scene.clock.now(), post.scene.clock.steady()
    await post.put("c", message(), message(), barrier())
    post.scene.clock.advance(1)
    await post.take("c", "l1")
    await post.put("empty", consumer=CRITIC)

    one, other = await post.store.list_inboxes("", 10)

    assert one == InboxSummary(
        id="c",
        version=5,
        waiting=1,
        taken=2,
        consumer=CODER,
        holder="holder of l1",
        held_until=steady + 1_000 + LEASE_MS,
        since=put_in,
        returns=0,
        written_at=put_in + 1_000,
    )
    assert (other.waiting, other.taken, other.since, other.consumer) == (0, 0, None, CRITIC)


async def test_empty_inboxes_are_forgotten_when_nobody_has_used_them_for_long(post: Post) -> None:
    for name in ("old", "older", "full", "held"):
        await post.put(name, message(), consumer=None)
    for name in ("older", "old"):
        await post.do(name, lambda inbox: conversations_rules.clear(inbox, ClearReason.PROCESSED))
    await post.take("held", "l1")
    post.scene.clock.advance(60)
    await post.put("new", consumer=CODER)
    moment = post.scene.clock.now()

    assert await post.store.forget_empty(moment - 60_000, 10) == 0, "written at this very moment"
    assert await post.store.forget_empty(moment, 10) == 2
    assert await post.store.forget_empty(moment, 10) == 0

    assert [each.id for each in await post.store.list_inboxes("", 10)] == ["full", "held", "new"]
    assert await post.store.load("old") == Inbox(id="old")
    await post.put("old", message("again"))
    assert await post.ready() == ["old"]


async def test_an_inbox_can_be_emptied_of_many_items_at_once(post: Post) -> None:
    many = InboxLimits(max_items=5_000, hard_max_items=5_000)
    inbox = before = await post.store.load("c")
    for number in range(2_500):
        inbox = conversations_rules.enqueue(inbox, message(str(number)), limits=many, now=post.scene.clock.now()).after
    filled = msgspec.structs.replace(inbox, version=1)
    await post.store.write(InboxChange(before=before, after=filled, notices=(), answer=None))
    assert await post.store.load("c") == filled

    assert len(await post.do("c", lambda inbox: conversations_rules.clear(inbox, ClearReason.CANCELLED))) == 2_500
    assert (await post.store.load("c")).items == ()
