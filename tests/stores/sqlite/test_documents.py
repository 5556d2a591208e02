"""Documents in a file: what is left when nobody needs them any more, and writes whose outcome was not known."""

from typing import Any

from msgspec import Raw

from ade.stores.sqlite.documents import SqliteDocuments
from tests.conformance.scene import Scene
from tests.domain import DocumentWrite, Event
from tests.stores.sqlite.repeating import RepeatingWriter


async def rows(scene: Scene, statement: str) -> list[tuple[Any, ...]]:
    assert isinstance(scene.stores.documents, SqliteDocuments)
    writer = scene.stores.documents._writer
    found: list[tuple[Any, ...]] = await writer.call(lambda connection: connection.execute(statement).fetchall())
    return found


async def test_documents_that_are_gone_leave_one_number_for_their_kind(scene: Scene) -> None:
    ends = scene.clock.now() + 1_000
    for number in range(5):
        each = DocumentWrite(kind="session", id=f"s{number}", body=Raw(b"{}"), expires_at=ends)
        await scene.stores.documents.write([each])
    user = DocumentWrite(kind="user", id="ada", body=Raw(b"{}"))
    await scene.stores.documents.write([user])
    await scene.stores.documents.write([DocumentWrite(kind="user", id="ada", seen=1)])
    scene.clock.advance(2)

    assert await scene.stores.documents.expire_documents(100) == 5

    assert await rows(scene, "SELECT count(*) FROM document") == [(0,)]
    assert await rows(scene, "SELECT kind, version FROM document_mark") == [("session", 1), ("user", 1)]


async def test_the_sweep_forgets_who_has_not_tried_for_a_while(scene: Scene) -> None:
    for key in ("ada", "bob"):
        await scene.stores.documents.take_rate(key, 2, 10_000)
        scene.clock.advance(40)
    assert await rows(scene, "SELECT key FROM document_rate ORDER BY key") == [("ada",), ("bob",)]

    assert await scene.stores.documents.expire_documents(100) == 1
    assert await rows(scene, "SELECT key FROM document_rate") == [("bob",)], "ada's has been free for over a minute"

    scene.clock.advance(40)
    assert await scene.stores.documents.expire_documents(100) == 1
    assert await rows(scene, "SELECT key FROM document_rate") == []


async def test_who_was_refused_is_not_written_down(scene: Scene) -> None:
    await scene.stores.documents.take_rate("ada", 1, 10_000)
    before = await rows(scene, "SELECT * FROM document_rate")

    assert await scene.stores.documents.take_rate("ada", 1, 10_000) == 10_000

    assert await rows(scene, "SELECT * FROM document_rate") == before


async def test_what_is_tried_again_has_the_effect_of_once(scene: Scene) -> None:
    usual = scene.stores.documents
    assert isinstance(usual, SqliteDocuments)
    writer: Any = RepeatingWriter(usual._writer)
    store = SqliteDocuments(writer, usual._readers, scene.clock, scene.stores.wakeups)
    ada = DocumentWrite(kind="user", id="ada", body=Raw(b"1"))
    bob = DocumentWrite(kind="user", id="bob", body=Raw(b"1"))

    await store.write([ada, bob], [Event(type="users.created", at=1)])
    await store.write([DocumentWrite(kind="user", id="ada", seen=1)], [Event(type="user.removed", at=1)])
    await store.write([ada], [Event(type="user.created", at=1)])
    assert [await store.take_rate("login", 2, 10_000) for _ in range(3)] == [0, 0, 5_000]

    assert [(each.id, each.version) for each in await store.list_documents("user")] == [("ada", 2), ("bob", 1)]
    told = [event.type for event in await scene.stores.events.read(0, 10)]
    assert told == ["users.created", "user.removed", "user.created"]
