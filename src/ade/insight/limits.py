"""Limits of a task's name that keep it waiting, and who has reached them."""

from collections.abc import AsyncIterator

from ade.core.lifecycle import Status
from ade.core.rate import RateState, next_allowed_ms
from ade.core.records import Definition, Task
from ade.insight.reasons import Reason, listed, moment, span
from ade.ports import Stores, TaskQuery

_MOST_SHOWN = 50


async def limits_reached(stores: Stores, task: Task, definition: Definition | None) -> AsyncIterator[Reason]:
    if definition is None:
        return
    for reason in (
        await _by_name(stores, task, definition),
        await _by_key(stores, task, definition),
        await _by_rate(stores, task, definition),
    ):
        if reason is not None:
            yield reason


async def _by_name(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    limit = definition.concurrency
    if limit is None:
        return None
    tallies = await stores.queues.tallies()
    running = sum(t.count for t in tallies if t.name == task.name and t.status is Status.RUNNING)
    if running < limit:
        return None
    query = TaskQuery(statuses=frozenset({Status.RUNNING}), name=task.name, limit=_MOST_SHOWN)
    holders = [other.id for other in (await stores.tasks.find(query)).tasks]
    return Reason(
        code="concurrency_limit",
        sentence=f"{_at_most(limit)} named {task.name!r} may run at once; now {_who_runs(holders)}",
        facts={"limit": limit, "running": running, "by": holders},
    )


async def _by_key(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    limit = definition.concurrency_per_key
    if limit is None or task.concurrency_key is None:
        return None
    holders = await stores.queues.running_by_key(task.name, task.concurrency_key)
    if len(holders) < limit:
        return None
    return Reason(
        code="concurrency_key",
        sentence=(
            f"{_at_most(limit)} named {task.name!r} with the key {task.concurrency_key!r} may run at once;"
            f" now {_who_runs(holders)}"
        ),
        facts={"limit": limit, "key": task.concurrency_key, "by": holders},
    )


async def _by_rate(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    count, period_ms = definition.rate_count, definition.rate_period_ms
    if count is None or period_ms is None:
        return None
    steady = stores.clock.steady()
    state = RateState(await stores.queues.rate_full_at(task.name))
    allowed_in = next_allowed_ms(state, count=count, period_ms=period_ms, now_ms=steady) - steady
    if allowed_in <= 0:
        return None
    allowed_at = stores.clock.now() + allowed_in
    often = "once" if count == 1 else f"{count} times"
    return Reason(
        code="rate_limit",
        sentence=(
            f"tasks named {task.name!r} start at most {often} in {span(period_ms)};"
            f" the next start is possible at {moment(allowed_at)}"
        ),
        facts={"count": count, "period_ms": period_ms, "next_at": allowed_at},
    )


def _at_most(limit: int) -> str:
    return "only 1 task" if limit == 1 else f"at most {limit} tasks"


def _who_runs(ids: list[str]) -> str:
    return f"{listed(ids)} {'runs' if len(ids) == 1 else 'run'}"
