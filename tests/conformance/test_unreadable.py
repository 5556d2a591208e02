"""Records that cannot be read, for whatever reason: set aside when it is their turn, and in nobody's way."""

import pytest

from ade import Status
from tests.conformance.backends import CUT, DAMAGES, NOT_TEXT, UNKNOWN_WORD, Backend
from tests.conformance.scene import Scene
from tests.domain import TaskQuery


@pytest.mark.parametrize("way", DAMAGES)
async def test_one_unreadable_record_is_set_aside_and_the_others_are_handed_out(
    scene: Scene, backend: Backend, way: str
) -> None:
    before, bad, after = await scene.add_many(3)
    await backend.damage(scene.stores, bad.id, way)

    assert await scene.run(3) == [before.id, after.id]

    aside = await scene.get(bad.id)
    assert aside.status is Status.FAILED
    assert aside.error is not None
    assert aside.error.type == "UnreadableRecord"
    assert (await scene.event_types(bad.id))[-2:] == ["task.failed", "task.dlq"]
    assert await scene.counts() == {"completed": 2, "failed": 1}


async def test_an_unreadable_record_that_runs_out_of_its_lease_does_not_keep_the_sweep_from_the_others(
    scene: Scene, backend: Backend
) -> None:
    bad, fine = await scene.add_many(2)
    await scene.claim(2)
    await backend.damage(scene.stores, bad.id, CUT)

    await scene.let_lease_run_out()

    assert await scene.statuses(bad, fine) == [Status.STALLED, Status.STALLED]
    assert await scene.run(2) == [fine.id]
    assert await scene.status(bad.id) == Status.FAILED


@pytest.mark.parametrize("way", [CUT, NOT_TEXT, UNKNOWN_WORD])
async def test_an_unreadable_record_does_not_spoil_the_list_it_is_on(scene: Scene, backend: Backend, way: str) -> None:
    first, bad, last = await scene.add_many(3)
    await backend.damage(scene.stores, bad.id, way)

    page = await scene.stores.tasks.find(TaskQuery(oldest_first=True))
    found = await scene.stores.tasks.find(TaskQuery(text="send"))
    none = await scene.stores.tasks.find(TaskQuery(text="send", tag="x", author_id="ann", discarded=False))

    assert [task.id for task in page.tasks] == [first.id, bad.id, last.id]
    assert {first.id, last.id} <= {task.id for task in found.tasks}
    assert none.tasks == []
    [shown] = await scene.stores.tasks.get([bad.id])
    assert shown is not None
    assert (shown.name, shown.status) == ("send", Status.PENDING)
    assert shown.error is not None
    assert shown.error.type == "UnreadableRecord"
    await scene.claim(3)


async def test_what_waits_for_an_unreadable_record_waits_in_vain(scene: Scene, backend: Backend) -> None:
    bad = await scene.add()
    waiting = await scene.add(depends_on=(bad.id,))
    await backend.damage(scene.stores, bad.id, CUT)

    assert await scene.claim(2) == []

    [(task, failed)] = (await scene.stores.sweeps.due(10)).broken
    assert (task.id, failed) == (waiting.id, (bad.id,))


async def test_an_unreadable_record_frees_its_key(scene: Scene, backend: Backend) -> None:
    await scene.define("send", concurrency_per_key=1)
    bad, fine = await scene.add_many(2, concurrency_key="ann")
    await backend.damage(scene.stores, bad.id, CUT)

    # Whether the same claim goes on to the next of the key or leaves it to the following one is up to the store.
    claimed = await scene.claim(2) or await scene.claim(2)
    assert [task.id for task in claimed] == [fine.id]


async def test_a_key_of_an_unreadable_record_is_still_known(scene: Scene, backend: Backend) -> None:
    bad = await scene.add(idempotency_key="k")
    await backend.damage(scene.stores, bad.id, CUT)

    assert (await scene.add(idempotency_key="k")).id == bad.id
    await scene.claim()


async def test_an_unreadable_record_that_is_final_can_be_pruned(scene: Scene, backend: Backend) -> None:
    running = await scene.start()
    await scene.succeed(running)
    await backend.damage(scene.stores, running.id, CUT)
    scene.clock.advance(1)

    old = await scene.stores.sweeps.finished_before(scene.clock.now(), 10)

    assert await scene.stores.sweeps.prune([task.id for task in old]) == 1
