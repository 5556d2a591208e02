"""What is kept and for how long: duties, pruning, results, blobs."""

import asyncio
from collections.abc import Sequence

import pytest

from ade import Status
from ade.errors import StoreCorrupt
from tests.conformance.scene import Scene, raw
from tests.domain import OutputLine, Review, is_past_retention


async def test_a_duty_has_one_holder(scene: Scene) -> None:
    sweeps = scene.stores.sweeps

    assert await sweeps.take_duty("sweep", "p1", 10_000)
    assert not await sweeps.take_duty("sweep", "p2", 10_000)
    assert await sweeps.take_duty("prune", "p2", 10_000)


async def test_of_many_who_want_a_duty_at_once_one_gets_it(scene: Scene) -> None:
    taken = await asyncio.gather(*(scene.stores.sweeps.take_duty("sweep", f"p{n}", 10_000) for n in range(10)))

    assert sum(taken) == 1


async def test_a_holder_stays_by_asking_again_in_time(scene: Scene) -> None:
    sweeps = scene.stores.sweeps
    await sweeps.take_duty("sweep", "p1", 10_000)
    scene.clock.advance(9)
    assert await sweeps.take_duty("sweep", "p1", 10_000)
    scene.clock.advance(9)

    assert not await sweeps.take_duty("sweep", "p2", 10_000)


async def test_a_silent_holder_loses_its_duty(scene: Scene) -> None:
    sweeps = scene.stores.sweeps
    await sweeps.take_duty("sweep", "p1", 10_000)
    scene.clock.jump_wall(99_999)  # the wall clock has no say in this
    assert not await sweeps.take_duty("sweep", "p2", 10_000)
    scene.clock.advance(10.001)

    assert await sweeps.take_duty("sweep", "p2", 10_000)
    assert not await sweeps.take_duty("sweep", "p1", 10_000)


async def test_old_final_tasks_are_found_oldest_first(scene: Scene) -> None:
    done = []
    for _ in range(3):
        running = await scene.start()
        await scene.succeed(running)
        done.append(running.id)
        scene.clock.advance(10)
    await scene.add()

    old = await scene.stores.sweeps.finished_before(scene.clock.now() - 10_000, 10)

    assert [task.id for task in old] == done[:2]
    assert len(await scene.stores.sweeps.finished_before(scene.clock.now(), 1)) == 1


async def test_governed_tasks_and_dead_letters_are_listed_by_moments_of_their_own(scene: Scene) -> None:
    review = Review(required=("usual",))
    ids: dict[str, str] = {}
    for what in ("plain", "governed", "letter", "governed letter"):
        running = await scene.start(max_attempts=1, review=review if "governed" in what else None)
        await (scene.fail_for_good(running) if "letter" in what else scene.succeed(running))
        ids[running.id] = what
    now = scene.clock.now() + 1

    for _ in range(2):  # the second look need not read everything again
        for letters, governed, listed in (
            (now, now, {"plain", "governed", "letter", "governed letter"}),
            (0, now, {"plain", "governed"}),
            (now, 0, {"plain", "letter"}),
            (0, 0, {"plain"}),
        ):
            old = await scene.stores.sweeps.finished_before(now, 10, dead_letters=letters, governed=governed)
            assert {ids[task.id] for task in old} == listed
            assert all(is_past_retention(task, now, letters, governed) for task in old)


async def test_a_pruned_task_is_gone_with_all_that_belongs_to_it(scene: Scene) -> None:
    running = await scene.start()
    ref = f"{running.id}.result"
    await scene.stores.blobs.put_blob(ref, b"much")
    line = OutputLine(task_id=running.id, run_id=str(running.run_id), attempt=1, at=0, text="hi")
    await scene.stores.outputs.append([line])
    await scene.succeed(running)

    assert await scene.stores.sweeps.prune([running.id, scene.task().id]) == 1

    assert await scene.stores.tasks.get([running.id]) == [None]
    assert await scene.stores.outputs.read_output(running.id, 0, 10) == []
    assert await scene.counts() == {}
    with pytest.raises(StoreCorrupt):
        await scene.stores.blobs.get_blob(ref)


async def test_the_blobs_of_other_tasks_stay(scene: Scene) -> None:
    running = await scene.start()
    other = await scene.add()
    await scene.stores.blobs.put_blob(f"{other.id}.args", b"mine")
    await scene.succeed(running)

    await scene.stores.sweeps.prune([running.id])

    assert await scene.stores.blobs.get_blob(f"{other.id}.args") == b"mine"


async def test_a_task_that_is_not_final_is_not_pruned(scene: Scene) -> None:
    pending, running = await scene.add(priority=9), await scene.add()
    await scene.claim()
    replayed = await scene.start(max_attempts=1, priority=0)
    await scene.fail(replayed)
    await scene.replay(replayed.id)

    assert await scene.stores.sweeps.prune([pending.id, running.id, replayed.id]) == 0
    assert await scene.counts() == {"pending": 2, "running": 1}


