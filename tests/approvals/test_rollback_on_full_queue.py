"""A queue that others have filled does not keep a failed task from being undone, nor hides why it failed."""

from ade import Ade, Status
from ade.errors import QueueFull
from ade.testing import harness
from tests.domain import Queue


async def test_a_task_that_fails_in_a_full_queue_is_undone_and_tells_its_own_error() -> None:
    app, done, refused = Ade("memory://"), list[str](), list[QueueFull]()

    @app.task(name="move", max_attempts=1)
    async def move(what: str) -> None:
        try:
            await app.enqueue("move", {"what": "another"})
        except QueueFull as error:
            refused.append(error)
        raise RuntimeError("it broke")

    @move.rollback
    async def move_back(what: str) -> None:
        done.append(f"moved {what} back")

    async with harness(app) as kit:
        await kit.stores.queues.configure(Queue(name="default", max_depth=1))
        task = await move.with_options(rollback="automatic").enqueue("it")
        await kit.drain()

        found = await task.get()
        assert found.error is not None
        assert (found.status, found.error.type, found.error.message) == (Status.FAILED, "RuntimeError", "it broke")
        assert (len(refused), done) == (1, ["moved it back"])
        assert await kit.stores.maintenance.check_invariants() == []
