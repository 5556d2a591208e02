"""What a task needs of its worker: declared for all tasks of a function, or said for one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ade import Ade, Status
from ade.errors import InvalidTask
from ade.tasks.schedules import fire_now, put
from ade.testing import TestKit, harness
from tests.domain import Schedule


async def test_what_is_declared_holds_for_all_tasks_of_a_function(ade: Ade, kit: TestKit) -> None:
    @ade.task(needs=["net", "gpu"])
    async def train() -> str:
        return "trained"

    task = await train.enqueue()
    assert (await task.get()).needs == ("gpu", "net")
    assert await kit.drain() == 1, "the kit can do what its app declares"
    assert await task.result() == "trained"


async def test_what_is_said_for_one_task_stands_in_its_place() -> None:
    ade = Ade("memory://")

    @ade.task(needs=["gpu"])
    async def train() -> None: ...

    async with harness(ade) as kit:
        other = await train.with_options(needs=["tpu"]).enqueue()
        none = await train.with_options(needs=[]).enqueue()
        await kit.drain()
        assert [await other.status(), await none.status()] == [Status.PENDING, Status.COMPLETED]

    async with harness(ade, capabilities=["tpu"]) as kit:
        task = await train.with_options(needs=["tpu"]).enqueue()
        await kit.drain()
        assert await task.status() is Status.COMPLETED


async def test_the_tasks_of_a_schedule_need_what_is_declared(ade: Ade, kit: TestKit) -> None:
    @ade.task(needs=["gpu"])
    async def train() -> None: ...

    await kit.drain()  # its worker makes the definition known
    await put(kit.stores, Schedule(name="nightly", cron="0 3 * * *", task_name="train"))
    opened = await ade.open()
    fired = await fire_now(kit.stores, ade.settings.task, "nightly", opened.keep)

    assert fired.needs == ("gpu",)


async def test_a_rollback_needs_what_its_task_does(ade: Ade, kit: TestKit) -> None:
    @ade.task(max_attempts=1)
    async def move(what: str) -> None:
        raise RuntimeError("it broke")

    @move.rollback
    async def undo(what: str) -> None: ...

    failing = await move.with_options(needs=["gpu"], rollback="automatic").enqueue("a box")
    assert await kit.drain() == 0
    assert (await failing.get()).needs == ("gpu",)

    async with harness(ade, capabilities=["gpu"]) as able:
        failing = await move.with_options(needs=["gpu"], rollback="automatic").enqueue("a box")
        await able.drain()
        [undone] = [task for task in (await _all(able)) if task.name == "move:rollback"]
        assert (undone.needs, undone.status) == (("gpu",), Status.COMPLETED)


async def _all(kit: TestKit) -> list[Any]:
    from ade.stores.ports import TaskQuery

    return list((await kit.stores.tasks.find(TaskQuery(limit=10))).tasks)


@pytest.mark.parametrize("needs", ["gpu", ["GPU"], [7], 7, None, [f"c{number}" for number in range(33)]], ids=str)
def test_what_nobody_could_have_is_refused(ade: Ade, needs: Any) -> None:
    async def train() -> None: ...

    with pytest.raises(InvalidTask):
        ade.task(needs=needs)(train)
    with pytest.raises(InvalidTask):
        ade.task(train).with_options(needs=needs)


def test_moments_have_nothing_to_do_with_it(ade: Ade) -> None:
    @ade.task(needs=["gpu"])
    async def train() -> None: ...

    planned = train.with_options(run_at=datetime(2031, 1, 1, tzinfo=UTC))
    assert planned.call().plan.template.needs == ("gpu",)
