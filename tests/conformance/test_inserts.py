"""New tasks come in: all of a call or none, once however often it is repeated."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from msgspec import structs

from ade import Status
from ade.errors import DependencyCycle, IdempotencyConflict, PayloadTooLarge, UnknownDependency
from ade.failures import Backoff
from tests.conformance.scene import Scene, raw
from tests.domain import AfterFailure, Queue


async def test_a_task_comes_back_as_it_was_given(scene: Scene) -> None:
    task = scene.task(
        queue="mail",
        args=raw('{"to":"ann","n":12345678901234567890,"x":1.50,"s":"a\\u0000\\"ü"}'),
        description="says 'hello', \"world\"",
        tags=("a", "b"),
        priority=0,
        idempotency_key="k1",
        parent_id="01890a5d-ac96-774b-bcce-b302099a8057",
        after_failure=AfterFailure.FAIL,
        source="schedule",
        author_id="u1",
        author_name="Ann",
        team="ops",
        ticket_ref="T-1",
        trace="00-1-2-01",
        run_after=scene.clock.now() + 1000,
        deadline=scene.clock.now() + 9000,
        timeout_ms=500,
        max_attempts=7,
        backoff=Backoff(base_ms=5, multiplier=3.0, cap_ms=99, jitter=0.5),
        result_ttl_ms=1000,
        concurrency_key="c1",
        resources=("file:x",),
        rollback="manual",
        digest="d",
        risk={"score": 1},
        preview=raw('{"diff":[]}'),
    )

    [stored] = await scene.add_all(task)

    assert stored == task
    assert await scene.get(task.id) == task


async def test_a_task_with_nothing_but_a_name_comes_back_too(scene: Scene) -> None:
    task = structs.replace(scene.task(), backoff=Backoff())
    await scene.add_all(task)

    assert await scene.get(task.id) == task
    assert [running.id for running in await scene.claim()] == [task.id]


@pytest.mark.parametrize(
    "args",
    [
        '{"a":' + "[" * 500 + "]" * 500 + "}",
        '{"n":-0.0,"big":1e308,"tiny":1E-400}',
        '{"s":"\\ud83d\\ude00 \\u2028"}',
        "[ 1 ,2 ]",
    ],
    ids=["deep", "numbers", "escapes", "spaces"],
)
async def test_arguments_keep_their_meaning(scene: Scene, args: str) -> None:
    task = await scene.add(args=raw(args))

    kept = bytes((await scene.get(task.id)).args)

    assert msgspec.json.decode(kept) == msgspec.json.decode(args)
    assert str(msgspec.json.decode(kept)) == str(msgspec.json.decode(args))


async def test_arguments_nested_to_the_limit_are_refused_or_set_aside_and_hold_up_nobody(scene: Scene) -> None:
    kept = []
    for depth in (900, 960, 980, 995, 1_000, 5_000):
        with suppress(PayloadTooLarge):
            kept.append(await scene.add(args=raw('{"a":' + "[" * depth + "]" * depth + "}")))
    fine = await scene.add()

    claimed = [task.id for task in await scene.claim(20)]

    assert len(kept) < 6
    assert {kept[0].id, fine.id} <= set(claimed)
    assert await scene.claim(20) == []


async def test_many_tasks_are_answered_and_kept_in_the_order_given(scene: Scene) -> None:
    given = [scene.task() for _ in range(50)]

    stored = await scene.add_all(*given)

    assert [task.id for task in stored] == [task.id for task in given]
    assert await scene.run(50) == [task.id for task in given]


async def test_nothing_to_add_is_no_error(scene: Scene) -> None:
    assert await scene.add_all() == []


async def test_the_same_key_and_arguments_give_the_earlier_task(scene: Scene) -> None:
    first = await scene.add(idempotency_key="k", args=raw('{"n":1}'))
    scene.clock.advance(5)

    second = await scene.add(idempotency_key="k", args=raw('{"n":1}'))

    assert second == first
    assert await scene.counts() == {"pending": 1}


async def test_the_earlier_task_is_shown_as_it_is_now(scene: Scene) -> None:
    running = await scene.start(idempotency_key="k")
    await scene.succeed(running, '"done"')

    again = await scene.add(idempotency_key="k")

    assert (again.id, again.status, again.result) == (running.id, Status.COMPLETED, raw('"done"'))


async def test_the_same_key_with_other_arguments_is_refused(scene: Scene) -> None:
    await scene.add(idempotency_key="k", args=raw('{"n":1}'))

    with pytest.raises(IdempotencyConflict):
        await scene.add_all(scene.task(), scene.task(idempotency_key="k", args=raw('{"n":2}')))

    assert await scene.counts() == {"pending": 1}


async def test_a_key_counts_within_its_queue_and_name_only(scene: Scene) -> None:
    await scene.add("send", idempotency_key="k", queue="a")
    await scene.add("send", idempotency_key="k", queue="b")
    await scene.add("build", idempotency_key="k", queue="a")

    assert await scene.counts() == {"pending": 3}


async def test_one_key_twice_in_one_call_makes_one_task(scene: Scene) -> None:
    first, second, third = await scene.add_all(
        scene.task(idempotency_key="k"), scene.task(), scene.task(idempotency_key="k")
    )

    assert first == third
    assert second.id != first.id
    assert await scene.counts() == {"pending": 2}


async def test_one_key_with_two_arguments_in_one_call_stores_nothing(scene: Scene) -> None:
    one, other = (scene.task(idempotency_key="k", args=raw(f'{{"n":{n}}}')) for n in (1, 2))

    with pytest.raises(IdempotencyConflict):
        await scene.add_all(one, other)

    assert await scene.counts() == {}


async def test_one_key_from_many_callers_at_once_makes_one_task(scene: Scene) -> None:
    answers = await asyncio.gather(*(scene.add(idempotency_key="k") for _ in range(20)))

    assert len({task.id for task in answers}) == 1
    assert await scene.counts() == {"pending": 1}


async def test_of_many_callers_with_different_arguments_one_wins(scene: Scene) -> None:
    tasks = [scene.task(idempotency_key="k", args=raw(f'{{"n":{n}}}')) for n in range(10)]

    answers = await asyncio.gather(*(scene.add_all(task) for task in tasks), return_exceptions=True)

    assert sum(isinstance(answer, IdempotencyConflict) for answer in answers) == 9
    assert await scene.counts() == {"pending": 1}


async def test_a_call_repeated_after_an_unknown_outcome_changes_nothing(scene: Scene) -> None:
    tasks = [scene.task(idempotency_key="k"), scene.task()]
    first = await scene.add_all(*tasks)

    assert await scene.add_all(*tasks) == first
    assert await scene.counts() == {"pending": 2}


async def test_a_call_repeated_late_answers_with_the_tasks_as_they_are_now(scene: Scene) -> None:
    task = scene.task()
    await scene.add_all(task)
    [running] = await scene.claim()

    [again] = await scene.add_all(task)

    assert again == running


async def test_one_id_twice_in_one_call_makes_one_task(scene: Scene) -> None:
    task = scene.task()

    assert await scene.add_all(task, task) == [task, task]
    assert await scene.counts() == {"pending": 1}


async def test_a_call_with_an_unknown_dependency_stores_nothing(scene: Scene) -> None:
    fine = scene.task()
    nobody = scene.task().id

    with pytest.raises(UnknownDependency, match=nobody):
        await scene.add_all(fine, scene.task(depends_on=(nobody,)))

    assert await scene.stores.tasks.get([fine.id]) == [None]
    assert await scene.event_types() == []


async def test_one_refused_call_does_not_touch_the_calls_beside_it(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="default", max_depth=3))
    nobody = scene.task().id
    bad = [scene.task(depends_on=(nobody,)) for _ in range(5)]

    answers = await asyncio.gather(
        *(scene.add_all(task) for task in bad), *(scene.add() for _ in range(3)), return_exceptions=True
    )

    assert [type(answer) for answer in answers[:5]] == [UnknownDependency] * 5
    assert not any(isinstance(answer, BaseException) for answer in answers[5:])


async def test_who_waits_for_a_task_that_existed_already_waits_for_that_one(scene: Scene) -> None:
    earlier = await scene.add(idempotency_key="k")
    repeated = scene.task(idempotency_key="k")
    dependent = scene.task("build", depends_on=(repeated.id,))

    await scene.add_all(repeated, dependent)

    assert (await scene.get(dependent.id)).depends_on == (earlier.id,)
    assert await scene.run(10) == [earlier.id]
    assert await scene.run(10) == [dependent.id]


async def test_tasks_of_one_key_that_wait_for_each_other_are_a_ring(scene: Scene) -> None:
    """By their ids they are none; but one key makes one task of two, and that would wait for itself for ever."""
    first = scene.task(idempotency_key="once")
    between = scene.task("build", depends_on=(first.id,))
    again = scene.task(idempotency_key="once", depends_on=(between.id,))

    with pytest.raises(DependencyCycle):
        await scene.add_all(again, between, first)

    assert await scene.stores.tasks.get([first.id, between.id, again.id]) == [None, None, None]
    assert await scene.stores.events.last_seq() == 0


async def test_a_task_that_existed_already_is_waited_for_once_however_often_it_is_named(scene: Scene) -> None:
    existing = await scene.add(idempotency_key="once")
    again = scene.task(idempotency_key="once")
    late = scene.task("build", depends_on=(existing.id, again.id))

    await scene.add_all(again, late)

    assert (await scene.get(late.id)).depends_on == (existing.id,)
    assert [await scene.run(10) for _ in range(3)] == [[existing.id], [late.id], []]


async def test_creation_is_on_record(scene: Scene) -> None:
    task = await scene.add(author_id="u1")

    [event] = await scene.stores.events.read(0, 10, task_id=task.id)

    assert (event.type, event.at, event.task_id, event.actor) == ("task.created", task.created_at, task.id, "u1")
    assert event.payload == {"queue": "default", "name": "send", "status": "pending"}


async def test_drafts_and_reviews_are_kept_but_never_handed_out(scene: Scene) -> None:
    await scene.add(status=Status.DRAFT)
    await scene.add(status=Status.REVIEWING)

    assert await scene.claim(10) == []
    assert await scene.counts() == {"draft": 1, "reviewing": 1}
