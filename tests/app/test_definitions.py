"""What can be declared about a task, and what is refused when it is."""

from typing import Any

import pytest

from ade import Ade, Context, SyncContext, Task
from ade.errors import InvalidSchedule, InvalidTask
from ade.tasks.option_values import parse_rate
from ade.tasks.outcomes import Outcome, Succeeded
from ade.testing import TestKit
from tests.domain import HandlerMode


def test_limits_and_defaults_end_up_in_the_definition(ade: Ade) -> None:
    @ade.task(name="fetch", concurrency=10, rate="100/m", concurrency_key=lambda url: url, concurrency_per_key=2)
    async def get(url: str) -> None: ...

    definition = get.handler.definition
    assert (get.name, definition.name) == ("fetch", "fetch")
    assert (definition.concurrency, definition.concurrency_per_key) == (10, 2)
    assert (definition.rate_count, definition.rate_period_ms) == (100, 60_000)
    assert definition.schema is not None
    assert definition.schema["required"] == ["url"]


def test_a_key_alone_means_one_at_a_time(ade: Ade) -> None:
    @ade.task(concurrency_key=lambda url: url)
    async def get(url: str) -> None: ...

    assert get.handler.definition.concurrency_per_key == 1


def test_the_kind_of_function_decides_where_it_runs(ade: Ade) -> None:
    @ade.task
    async def waits() -> None: ...

    @ade.task
    def blocks() -> None: ...

    @ade.task(cpu=True)
    def computes() -> None: ...

    assert [task.handler.mode for task in (waits, blocks, computes)] == [
        HandlerMode.ASYNC,
        HandlerMode.THREAD,
        HandlerMode.PROCESS,
    ]


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"timeout": -1}, "timeout must be at least"),
        ({"priority": 10}, "priority 10"),
        ({"queue": "no spaces"}, "not a valid name"),
        ({"name": "7up"}, "task name '7up' is not valid"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"rate": "fast"}, "rate 'fast' is not valid"),
        ({"rate": 5}, "rate 5 is not valid"),
        ({"retries": 5}, "unknown option retries"),
        ({"cpu": True}, "is async"),
        ({"concurrency_key": lambda page: page}, "uses page"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(ade: Ade, declared: dict[str, Any], complaint: str) -> None:
    async def get(url: str) -> None: ...

    with pytest.raises(InvalidTask, match=complaint):
        ade.task(**declared)(get)


def test_two_tasks_cannot_share_a_name(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    with pytest.raises(InvalidTask, match="two tasks are named 'work'"):
        ade.task(name="work")(lambda: None)


def test_generators_are_no_tasks(ade: Ade) -> None:
    async def pages() -> Any:
        yield 1

    with pytest.raises(InvalidTask, match="is a generator"):
        ade.task(pages)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("5/s", (5, 1_000)), ("100/m", (100, 60_000)), (" 1000 / h ", (1000, 3_600_000)), ("10/30s", (10, 30_000))],
)
def test_rates_are_read_as_people_write_them(text: str, meant: tuple[int, int]) -> None:
    assert parse_rate(text) == meant


async def test_the_key_is_made_from_the_arguments_it_names_defaults_included(ade: Ade, kit: TestKit) -> None:
    @ade.task(concurrency_key=lambda region, url: f"{region}/{url}")
    async def get(url: str, depth: int = 1, region: str = "eu") -> None: ...

    assert (await (await get.enqueue("a")).get()).concurrency_key == "eu/a"
    assert (await (await get.enqueue("a", 2, "us")).get()).concurrency_key == "us/a"
    assert (await (await get.with_options(concurrency_key="mine").enqueue("a")).get()).concurrency_key == "mine"
    [handle] = await ade.enqueue_many([get.call("b")])
    assert (await handle.get()).concurrency_key == "eu/b"


async def test_a_key_must_be_text(ade: Ade, kit: TestKit) -> None:
    @ade.task(concurrency_key=lambda number: number)
    async def work(number: int) -> None: ...

    with pytest.raises(InvalidTask, match="must return text, not 3"):
        await work.enqueue(3)


