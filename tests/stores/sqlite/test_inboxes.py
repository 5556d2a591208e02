"""Inboxes in a file: what a write touches, writes whose outcome was not known, rows that somebody has spoiled."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from ade.agents.conversations import rules as conversations_rules
from ade.errors import DiskFull, StoreCorrupt
from ade.stores.sqlite.inboxes import SqliteInboxes
from ade.stores.sqlite.read_only_store import open_read_only_store
from ade.stores.sqlite.writer import WriteChecks
from tests.agents.conversations.items import message, notification
from tests.conformance.scene import Scene
from tests.domain import (
    BatchClaimant,
    ClearReason,
    DurableInbox,
    Inbox,
    InboxLimits,
    Stores,
    StoreSettings,
    open_sqlite,
    unused,
)
from tests.stores.sqlite.repeating import RepeatingWriter


def parts(stores: Stores) -> tuple[Any, Any]:
    tasks: Any = stores.tasks
    return tasks._writer, tasks._readers


async def put(scene: Scene, store: Any, inbox_id: str = "c", **about: Any) -> Inbox:
    inbox = await store.load(inbox_id)
    change = conversations_rules.enqueue(inbox, message(**about), limits=InboxLimits(), now=scene.clock.now())
    await store.write(change)
    return change.after


async def test_what_is_tried_again_has_the_effect_of_once(scene: Scene) -> None:
    writer, readers = parts(scene.stores)
    repeating: Any = RepeatingWriter(writer)
    store = SqliteInboxes(repeating, readers, scene.clock, scene.stores.wakeups, WriteChecks())

    await put(scene, store)
    await put(scene, store)
    taker = BatchClaimant(lease_id="l1", holder="w", lease_ms=100, steady=scene.clock.steady())
    await store.write(conversations_rules.take(await store.load("c"), taker))
    await store.write(conversations_rules.confirm(await store.load("c"), "l1"))

    assert (await store.load("c")).version == 4
    assert [event.type for event in await scene.stores.events.read(0, 10)] == [
        "inbox.item_enqueued",
        "inbox.item_enqueued",
        "inbox.batch_dequeued",
        "inbox.batch_confirmed",
    ]


async def test_to_put_in_an_item_writes_one_row_of_items(scene: Scene) -> None:
    writer, _ = parts(scene.stores)
    for _ in range(20):
        await put(scene, scene.stores.inboxes)

    changes = await writer.call(lambda connection: connection.total_changes())
    await put(scene, scene.stores.inboxes)
    after = await writer.call(lambda connection: connection.total_changes())

    assert after - changes == 3, "the item, the head and the event"


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE inbox SET head = '{'",
        "UPDATE inbox_item SET item = '{\"id\": 1}'",
        "UPDATE inbox SET head = json_set(head, '$.version', 'x')",
    ],
)
async def test_what_cannot_be_read_is_named(scene: Scene, path: Path, spoil: str) -> None:
    await put(scene, scene.stores.inboxes)
    meddler = apsw.Connection(str(path))
    meddler.execute(spoil)
    meddler.close()

    with pytest.raises(StoreCorrupt, match="the inbox c cannot be read"):
        await scene.stores.inboxes.load("c")


async def test_items_that_cannot_be_read_can_be_cleared_all_the_same(scene: Scene, path: Path) -> None:
    for name in ("c", "d"):
        await put(scene, scene.stores.inboxes, name)
    deep = f'{{"id":"q-1","seq":1,"enqueued_at":0,"kind":"message","content":[{{"x":{"[" * 5000}{"]" * 5000}}}]}}'
    meddler = apsw.Connection(str(path))
    meddler.execute("UPDATE inbox_item SET item = ? WHERE inbox_id = 'c'", (deep,))
    meddler.close()

    with pytest.raises(StoreCorrupt, match="ade inbox clear c"):
        await scene.stores.inboxes.load("c")
    assert [item.id for item in await DurableInbox(scene.stores, "c").clear(ClearReason.ERROR)] == ["q-1"]
    assert (await scene.stores.inboxes.load("c")).items == ()
    assert len((await scene.stores.inboxes.load("d")).items) == 1


class FullDisk(WriteChecks):
    def before_admission(self) -> None:
        raise DiskFull("no room")


async def test_a_full_disk_takes_no_messages_but_what_tells_of_work_under_way(scene: Scene) -> None:
    writer, readers = parts(scene.stores)
    store = SqliteInboxes(writer, readers, scene.clock, scene.stores.wakeups, FullDisk())

    with pytest.raises(DiskFull):
        await put(scene, store)
    told = conversations_rules.enqueue(
        await store.load("c"), notification(), limits=InboxLimits(), now=scene.clock.now()
    )
    await store.write(told)

    taker = BatchClaimant(lease_id="l1", holder="w", lease_ms=100, steady=scene.clock.steady())
    await store.write(conversations_rules.take(await store.load("c"), taker))
    await store.write(conversations_rules.confirm(await store.load("c"), "l1"))
    assert (await store.load("c")).items == ()


async def test_inboxes_are_seen_by_whoever_only_looks(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'seen.db'}"
    stores = await open_sqlite(url, StoreSettings(ballast_mb=0))
    written = conversations_rules.enqueue(unused("c"), message(), limits=InboxLimits(), now=stores.clock.now())
    await stores.inboxes.write(written)

    looking = open_read_only_store(url)

    assert looking is not None
    assert await looking.inboxes.load("c") == written.after
    assert [one.id for one in await looking.inboxes.list_inboxes("", 10)] == ["c"]
    await looking.close()
    await stores.close()


async def test_a_backup_has_the_inboxes_too(scene: Scene, tmp_path: Path) -> None:
    await put(scene, scene.stores.inboxes)
    async for _ in scene.stores.maintenance.backup(str(tmp_path / "copy.db")):
        pass

    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.execute("SELECT id, items FROM inbox").fetchall() == [("c", 1)]
    assert copy.execute("SELECT count(*) FROM inbox_item").fetchall() == [(1,)]
    copy.close()
