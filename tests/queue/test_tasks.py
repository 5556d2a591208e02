"""What can be done with a task that is there: cancel, replay, discard, edit."""

import pytest
from msgspec import Raw

from ade.errors import IllegalTransition, InvalidTask, StaleLease, StaleWrite, UnknownTask
from ade.stores.ports import DONE, STOP, Stores
from ade.tasks import service as tasks_service
from ade.tasks.changes import Change
from ade.tasks.decisions import cancel as decide_to_cancel
from ade.tasks.lifecycle import Status
from ade.tasks.model import AfterFailure, Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import decide
from tests.queue.desk import Desk


async def test_an_unknown_id_is_an_error_with_a_code(desk: Desk, stores: Stores) -> None:
    with pytest.raises(UnknownTask) as refusal:
        await tasks_service.get(stores, desk.task().id)
    assert refusal.value.code == "unknown_task"


async def test_a_cancelled_run_hears_of_it_and_its_late_result_is_refused(desk: Desk, stores: Stores) -> None:
    await desk.enqueue()
    running = await desk.claim()
    stop, done = stores.wakeups.generation(STOP), stores.wakeups.generation(DONE)

    cancelled = await tasks_service.cancel(stores, running.id, "not needed", actor="ada")

    assert (cancelled.status, cancelled.reason) == (Status.CANCELLED, "not needed")
    assert stores.wakeups.generation(STOP) > stop
    assert stores.wakeups.generation(DONE) > done
    with pytest.raises(StaleLease):
        await desk.complete(running)
    assert await desk.events(running) == ["task.created", "task.claimed", "task.cancelled"]


async def test_cancelling_twice_is_no_error_and_makes_one_event(desk: Desk, stores: Stores) -> None:
    task = await desk.enqueue()
    await tasks_service.cancel(stores, task.id)
    await tasks_service.cancel(stores, task.id)

    assert (await desk.events(task)).count("task.cancelled") == 1


async def test_what_ended_otherwise_cannot_be_cancelled(desk: Desk, stores: Stores) -> None:
    await desk.enqueue()
    task = await desk.claim()
    await desk.complete(task)

    with pytest.raises(IllegalTransition, match="cannot cancel a task that is completed"):
        await tasks_service.cancel(stores, task.id)


async def test_cancelling_a_parent_stops_its_children_and_theirs(desk: Desk, stores: Stores) -> None:
    parent = await desk.enqueue()
    child = await desk.enqueue(parent_id=parent.id)
    grandchild = await desk.enqueue(parent_id=child.id)
    other = await desk.enqueue()

    await tasks_service.cancel(stores, parent.id)

    assert (await desk.get(child)).status is Status.CANCELLED
    assert (await desk.get(grandchild)).reason == "its parent was cancelled"
    assert (await desk.get(other)).status is Status.PENDING


async def test_a_chain_behind_a_cancelled_task_gets_its_answer_at_once(desk: Desk, stores: Stores) -> None:
    first = await desk.enqueue()
    second = await desk.enqueue(depends_on=(first.id,))
    third = await desk.enqueue(depends_on=(second.id,), after_failure=AfterFailure.FAIL)
    anyway = await desk.enqueue(depends_on=(second.id,), after_failure=AfterFailure.RUN)

    await tasks_service.cancel(stores, first.id)

    assert (await desk.get(second)).status is Status.CANCELLED
    assert (await desk.get(third)).status is Status.FAILED
    assert (await desk.claim()).id == anyway.id


async def test_a_decision_is_made_again_when_somebody_was_faster(desk: Desk, stores: Stores) -> None:
    task = await desk.enqueue()
    seen: list[int] = []

    async def interfere() -> None:
        await desk.claim()

    versions: list[Task] = [await desk.get(task)]
    await interfere()

    def decision(newest: Task, now: int) -> Change:
        seen.append(newest.version)
        stale = versions.pop() if versions else newest  # the first decision is made on an old reading
        return decide_to_cancel(stale, "late", now=now)

    cancelled = await decide(stores, task.id, decision)

    assert cancelled.status is Status.CANCELLED
    assert len(seen) == 2


async def test_a_decision_that_is_always_late_gives_up(desk: Desk, stores: Stores) -> None:
    old = await desk.enqueue()
    await desk.claim()

    with pytest.raises(StaleWrite):
        await decide(stores, old.id, lambda _, now: decide_to_cancel(old, None, now=now))


async def test_replay_starts_over_with_corrected_arguments(desk: Desk, stores: Stores, payloads: Payloads) -> None:
    dead = await desk.dead_letter(arguments={"to": "nobody"})
    large = Raw(b'{"to":"' + b"a" * 400 + b'"}')

    replayed = await tasks_service.replay(stores, payloads, dead.id, args=large)

    assert (replayed.status, replayed.generation, replayed.attempt) == (Status.PENDING, 2, 0)
    assert bytes(await payloads.load((await desk.get(dead)).args)) == bytes(large)
    with pytest.raises(IllegalTransition):
        await tasks_service.replay(stores, payloads, dead.id)


async def test_discarding_needs_a_reason(desk: Desk, stores: Stores) -> None:
    dead = await desk.dead_letter()

    with pytest.raises(InvalidTask, match="say why"):
        await tasks_service.discard(stores, dead.id, " ")
    assert (await tasks_service.discard(stores, dead.id, "obsolete")).discarded


async def test_a_draft_can_be_edited_and_nothing_else_can(desk: Desk, stores: Stores, payloads: Payloads) -> None:
    draft = await desk.enqueue(status=Status.DRAFT)

    edited = await tasks_service.edit(stores, payloads, draft.id, priority=1, args=Raw(b'{"to":"ada"}'))
    assert (edited.priority, edited.arguments()) == (1, {"to": "ada"})
    with pytest.raises(InvalidTask, match="priority 10"):
        await tasks_service.edit(stores, payloads, draft.id, priority=10)

    pending = await desk.enqueue()
    with pytest.raises(IllegalTransition):
        await tasks_service.edit(stores, payloads, pending.id, priority=1)
