"""Figures over time: every event is counted once, in its minute, under its queue and name."""

import pytest

from ade.events.metrics_collector import (
    FAR_BEHIND,
    HOURS,
    MINUTES,
    READER,
    MetricsCollector,
    load,
    load_totals,
    skip_to_end,
)
from ade.events.rollups import HOUR_MS, MINUTE_MS, OTHER, Rollup, TaskCounters, hour_of, minute_of
from ade.settings.sections import FigureSettings
from tests.conformance.scene import Scene
from tests.domain import Stores

GROUP = ("default", "send")


def keeper(stores: Stores, *, page: int = 2_000, pages: int = 1, **options: float) -> MetricsCollector:
    return MetricsCollector(stores, FigureSettings(**options), page=page, pages=pages)  # type: ignore[arg-type]  # any option


async def count(stores: Stores, by: MetricsCollector | None = None) -> None:
    """All there is. The newest events of a cluster may take another look."""
    by = by or keeper(stores)
    [newest] = await stores.events.newest(1)
    while (await load_totals(stores)).totals.seq < newest.seq:
        await by.keep()


async def kept(stores: Stores, kind: str, moment: int) -> Rollup:
    return (await load(stores, kind, [moment], 100)).get(moment, Rollup(100))


async def minute(stores: Stores, moment: int) -> TaskCounters:
    return (await kept(stores, MINUTES, minute_of(moment))).total()


async def ever(stores: Stores) -> TaskCounters:
    return Rollup(100, (await load_totals(stores)).totals.entries).total()


async def test_a_life_is_counted_with_its_waits_and_runs(scene: Scene) -> None:
    await scene.add()
    scene.clock.advance(0.2)
    [running] = await scene.claim()
    scene.clock.advance(3)
    await scene.fail(running)
    counting = keeper(scene.stores)
    await count(scene.stores, counting)
    scene.clock.advance(10)
    [again] = await scene.claim()
    scene.clock.advance(0.4)
    await scene.succeed(again)
    await count(scene.stores, counting)

    figures = await ever(scene.stores)
    assert (figures.enqueued, figures.retried, figures.completed, figures.failed) == (1, 1, 1, 0)
    assert (figures.wait.count, figures.wait.total) == (2, 200 + 9_000)  # the second was due a second after the failure
    assert (figures.run.count, figures.run.total) == (2, 3_000 + 400)
    assert figures.attempts.total == 2


async def test_what_ends_otherwise_is_counted_too(scene: Scene) -> None:
    for _ in range(2):
        await scene.add()
    tasks = await scene.claim(2)
    await scene.fail_for_good(tasks[0])
    await scene.cancel(tasks[1].id)
    await count(scene.stores)

    figures = await ever(scene.stores)
    assert (figures.enqueued, figures.failed, figures.cancelled, figures.run.count) == (2, 1, 1, 2)


async def test_a_delay_is_not_a_wait_and_neither_is_a_dependency(scene: Scene) -> None:
    first = await scene.add("build", run_after=scene.clock.now() + 60_000)
    await scene.add("send", depends_on=(first.id,))
    scene.clock.advance(61)
    await scene.run()
    scene.clock.advance(5)
    await scene.run()
    await count(scene.stores)

    totals = Rollup(100, (await load_totals(scene.stores)).totals.entries)
    assert totals.of(("default", "build")).wait.total == 1_000
    assert totals.of(GROUP).wait.count == 0, "nobody can tell since when it was only waiting for a worker"


async def test_one_that_takes_over_knows_the_tasks_from_their_records(scene: Scene) -> None:
    await scene.add("build")
    scene.clock.advance(2)
    [running] = await scene.claim()
    await count(scene.stores)
    scene.clock.advance(1)
    await scene.succeed(running)
    await count(scene.stores)

    totals = Rollup(100, (await load_totals(scene.stores)).totals.entries)
    figures = totals.of(("default", "build"))
    assert (figures.completed, figures.wait.total, figures.run.total) == (1, 2_000, 1_000)


async def test_two_at_once_count_nothing_twice(scene: Scene) -> None:
    one, other = keeper(scene.stores), keeper(scene.stores)
    for _ in range(5):
        await scene.add()
        await one.keep()
        await scene.run()
        await other.keep()
        await one.keep()
    await count(scene.stores, one)

    figures = await ever(scene.stores)
    assert (figures.enqueued, figures.completed) == (5, 5)


@pytest.mark.parametrize("pages", [1, 2, 10])
async def test_a_long_log_is_counted_page_by_page(scene: Scene, pages: int) -> None:
    await scene.add_many(10)
    await scene.run(10)
    await count(scene.stores, keeper(scene.stores, page=7, pages=pages))
    assert (await ever(scene.stores)).completed == 10


