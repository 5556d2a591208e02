"""Cancelling many tasks at once: the same as one by one, in few writes."""

from functools import partial

from ade import Status, Task
from ade.tasks.bulk import BulkActionKind, act, cancel_many, count
from ade.tasks.dead_letters import discard_all
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


async def test_deliveries_of_notifications_are_refused_and_do_not_stand_in_the_way(
    queue: QueueDriver, stores: Stores
) -> None:
    notices = [await queue.enqueue("notifications:deliver", source="system") for _ in range(5)]
    others = [await queue.enqueue() for _ in range(4)]
    query, everything = TaskQuery(queue="default"), partial(act, reason="quiet", actor="olga", replay_one=never)
    assert (await count(stores, BulkActionKind.CANCEL, query))[0].count == 4

    first, following = await everything(stores, BulkActionKind.CANCEL, query, limit=3)
    assert (first.changed, first.is_more) == (tuple(task.id for task in others[:3]), True)
    assert following is not None
    report, following = await everything(stores, BulkActionKind.CANCEL, query, limit=100)

    assert (report.changed, report.moved_on, report.is_more) == ((others[3].id,), (), False)
    assert following is None
    [refused] = report.refused
    assert (refused.code, refused.task_ids) == ("invalid_task", tuple(task.id for task in notices))
    assert await cancel_all(stores, notices) == []
    assert {(await queue.get(task)).status for task in notices} == {Status.PENDING}


async def test_failed_deliveries_of_notifications_are_not_discarded(queue: QueueDriver, stores: Stores) -> None:
    notice = await queue.dead_letter(name="notifications:deliver", source="system")
    other = await queue.dead_letter()

    report, _ = await discard_all(stores, "quiet", actor="olga")

    assert report.changed == (other.id,)
    assert [(each.code, each.task_ids) for each in report.refused] == [("invalid_task", (notice.id,))]
    assert not (await queue.get(notice)).discarded
    again, _ = await act(
        stores, BulkActionKind.DISCARD, TaskQuery(), reason="quiet", limit=9, actor="olga", replay_one=never
    )
    assert (again.changed, again.refused) == ((), report.refused)


async def never(task_id: str) -> None:
    raise AssertionError(f"{task_id} is not replayed here")
