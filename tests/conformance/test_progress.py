"""Progress: what a run tells of itself while it holds its task."""

import pytest

from ade.errors import StaleLease
from tests.conformance.scene import Scene, raw


async def test_progress_is_kept_for_the_run_that_holds_the_task(scene: Scene) -> None:
    running = await scene.start()
    await scene.stores.tasks.report_progress(running.id, str(running.run_id), raw('{"done":1}'))
    await scene.stores.tasks.report_progress(running.id, str(running.run_id), raw('{"done":2}'))

    assert (await scene.get(running.id)).progress == raw('{"done":2}')
    assert (await scene.get(running.id)).version == running.version
    await scene.succeed(running)
    assert (await scene.get(running.id)).progress == raw('{"done":2}')


async def test_progress_of_a_run_that_lost_its_task_is_refused(scene: Scene) -> None:
    late = await scene.start()
    await scene.let_lease_run_out()
    [current] = await scene.claim()

    for run_id in (str(late.run_id), "nobody"):
        with pytest.raises(StaleLease):
            await scene.stores.tasks.report_progress(late.id, run_id, raw("1"))
    with pytest.raises(StaleLease):
        await scene.stores.tasks.report_progress(scene.task().id, str(late.run_id), raw("1"))

    assert (await scene.get(current.id)).progress is None
