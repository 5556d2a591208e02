"""A limit for tasks that have none of their own, which the store may have."""

from pathlib import Path

import pytest

from ade import Ade, Context
from ade.settings import Settings
from ade.settings.runtime import default_timeout_ms, set_value
from ade.testing import TestKit
from tests.domain import RedisSettings, StoreSettings, TaskQuery
from tests.stores.urls import store_url

LIMIT = "task.default_timeout_s"


async def limits(kit: TestKit, *ids: str) -> list[int | None]:
    return [task.timeout_ms for task in await kit.stores.tasks.get(ids) if task is not None]


async def test_a_task_without_a_limit_gets_the_one_of_the_store(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def plain() -> None: ...

    @ade.task(timeout=5)
    async def limited() -> None: ...

    await set_value(kit.stores, LIMIT, 90, actor="ada")

    one, two = await plain.enqueue(), await limited.enqueue()
    three = await plain.draft()
    many = await ade.enqueue_many([plain.call(), limited.call()])

    assert await limits(kit, one.id, two.id, three.id) == [90_000, 5_000, 90_000]
    assert await limits(kit, *(each.id for each in many)) == [90_000, 5_000]


async def test_without_such_a_limit_tasks_run_as_long_as_they_like(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def plain() -> None: ...

    before = await plain.enqueue()
    await set_value(kit.stores, LIMIT, 0, actor="ada")
    after = await plain.enqueue()

    assert await limits(kit, before.id, after.id) == [None, None]
    assert await default_timeout_ms(kit.stores) is None


async def test_what_a_run_enqueues_gets_it_too(ade: Ade, kit: TestKit) -> None:
    children: list[str] = []

    @ade.task
    async def child() -> None: ...

    @ade.task
    async def parent(ctx: Context) -> None:
        children.append((await ctx.enqueue(child)).id)

    await set_value(kit.stores, LIMIT, 90, actor="ada")
    await parent.enqueue()
    await kit.drain()

    assert await limits(kit, *children) == [90_000]


async def test_what_a_schedule_makes_gets_it_too(ade: Ade, kit: TestKit) -> None:
    @ade.cron("*/5 * * * *")
    async def report() -> None: ...

    await set_value(kit.stores, LIMIT, 90, actor="ada")
    await kit.drain()
    await kit.advance(600)

    [task] = (await kit.stores.tasks.find(TaskQuery(name="report"))).tasks
    assert task.timeout_ms == 90_000


@pytest.mark.parametrize("place", ["memory", "sqlite", "valkey"])
def test_threads_give_it_too(tmp_path: Path, place: str) -> None:
    redis = RedisSettings(allow_volatile=True)
    app = Ade(store_url(place, tmp_path), settings=Settings(store=StoreSettings(ballast_mb=0), redis=redis))

    @app.task
    async def plain() -> None: ...

    opened = app.portal.run(app.open())
    app.portal.run(set_value(opened.stores, LIMIT, 90, actor="ada"))
    handles = [plain.enqueue().wait() for _ in range(3)]  # the first one learns of it

    assert [handle.get().wait().timeout_ms for handle in handles] == [90_000] * 3
    app.close().wait()
