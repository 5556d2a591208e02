"""What can be done with a task that is there: cancel, replay, discard, edit."""

import pytest
from msgspec import Raw

from ade import Status, Task
from ade.approvals import submission
from ade.errors import IllegalTransition, InvalidTask, StaleLease, StaleWrite, UnknownTask
from ade.tasks import service as tasks_service
from ade.tasks.decisions import cancel as decide_to_cancel
from ade.tasks.service import decide
from tests.domain import DONE, STOP, AfterFailure, Change, Payloads, Stores
from tests.tasks.queue_driver import QueueDriver


async def test_an_unknown_id_is_an_error_with_a_code(queue: QueueDriver, stores: Stores) -> None:
    with pytest.raises(UnknownTask) as refusal:
        await tasks_service.get(stores, queue.task().id)
    assert refusal.value.code == "unknown_task"


async def test_a_cancelled_run_hears_of_it_and_its_late_result_is_refused(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    running = await queue.claim()
    stop, done = stores.wakeups.generation(STOP), stores.wakeups.generation(DONE)

    cancelled = await tasks_service.cancel(stores, running.id, "not needed", actor="ada")

    assert (cancelled.status, cancelled.reason) == (Status.CANCELLED, "not needed")
    assert stores.wakeups.generation(STOP) > stop
    assert stores.wakeups.generation(DONE) > done
    with pytest.raises(StaleLease):
        await queue.complete(running)
    assert await queue.events(running) == ["task.created", "task.claimed", "task.cancelled"]


async def test_cancelling_twice_is_no_error_and_makes_one_event(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    await tasks_service.cancel(stores, task.id)
    await tasks_service.cancel(stores, task.id)

    assert (await queue.events(task)).count("task.cancelled") == 1


async def test_what_ended_otherwise_cannot_be_cancelled(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    task = await queue.claim()
    await queue.complete(task)

    with pytest.raises(IllegalTransition, match="cannot cancel a task that is completed"):
        await tasks_service.cancel(stores, task.id)


async def test_cancelling_a_parent_stops_its_children_and_theirs(queue: QueueDriver, stores: Stores) -> None:
    parent = await queue.enqueue()
    child = await queue.enqueue(parent_id=parent.id)
    grandchild = await queue.enqueue(parent_id=child.id)
    other = await queue.enqueue()

    await tasks_service.cancel(stores, parent.id)

    assert (await queue.get(child)).status is Status.CANCELLED
    assert (await queue.get(grandchild)).reason == "its parent was cancelled"
    assert (await queue.get(other)).status is Status.PENDING


async def test_a_chain_behind_a_cancelled_task_gets_its_answer_at_once(queue: QueueDriver, stores: Stores) -> None:
    first = await queue.enqueue()
    second = await queue.enqueue(depends_on=(first.id,))
    third = await queue.enqueue(depends_on=(second.id,), after_failure=AfterFailure.FAIL)
    anyway = await queue.enqueue(depends_on=(second.id,), after_failure=AfterFailure.RUN)

    await tasks_service.cancel(stores, first.id)

    assert (await queue.get(second)).status is Status.CANCELLED
    assert (await queue.get(third)).status is Status.FAILED
    assert (await queue.claim()).id == anyway.id


async def test_a_decision_is_made_again_when_somebody_was_faster(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    seen: list[int] = []

    async def interfere() -> None:
        await queue.claim()

    versions: list[Task] = [await queue.get(task)]
    await interfere()

    def decision(newest: Task, now: int) -> Change:
        seen.append(newest.version)
        stale = versions.pop() if versions else newest  # the first decision is made on an old reading
        return decide_to_cancel(stale, "late", now=now)

    cancelled = await decide(stores, task.id, decision)

    assert cancelled.status is Status.CANCELLED
    assert len(seen) == 2


async def test_a_decision_that_is_always_late_gives_up(queue: QueueDriver, stores: Stores) -> None:
    old = await queue.enqueue()
    await queue.claim()

    with pytest.raises(StaleWrite):
        await decide(stores, old.id, lambda _, now: decide_to_cancel(old, None, now=now))


async def test_replay_starts_over_with_corrected_arguments(
    queue: QueueDriver, stores: Stores, payloads: Payloads
) -> None:
    dead = await queue.dead_letter(arguments={"to": "nobody"})
    large = Raw(b'{"to":"' + b"a" * 400 + b'"}')

    replayed = await submission.replay(stores, payloads, dead.id, args=large)

    assert (replayed.status, replayed.generation, replayed.attempt) == (Status.PENDING, 2, 0)
    assert bytes(await payloads.load((await queue.get(dead)).args)) == bytes(large)
    with pytest.raises(IllegalTransition):
        await submission.replay(stores, payloads, dead.id)


async def test_discarding_needs_a_reason(queue: QueueDriver, stores: Stores) -> None:
    dead = await queue.dead_letter()

    with pytest.raises(InvalidTask, match="give a reason"):
        await tasks_service.discard(stores, dead.id, " ")
    assert (await tasks_service.discard(stores, dead.id, "obsolete")).discarded


async def test_a_draft_can_be_edited_and_nothing_else_can(
    queue: QueueDriver, stores: Stores, payloads: Payloads
) -> None:
    draft = await queue.enqueue(status=Status.DRAFT)

    edited = await tasks_service.edit(stores, payloads, draft.id, priority=1, args=Raw(b'{"to":"ada"}'))
    assert (edited.priority, edited.arguments()) == (1, {"to": "ada"})
    with pytest.raises(InvalidTask, match="priority 10"):
        await tasks_service.edit(stores, payloads, draft.id, priority=10)

    pending = await queue.enqueue()
    with pytest.raises(IllegalTransition):
        await tasks_service.edit(stores, payloads, pending.id, priority=1)