async def test_one_that_is_far_behind_does_not_rest(scene: Scene) -> None:
    await scene.add_many(FAR_BEHIND + 5)
    while len(await scene.stores.events.read(0, 100)) < FAR_BEHIND + 5:
        pass  # the newest events of a cluster may take another look
    counting = keeper(scene.stores, page=1)
    assert [await counting.keep() for _ in range(FAR_BEHIND + 3)] == [0] * (FAR_BEHIND - 1) + [1] * 4


async def test_nothing_is_written_where_nothing_happened(scene: Scene) -> None:
    await scene.add()
    counting = keeper(scene.stores)
    await count(scene.stores, counting)
    before = (await load_totals(scene.stores)).version
    scene.clock.advance(1)
    assert await counting.keep() == 0
    assert (await load_totals(scene.stores)).version == before


async def test_there_are_so_many_groups_and_the_rest_is_other(scene: Scene) -> None:
    for queue in ("a", "b", "c", "d"):
        await scene.add(queue=queue)
    await count(scene.stores, keeper(scene.stores, groups=2))

    found = await kept(scene.stores, MINUTES, minute_of(scene.clock.now()))
    assert {group: figures.enqueued for group, figures in found.groups.items()} == {
        ("a", "send"): 1,
        ("b", "send"): 1,
        OTHER: 2,
    }


async def test_hours_are_made_from_minutes_and_outlive_them(scene: Scene) -> None:
    counting = keeper(scene.stores, minutes_kept_s=7_200)
    start = scene.clock.now()
    scene.clock.advance((hour_of(start) + HOUR_MS - start) / 1000)  # the beginning of an hour
    hour = scene.clock.now()
    for _ in range(3):
        await scene.add()
        await count(scene.stores, counting)
        scene.clock.advance(60)
    assert (await kept(scene.stores, HOURS, hour)).total().enqueued == 0

    scene.clock.advance(3_600)
    await counting.keep()
    assert (await kept(scene.stores, HOURS, hour)).total().enqueued == 3
    version = (await load_totals(scene.stores)).version
    scene.clock.advance(3_600)
    await counting.keep()
    assert (await load_totals(scene.stores)).version == version, "an hour in which nothing happened is not written"
    assert (await minute(scene.stores, hour)).enqueued == 0, "it has expired"
    assert (await kept(scene.stores, HOURS, hour)).total().enqueued == 3


async def test_what_comes_late_is_added_to_the_hour(scene: Scene) -> None:
    hour = hour_of(scene.clock.now())
    counting = keeper(scene.stores)
    await scene.add()
    await count(scene.stores, counting)
    await scene.add("build")
    scene.clock.advance(2 * 3_600)
    await scene.add("report")
    await count(scene.stores)  # makes the hour, and counts what nobody had looked at
    found = await kept(scene.stores, HOURS, hour)
    assert {name for _, name in found.groups} == {"send", "build"}


async def test_old_events_are_not_kept_by_the_minute(scene: Scene) -> None:
    await scene.add()
    then = scene.clock.now()
    scene.clock.advance(48 * 3_600)
    await count(scene.stores)

    assert (await minute(scene.stores, then)).enqueued == 0
    assert (await kept(scene.stores, HOURS, hour_of(then))).total().enqueued == 1
    assert (await ever(scene.stores)).enqueued == 1


async def test_what_is_not_counted_yet_is_not_trimmed(scene: Scene) -> None:
    counting = keeper(scene.stores)
    await scene.add()
    await count(scene.stores, counting)
    reached = (await scene.stores.events.cursors()).get(READER, 0)
    assert 0 < reached == await scene.stores.events.last_seq()
    await scene.add()
    await count(scene.stores, counting)
    assert (await scene.stores.events.cursors()).get(READER, 0) == reached, "it is moved only now and then"
    scene.clock.advance(31)
    await counting.keep()
    assert (await scene.stores.events.cursors()).get(READER, 0) == await scene.stores.events.last_seq()


async def test_where_nobody_counts_any_more_nothing_is_kept_back(scene: Scene) -> None:
    await skip_to_end(scene.stores)
    assert (await scene.stores.events.cursors()).get(READER, 0) == 0
    await scene.add()
    await count(scene.stores)
    await scene.add()
    await skip_to_end(scene.stores)
    assert (await scene.stores.events.cursors()).get(READER, 0) == await scene.stores.events.last_seq()


async def test_minutes_keep_apart(scene: Scene) -> None:
    counting = keeper(scene.stores)
    first = scene.clock.now()
    await scene.add()
    scene.clock.advance(MINUTE_MS / 1000)
    await scene.add_many(2)
    await count(scene.stores, counting)
    assert [(await minute(scene.stores, first + n * MINUTE_MS)).enqueued for n in range(3)] == [1, 2, 0]