async def test_middleware_wraps_every_run_the_first_one_outermost(ade: Ade, kit: TestKit) -> None:
    seen: list[str] = []

    @ade.middleware
    async def outer(task: Task, proceed: Any) -> Outcome:
        seen.append(f"before {task.name}")
        outcome: Outcome = await proceed()
        seen.append(f"after {type(outcome).__name__}")
        return outcome

    @ade.middleware
    async def inner(task: Task, proceed: Any) -> Outcome:
        seen.append("inner")
        outcome: Outcome = await proceed()
        assert isinstance(outcome, Succeeded)
        return outcome

    @ade.task
    async def work() -> None:
        seen.append("work")

    await work.enqueue()
    await kit.drain()
    assert seen == ["before work", "inner", "work", "after Succeeded"]


async def test_cron_makes_a_schedule_that_the_worker_stores(ade: Ade, kit: TestKit) -> None:
    ran: list[int] = []

    @ade.cron("*/10 * * * *", arguments={"pages": 2})
    @ade.task(queue="night", priority=7)
    async def report(pages: int = 1) -> None:
        ran.append(pages)

    @ade.cron("0 3 * * *", tz="Europe/Berlin", name="every night")
    async def tidy() -> None: ...

    await kit.drain()
    await kit.advance(600)
    await kit.drain()

    assert ran == [2]
    stored = {schedule.name: schedule for schedule in await kit.stores.schedules.list_schedules()}
    assert stored.keys() == {"report", "every night"}
    assert (stored["report"].queue, stored["report"].priority) == ("night", 7)
    assert await tidy() is None  # type: ignore[func-returns-value] # still callable


def test_cron_lines_are_checked_where_they_are_written(ade: Ade) -> None:
    with pytest.raises(InvalidSchedule, match="never fires"):
        ade.cron("0 0 31 2 *")
    with pytest.raises(InvalidSchedule, match="Mars"):
        ade.cron("0 3 * * *", tz="Mars/Base")

    @ade.cron("0 3 * * *")
    async def nightly() -> None: ...

    with pytest.raises(InvalidSchedule, match="two schedules are named 'nightly'"):
        ade.cron("0 4 * * *")(nightly)


def test_a_task_with_required_arguments_cannot_be_scheduled_without_them(ade: Ade) -> None:
    from ade.errors import InvalidArguments

    with pytest.raises(InvalidArguments, match="missing: url"):

        @ade.cron("0 3 * * *")
        async def get(url: str) -> None: ...


async def test_a_direct_call_gets_a_context_that_records_nothing(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def child(number: int) -> int:
        return number

    @ade.task
    async def parent(ctx: Context, number: int) -> str:
        await ctx.progress(0.5)
        await ctx.log("hello")
        handle = await ctx.enqueue(child, number)
        answer = await ctx.once("effect", lambda: "done")
        return f"{handle.id} {answer} {ctx.attempt}"

    @ade.task
    def plain(ctx: SyncContext, number: int) -> str:
        return f"{ctx.name} {ctx.once('effect', str, number)}"

    answer = await parent(3)
    assert answer.endswith(" done 1")
    assert await ade.handle(answer.split()[0]).status() == "pending"
    assert plain(3) == "plain 3"


async def test_children_know_their_parent(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def child(number: int) -> int:
        return number

    @ade.task
    async def parent(ctx: Context) -> list[int]:
        children = [await ctx.enqueue(child.with_options(priority=1), number) for number in range(3)]
        return [await handle.result(timeout=30) for handle in children]

    task = await parent.enqueue()
    await kit.drain()

    assert await task.result() == [0, 1, 2]
    found = await kit.stores.tasks.find(_children_of(task.id))
    assert [(each.name, each.priority) for each in found.tasks] == [("child", 1)] * 3


def _children_of(task_id: str) -> Any:
    from ade.stores.ports import TaskQuery

    return TaskQuery(parent_id=task_id)