async def test_a_task_others_wait_for_is_not_pruned(scene: Scene) -> None:
    first = await scene.start()
    second = await scene.add(depends_on=(first.id,))
    await scene.cancel(first.id)

    assert await scene.stores.sweeps.prune([first.id]) == 0
    await scene.sweep()
    assert await scene.status(second.id) == Status.CANCELLED
    assert await scene.stores.sweeps.prune([first.id, second.id]) == 2


async def test_a_pruned_key_may_be_used_again(scene: Scene) -> None:
    first = await scene.start(idempotency_key="k")
    await scene.succeed(first)
    await scene.stores.sweeps.prune([first.id])

    second = await scene.add(idempotency_key="k", args=raw('{"n":2}'))

    assert second.id != first.id


async def test_a_result_is_forgotten_when_its_time_is_over(scene: Scene) -> None:
    brief = await scene.start(result_ttl_ms=5_000)
    await scene.succeed(brief, '{"much":1}')
    lasting = await scene.start()
    await scene.succeed(lasting, "2")
    scene.clock.advance(4.9)
    assert await scene.stores.sweeps.expire_results(10) == 0
    scene.clock.advance(0.1)

    assert await scene.stores.sweeps.expire_results(10) == 1

    forgotten = await scene.get(brief.id)
    assert (forgotten.status, forgotten.result, forgotten.result_expired) == (Status.COMPLETED, None, True)
    assert (await scene.get(lasting.id)).result == raw("2")
    assert await scene.stores.sweeps.expire_results(10) == 0


async def test_results_are_forgotten_in_bounded_steps(scene: Scene) -> None:
    for _ in range(3):
        await scene.succeed(await scene.start(result_ttl_ms=1), "1")
    scene.clock.advance(1)

    assert [await scene.stores.sweeps.expire_results(2) for _ in range(3)] == [2, 1, 0]


async def test_a_blob_comes_back_as_it_was_given(scene: Scene) -> None:
    ref = f"{scene.task().id}.2.1.result"
    await scene.stores.blobs.put_blob(ref, b"\0" * 100_000)
    await scene.stores.blobs.put_blob(ref, b"\1" * 100_000)

    assert await scene.stores.blobs.get_blob(ref) == b"\1" * 100_000


async def test_blobs_whose_task_does_not_exist_go_after_a_while(scene: Scene) -> None:
    never_stored, stored = scene.task(), await scene.add()
    for ref in (f"{never_stored.id}.args", f"{never_stored.id}.1.1.result", f"{stored.id}.args"):
        await scene.stores.blobs.put_blob(ref, b"much")
    scene.clock.advance(3_600)
    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) == 0
    scene.clock.advance(1)
    young = f"{scene.task().id}.args"
    await scene.stores.blobs.put_blob(young, b"new")

    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) > 0

    for ref in (f"{never_stored.id}.args", f"{never_stored.id}.1.1.result"):
        with pytest.raises(StoreCorrupt):
            await scene.stores.blobs.get_blob(ref)
    assert await scene.stores.blobs.get_blob(f"{stored.id}.args") == b"much"
    assert await scene.stores.blobs.get_blob(young) == b"new"
    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) == 0


async def test_a_blob_that_was_put_again_is_young_again(scene: Scene) -> None:
    ref = f"{scene.task().id}.args"
    await scene.stores.blobs.put_blob(ref, b"first")
    scene.clock.advance(3_601)
    await scene.stores.blobs.put_blob(ref, b"second")

    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) == 0
    assert await scene.stores.blobs.get_blob(ref) == b"second"


async def test_blobs_left_by_a_crash_while_their_task_was_pruned_go_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_task_ids: Sequence[str]) -> None:
        raise ConnectionError

    running = await scene.start()
    ref = f"{running.id}.1.1.result"
    await scene.stores.blobs.put_blob(ref, b"much")
    await scene.succeed(running)
    scene.clock.advance(3_601)
    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) == 0
    monkeypatch.setattr(scene.stores.blobs, "remove_blobs", die)
    with pytest.raises(ConnectionError):
        await scene.stores.sweeps.prune([running.id])
    assert await scene.stores.blobs.get_blob(ref) == b"much"
    scene.clock.advance(3_601)

    assert await scene.stores.sweeps.remove_orphans(3_600_000, 100) == 1
    with pytest.raises(StoreCorrupt):
        await scene.stores.blobs.get_blob(ref)


async def test_orphans_go_in_bounded_steps(scene: Scene) -> None:
    for _ in range(5):
        await scene.stores.blobs.put_blob(f"{scene.task().id}.args", b"much")
    scene.clock.advance(3_601)

    steps = [await scene.stores.sweeps.remove_orphans(3_600_000, 1) for _ in range(6)]

    assert sum(steps) == 5
    assert steps[-1] == 0


@pytest.mark.parametrize("ref", ["", "../../etc/passwd", "01890a5d-ac96-774b-bcce-b302099a8057/../x.args"])
async def test_a_blob_name_that_leads_elsewhere_is_refused(scene: Scene, ref: str) -> None:
    with pytest.raises(StoreCorrupt):
        await scene.stores.blobs.get_blob(ref)
    with pytest.raises(StoreCorrupt):
        await scene.stores.blobs.put_blob(ref, b"x")
