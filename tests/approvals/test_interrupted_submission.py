"""Somebody dies half-way through putting a task before people: the next one who looks carries on."""

from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ade import Status, Task
from ade.approvals import submission
from ade.errors import StoreUnavailable
from ade.stores.ports import ClaimRequest, Stores, TaskQuery, TaskStore
from ade.tasks import service as tasks_service
from tests.approvals.scene import ONE, Scene
from tests.domain import Payloads, Succeeded, settle
from tests.worker.harness import Replaced, plain


def dying_at(stores: Stores, name: str, *, before: bool) -> Stores:
    """The same stores for a client that dies at its first call of this method."""

    async def die(*args: Any, **kwargs: Any) -> None:
        if not before:
            await getattr(stores.tasks, name)(*args, **kwargs)
        raise StoreUnavailable("the client is dead")

    return replace(stores, tasks=cast(TaskStore, Replaced(stores.tasks, {name: die})))


async def draft(shop: Scene) -> Task:
    await shop.rules(ONE)
    await shop.kit.drain()  # a worker has told that it can preview
    handle = await shop.app.draft("deploy", {"what": "shop"}, author="ada")
    return await handle.get()


async def previews(shop: Scene) -> list[Status]:
    page = await shop.stores.tasks.find(TaskQuery(name="deploy:preview", limit=10))
    return [task.status for task in page.tasks]


@pytest.mark.parametrize(("method", "before"), [("commit", False), ("add", True), ("add", False)])
async def test_whoever_submits_may_die_at_any_point(shop: Scene, method: str, before: bool) -> None:
    task, payloads = await draft(shop), Payloads(shop.stores.blobs)
    with pytest.raises(StoreUnavailable):
        await submission.submit(dying_at(shop.stores, method, before=before), payloads, task.id, actor="ada")
    await shop.kit.advance(1)
    await shop.kit.drain()

    handle = shop.app.handle(task.id)
    assert await handle.status() is Status.REVIEWING
    assert await previews(shop) == [Status.COMPLETED]
    await shop.vote(handle, "bob")
    await shop.kit.drain()
    assert shop.deployed == ["shop"]


async def test_whoever_was_to_submit_and_died_before_has_changed_nothing(shop: Scene) -> None:
    task, payloads = await draft(shop), Payloads(shop.stores.blobs)
    with pytest.raises(StoreUnavailable):
        await submission.submit(dying_at(shop.stores, "commit", before=True), payloads, task.id, actor="ada")
    await shop.kit.drain()

    assert await shop.app.handle(task.id).status() is Status.DRAFT
    assert await previews(shop) == []


async def test_a_preview_that_was_made_and_never_shown_is_shown(shop: Scene) -> None:
    """As by a worker that only says how its run ended."""
    task, payloads = await draft(shop), Payloads(shop.stores.blobs)
    await submission.submit(shop.stores, payloads, task.id, actor="ada")
    request = ClaimRequest(worker_id="w", run_ids=["r" * 32], names=frozenset({"deploy:preview"}))
    [preview] = await shop.stores.tasks.claim(request)
    seen = Succeeded(Raw(b'{"changes": ["all"]}'))
    await shop.stores.tasks.commit(settle(preview, seen, now=shop.kit.clock.now(), randomness=0.5))
    await shop.kit.advance(1)

    found = await shop.app.handle(task.id).get()
    assert (found.status, plain(found.preview)) == (Status.REVIEWING, {"changes": ["all"]})


async def test_a_preview_that_ends_badly_sends_the_task_back(shop: Scene) -> None:
    task, payloads = await draft(shop), Payloads(shop.stores.blobs)
    submitted = await submission.submit(shop.stores, payloads, task.id, actor="ada")
    assert submitted.review is not None
    assert submitted.review.preview_id is not None
    await tasks_service.cancel(shop.stores, submitted.review.preview_id, "no time")
    await shop.kit.advance(1)

    found = await shop.app.handle(task.id).get()
    assert found.review is not None
    assert found.status is Status.DRAFT
    assert "did not complete" in found.review.errors[0]


async def test_a_preview_that_comes_too_late_counts_for_nothing(shop: Scene) -> None:
    """The task has been sent back, edited and submitted again since."""
    task, payloads = await draft(shop), Payloads(shop.stores.blobs)
    submitted = await submission.submit(shop.stores, payloads, task.id, actor="ada")
    assert submitted.review is not None
    late = submitted.review.preview_id
    await submission.send_back(shop.stores, task.id, late, "somebody thought again")
    await tasks_service.edit(shop.stores, payloads, task.id, actor="ada", args=Raw(b'{"what": "another"}'))
    await submission.submit(shop.stores, payloads, task.id, actor="ada")
    await submission.assess(shop.stores, Payloads(shop.stores.blobs), task.id, Raw(b'{"changes": []}'), preview_id=late)

    assert await shop.app.handle(task.id).status() is Status.SUBMITTED
    await shop.kit.drain()
    found = await shop.app.handle(task.id).get()
    seen = {"changes": [{"deploy": "another"}], "versions": {"site": "v1"}}
    assert (found.status, plain(found.preview)) == (Status.REVIEWING, seen)
