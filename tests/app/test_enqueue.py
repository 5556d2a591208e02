"""Enqueue a function, get its result: what people meet first."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ade import Ade, Backoff, Retry, TaskFailed
from ade.errors import IdempotencyConflict, InvalidArguments, InvalidTask, UnknownDependency, UnknownName
from ade.testing import TestKit
from tests.domain import TaskQuery


@dataclass
class Summary:
    text: str
    length: int


async def test_a_function_goes_through_the_queue_and_comes_back_typed(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def summarise(url: str, limit: int = 500) -> Summary:
        return Summary(url[:limit], limit)

    task = await summarise.enqueue("https://example.org", limit=5)
    await kit.drain()

    assert await task.result() == Summary("https", 5)
    assert await summarise("https://example.org", limit=4) == Summary("http", 4)


async def test_plain_functions_run_in_threads(ade: Ade, kit: TestKit) -> None:
    @ade.task
    def count(text: str) -> int:
        return len(text)

    task = await count.enqueue("four")
    await kit.drain()

    assert await task.result() == 4
    assert count("four") == 4


async def test_wrong_arguments_are_refused_with_nothing_stored(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def square(number: int) -> int:
        return number * number

    with pytest.raises(InvalidArguments, match="argument `number`"):
        await square.enqueue("3")  # type: ignore[arg-type] # the mistake in question
    with pytest.raises(InvalidArguments, match="missing: number"):
        square.call()  # type: ignore[call-arg] # the mistake in question
    assert (await kit.stores.tasks.find(TaskQuery())).tasks == []


async def test_a_result_of_another_type_fails_the_task_at_once(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def liar() -> int:
        return "three"  # type: ignore[return-value] # the mistake in question

    task = await liar.enqueue()
    await kit.drain()

    with pytest.raises(TaskFailed, match="InvalidResult") as failure:
        await task.result()
    assert failure.value.error is not None
    assert failure.value.error.kind == "bad_result"
    assert failure.value.task_id == task.id


async def test_options_reach_the_record(ade: Ade, kit: TestKit) -> None:
    @ade.task(queue="web", priority=4, timeout=60, max_attempts=2, result_ttl=timedelta(hours=1))
    async def fetch(url: str) -> None: ...

    plain = await (await fetch.enqueue("u")).get()
    assert (plain.queue, plain.priority, plain.timeout_ms, plain.max_attempts) == ("web", 4, 60_000, 2)
    assert plain.result_ttl_ms == 3_600_000

    special = fetch.with_options(
        queue="fast",
        priority=0,
        delay=timedelta(seconds=30),
        deadline=120,
        key="once",
        tags=["a", "b"],
        description="the front page",
        max_attempts=9,
        timeout=None,
        backoff=Backoff(base_ms=5),
        concurrency_key="example.org",
        parent=plain.id,
        author="ada",
    )
    task = await (await special.enqueue("u")).get()
    now = kit.clock.now()
    assert (task.queue, task.priority, task.run_after, task.deadline) == ("fast", 0, now + 30_000, now + 120_000)
    assert (task.idempotency_key, task.tags, task.description) == ("once", ("a", "b"), "the front page")
    assert (task.max_attempts, task.timeout_ms, task.backoff.base_ms) == (9, None, 5)
    assert (task.concurrency_key, task.parent_id, task.author_id) == ("example.org", plain.id, "ada")


async def test_options_add_up_and_leave_the_original_alone(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    urgent = work.with_options(priority=1).with_options(tags=["x"])

    task = await (await urgent.enqueue()).get()
    assert (task.priority, task.tags) == (1, ("x",))
    assert (await (await work.enqueue()).get()).priority == 5


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"priority": 11}, "priority 11"),
        ({"priority": True}, "priority True is not valid"),
        ({"prio": 1}, "unknown option prio; known are queue, priority"),
        ({"delay": -1}, "delay must be at least 0 seconds"),
        ({"delay": "soon"}, "delay must be a number of seconds"),
        ({"delay": float("nan")}, "delay must be a number of seconds"),
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "either `delay` or `run_at`"),
        ({"run_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"run_at": 5}, "run_at must be a datetime"),
        ({"timeout": 0}, "timeout must be at least 0.001 seconds"),
        ({"max_attempts": 0}, "max_attempts 0"),
        ({"queue": "a b"}, "not a valid name"),
        ({"key": ""}, "idempotency_key must have"),
        ({"tags": "abc"}, "tags must be a list"),
        ({"after": ["nonsense"]}, "after must name tasks by handle or id"),
        ({"after_failure": "explode"}, "after_failure must be one of cancel, fail, run"),
        ({"backoff": 3}, r"backoff must be a Backoff"),
        ({"parent": 3}, "parent must name tasks"),
        ({"deadline": datetime(1969, 1, 1, tzinfo=UTC)}, "the deadline must be after run_after"),
    ],
)
async def test_options_that_make_no_sense_are_refused_where_they_are_written(
    ade: Ade, options: dict[str, Any], complaint: str
) -> None:
    @ade.task
    async def work() -> None: ...

    with pytest.raises(InvalidTask, match=complaint):
        work.with_options(**options)


async def test_the_same_key_is_the_same_task(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def charge(amount: int) -> int:
        return amount

    once = charge.with_options(key="order 7")
    first, second = await once.enqueue(5), await once.enqueue(5)
    assert first == second
    with pytest.raises(IdempotencyConflict):
        await once.enqueue(6)

    assert await kit.drain() == 1
    assert await second.result() == 5


async def test_a_delayed_task_waits_for_its_time(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> str:
        return "done"

    later = await work.with_options(run_at=datetime(2030, 1, 1, 12, tzinfo=UTC)).enqueue()
    assert await kit.drain() == 0
    await kit.advance(timedelta(hours=12))
    assert await kit.drain() == 1
    assert await later.result() == "done"


async def test_many_are_enqueued_in_one_step_and_may_wait_for_each_other(ade: Ade, kit: TestKit) -> None:
    order: list[str] = []

    @ade.task
    async def note(what: str) -> str:
        order.append(what)
        return what

    first = note.with_options(priority=9).call("first")
    second = note.with_options(priority=0, after=[first]).call("second")
    handles = await ade.enqueue_many([second, first])
    await kit.drain()

    assert order == ["first", "second"]
    assert [await handle.result() for handle in handles] == ["second", "first"]
    assert await ade.enqueue_many([]) == []


async def test_a_batch_may_wait_for_a_call_whose_key_was_used_before(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def note(what: str) -> None: ...

    once = note.with_options(key="once").call("first")
    [earlier] = await ade.enqueue_many([once])

    again, after = await ade.enqueue_many([once, note.with_options(after=[once]).call("second")])

    assert again == earlier
    assert (await after.get()).waiting_on == 1
    await kit.drain()
    assert await after.status() == "completed"


async def test_a_batch_with_one_bad_task_stores_none(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def note(what: str) -> None: ...

    missing = "01a1e0ed-09bf-7bad-a392-aa9658d81c3b"
    with pytest.raises(UnknownDependency):
        await ade.enqueue_many([note.call("a"), note.with_options(after=[missing]).call("b")])
    with pytest.raises(InvalidTask, match="not part of this batch"):
        await note.with_options(after=[note.call("elsewhere")]).enqueue("c")
    assert (await kit.stores.tasks.find(TaskQuery())).tasks == []


async def test_a_task_runs_after_others_and_a_failure_can_be_lived_with(ade: Ade, kit: TestKit) -> None:
    @ade.task(max_attempts=1)
    async def step(fails: bool = False) -> str:
        if fails:
            raise ValueError("no luck")
        return "done"

    failing = await step.enqueue(fails=True)
    strict = await step.with_options(after=[failing]).enqueue()
    lenient = await step.with_options(after=[failing.id], after_failure="run").enqueue()
    await kit.drain()

    assert [await task.status() for task in (failing, strict, lenient)] == ["failed", "cancelled", "completed"]


async def test_by_name_arguments_are_checked_like_a_call(ade: Ade, kit: TestKit) -> None:
    @ade.task(priority=3)
    async def square(number: int) -> int:
        return number * number

    task = await ade.enqueue("square", {"number": 3}, tags=["by-name"])
    await kit.drain()

    assert await task.result() == 9
    assert (await task.get()).priority == 3
    with pytest.raises(InvalidArguments, match="argument `number`"):
        await ade.enqueue("square", {"number": "3"})


async def test_a_producer_may_enqueue_what_only_workers_define(ade: Ade, kit: TestKit) -> None:
    @ade.task(timeout=7)
    async def square(number: int) -> int:
        return number * number

    producer = Ade("memory://")
    producer.opener = ade.opener  # another process on the same store

    with pytest.raises(UnknownName, match="'square'; registered are: none"):
        await producer.enqueue("square", {"number": 3})
    await kit.drain()  # a worker comes and makes its tasks known
    with pytest.raises(UnknownName, match="registered are: square"):
        await producer.enqueue("sqare", {"number": 3})
    with pytest.raises(InvalidArguments, match="expected integer, got str"):
        await producer.enqueue("square", {"number": "3"})

    task = await producer.enqueue("square", {"number": 3})
    assert (await task.get()).timeout_ms == 7_000
    await kit.drain()
    assert await task.result() == 9

    anyway = await producer.enqueue("later", {"number": 3}, allow_unknown=True)
    assert await anyway.status() == "pending"


async def test_large_arguments_and_results_pass_through(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def double(text: str) -> str:
        return text * 2

    task = await double.enqueue("x" * 5_000)
    assert len((await task.get()).args) < 1_000
    await kit.drain()

    assert await task.result() == "x" * 10_000
    assert len((await task.get()).result or b"") < 1_000


async def test_calls_work_with_the_tools_of_asyncio(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work(number: int) -> int:
        return number

    one = asyncio.create_task(work.enqueue(1))
    two, three = await asyncio.gather(work.enqueue(2), work.enqueue(3))
    async with asyncio.TaskGroup() as group:
        four = group.create_task(work.enqueue(4))
    await kit.drain()

    assert [await (await one).result(), await two.result(), await three.result()] == [1, 2, 3]
    assert await four.result().result() == 4


def test_a_forgotten_call_is_reported_by_python_and_does_nothing(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    with pytest.warns(RuntimeWarning, match="was never awaited"):
        work.enqueue()


async def test_a_handler_that_asks_for_a_retry_gets_it_when_it_asked(ade: Ade, kit: TestKit) -> None:
    attempts: list[int] = []

    @ade.task
    async def patient() -> None:
        attempts.append(kit.clock.now())
        if len(attempts) == 1:
            raise Retry("not yet", after=90)

    await patient.enqueue()
    await kit.finish()

    assert attempts[1] - attempts[0] == 90_000


async def test_only_calls_can_be_enqueued_together(ade: Ade, kit: TestKit) -> None:
    wrong: Any = [1]
    with pytest.raises(InvalidTask, match=r"calls written down with `f.call\(...\)`, not 1"):
        await ade.enqueue_many(wrong)
