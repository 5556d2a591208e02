"""Series for charts: what was counted, on whole steps."""

import pytest

from ade.errors import InvalidFilter
from ade.events.metrics import MOST_POINTS, series
from ade.events.metrics_collector import MetricsCollector
from ade.events.rollups import HOUR_MS, hour_of
from ade.settings.sections import FigureSettings
from tests.conformance.scene import Scene
from tests.conformance.test_metrics import count


async def test_minutes_in_a_row_with_percentiles(scene: Scene) -> None:
    start = scene.clock.now()
    for waits_s, name in ((0.05, "send"), (2, "send"), (4, "build")):
        await scene.add(name)
        scene.clock.advance(waits_s)
        await scene.run()
        scene.clock.advance(60)
    await count(scene.stores)

    found = await series(scene.stores, since=start, until=scene.clock.now(), step_s=60)
    assert [point.completed for point in found.points if point.enqueued] == [1, 1, 1]
    assert found.points[0].at == found.since == start - start % 60_000
    waits = [point.wait_p50_ms for point in found.points if point.wait_p50_ms is not None]
    assert [25 <= waits[0] <= 50, 1_000 <= waits[1] <= 2_500, 2_500 <= waits[2] <= 5_000] == [True] * 3
    assert found.points[-1].run_p95_ms is None or found.points[-1].completed

    only = await series(scene.stores, since=start, until=scene.clock.now(), step_s=300, name="build", queue="default")
    assert sum(point.enqueued for point in only.points) == 1


async def test_hours_come_from_what_was_made_and_what_was_not_yet(scene: Scene) -> None:
    keeper = MetricsCollector(scene.stores, FigureSettings(minutes_kept_s=7_200))
    start = hour_of(scene.clock.now()) + HOUR_MS
    scene.clock.advance((start - scene.clock.now()) / 1000)
    for many in (1, 2, 3, 4):
        await scene.add_many(many)
        await count(scene.stores, keeper)
        scene.clock.advance(200)
        await keeper.keep()  # makes the hour before this one
        scene.clock.advance(3_400)
    await scene.add_many(5)
    await count(scene.stores, keeper)

    found = await series(scene.stores, since=start, until=scene.clock.now() + 1, step_s=3_600)
    assert [point.enqueued for point in found.points] == [1, 2, 3, 4, 5]
    halves = await series(scene.stores, since=start, until=scene.clock.now() + 1, step_s=7_200)
    assert sum(point.enqueued for point in halves.points) == 15


async def test_nothing_is_known_of_a_store_that_is_new(scene: Scene) -> None:
    now = scene.clock.now()
    found = await series(scene.stores, since=now - 600_000, until=now, step_s=60)
    assert {point.enqueued for point in found.points} == {0}


@pytest.mark.parametrize(
    ("since", "until", "step_s", "what"),
    [
        (0, 60_000, 30, "whole number of minutes"),
        (0, 60_000, 0, "whole number of minutes"),
        (0, 60_000, -60, "whole number of minutes"),
        (60_000, 60_000, 60, "must be before"),
        (-1, 60_000, 60, "must be before"),
        (0, (MOST_POINTS + 1) * 60_000, 60, "longer steps"),
        (0, 4 * 86_400_000, 600, "whole number of hours"),
    ],
)
async def test_steps_that_nobody_can_give(scene: Scene, since: int, until: int, step_s: int, what: str) -> None:
    with pytest.raises(InvalidFilter, match=what):
        await series(scene.stores, since=since, until=until, step_s=step_s)
