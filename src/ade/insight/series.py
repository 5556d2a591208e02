"""What happened to tasks over time, step by step, for charts."""

from msgspec import Struct

from ade.core.errors import InvalidFilter
from ade.core.figures.histograms import MS_BOUNDS, quantile
from ade.core.figures.rollups import COUNTS, HOUR_MS, MINUTE_MS, Figures, Rollup
from ade.insight.figures.shelves import HOURS, MINUTES, load, load_totals
from ade.ports import Stores

MOST_POINTS = 1_500
_MOST_MINUTES = 3 * 24 * 60  # documents read for one series
_LAST_MS = 253_402_300_800_000  # the end of the year 9999: no later moment can be written
_ALL = 1_000  # groups: as many as are kept


class Point(Struct, frozen=True, kw_only=True):
    """One step, from `at` on. Percentiles are estimates, and None where there was nothing to measure."""

    at: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    cancelled: int
    rejected: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    run_p50_ms: float | None
    run_p95_ms: float | None


class Series(Struct, frozen=True, kw_only=True):
    """`since` and `until` are as asked, but on whole steps. What is too old to be known counts as nothing."""

    since: int
    until: int
    step_s: int
    points: list[Point]


async def series(
    stores: Stores, *, since: int, until: int, step_s: int, queue: str | None = None, name: str | None = None
) -> Series:
    """For one queue, one name or both, if asked. Raises InvalidFilter for steps that are not known, or too many."""
    step = step_s * 1000
    first, last = check(since, until, step_s)
    found = await _rollups(stores, first, last, step)
    steps: dict[int, Figures] = {}
    for moment, rollup in found.items():
        at = moment - (moment - first) % step
        steps.setdefault(at, Figures()).add(rollup.total(queue=queue, name=name))
    points = [_point(at, steps.get(at) or Figures()) for at in range(first, last, step)]
    return Series(since=first, until=last, step_s=step_s, points=points)


def check(since: int, until: int, step_s: int) -> tuple[int, int]:
    """The time on whole steps. Raises InvalidFilter."""
    step = step_s * 1000
    if step <= 0 or step % MINUTE_MS:
        raise InvalidFilter("a step has whole minutes: 60 seconds or a multiple of them")
    if not 0 <= since < until:
        raise InvalidFilter("a series ends after it begins; give `since` and `until` in that order")
    first, last = since - since % step, until + -until % step
    if last >= _LAST_MS:
        raise InvalidFilter("a series ends before the year 9999 does, on a whole step; give an earlier `until`")
    if (last - first) // step > MOST_POINTS:
        raise InvalidFilter(f"a series has at most {MOST_POINTS} steps; take longer steps or a shorter time")
    if step % HOUR_MS and (last - first) // MINUTE_MS > _MOST_MINUTES:
        raise InvalidFilter("over more than 3 days a step has whole hours: 3600 seconds or a multiple of them")
    return first, last


async def _rollups(stores: Stores, first: int, last: int, step: int) -> dict[int, Rollup]:
    """Hours where these are enough and were made already, else minutes."""
    last = min(last, stores.clock.now() + HOUR_MS)  # nothing is known of later
    if step % HOUR_MS:
        return await load(stores, MINUTES, range(first, last, MINUTE_MS), _ALL)
    rolled = (await load_totals(stores)).totals.rolled
    newest = max(rolled, first)
    hours = await load(stores, HOURS, range(first, min(rolled, last), HOUR_MS), _ALL)
    return hours | await load(stores, MINUTES, range(newest, last, MINUTE_MS)[-_MOST_MINUTES:], _ALL)


def _point(at: int, figures: Figures) -> Point:
    wait, run = figures.wait, figures.run
    return Point(
        at=at,
        **{name: getattr(figures, name) for name in COUNTS},
        wait_p50_ms=_shown(quantile(MS_BOUNDS, wait, 0.5)),
        wait_p95_ms=_shown(quantile(MS_BOUNDS, wait, 0.95)),
        run_p50_ms=_shown(quantile(MS_BOUNDS, run, 0.5)),
        run_p95_ms=_shown(quantile(MS_BOUNDS, run, 0.95)),
    )


def _shown(estimate: float | None) -> float | None:
    """Finer than this it would pretend to be known."""
    return None if estimate is None else round(estimate, 1)
