"""Cancelling many tasks at once: the same as one by one, in few writes."""

from ade import Status, Task
from ade.tasks.bulk import cancel_many
from tests.domain import DONE, STOP, Stores, TaskQuery
from tests.tasks.queue_driver import QueueDriver


async def cancel_all(stores: Stores, tasks: list[Task]) -> list[str]:
    batches = cancel_many(stores, [task.id for task in tasks], "not needed", actor="ada")
    return [task_id async for batch in batches for task_id in batch]


async def test_all_that_are_unfinished_are_cancelled_and_the_rest_is_left_alone(
    queue: QueueDriver, stores: Stores
) -> None:
    await queue.enqueue()
    completed = await queue.claim()
    await queue.complete(completed)
    await queue.enqueue()
    running = await queue.claim()
    pending = await queue.enqueue()
    stop, done = stores.wakeups.generation(STOP), stores.wakeups.generation(DONE)

    assert await cancel_all(stores, [completed, running, pending, queue.task()]) == [running.id, pending.id]

    assert (await queue.get(completed)).status is Status.COMPLETED
    assert (await queue.get(running)).reason == "not needed"
    assert stores.wakeups.generation(STOP) > stop
    assert stores.wakeups.generation(DONE) > done


async def test_children_and_theirs_go_too_and_are_not_counted(queue: QueueDriver, stores: Stores) -> None:
    parent = await queue.enqueue()
    child = await queue.enqueue(parent_id=parent.id)
    grandchild = await queue.enqueue(parent_id=child.id)
    waiting = await queue.enqueue(depends_on=(grandchild.id,))
    other = await queue.enqueue()

    assert await cancel_all(stores, [parent]) == [parent.id]

    for task in (child, grandchild, waiting):
        assert (await queue.get(task)).status is Status.CANCELLED
    assert (await queue.get(other)).status is Status.PENDING


async def test_a_parent_may_have_more_children_than_fit_a_page(queue: QueueDriver, stores: Stores) -> None:
    parent = await queue.enqueue()
    for _ in range(450):
        await queue.enqueue(parent_id=parent.id)

    await cancel_all(stores, [parent])

    query = TaskQuery(statuses=frozenset({Status.PENDING}))
    assert (await stores.tasks.find(query)).tasks == []


async def test_more_than_a_batch_goes_batch_by_batch(queue: QueueDriver, stores: Stores) -> None:
    tasks = [await queue.enqueue() for _ in range(450)]
    sizes = [len(batch) async for batch in cancel_many(stores, [task.id for task in tasks])]

    assert sizes == [200, 200, 50]
