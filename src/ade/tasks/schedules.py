"""Cron schedules: create, declare, pause, resume, remove, and fire them.

A firing creates one task, no matter how many processes run the scheduler.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from ade.approvals.errors import AuthorRequired, Denied
from ade.approvals.model import Review
from ade.errors import AdeError, IdempotencyConflict, StaleWrite, UnknownSchedule
from ade.events import model as events_model
from ade.events.model import Event
from ade.logs import Log
from ade.settings.sections import TaskSettings
from ade.stores.ports import Stores
from ade.tasks.cron import fired, firing_key, plan
from ade.tasks.enqueue import TaskPlan, enqueue_plan, template_of
from ade.tasks.model import Definition, Schedule, Task
from ade.tasks.payloads import Payloads

Limit = Callable[[], Awaitable[int | None]]  # default time limit of a run in ms, for tasks without one
StoreTasks = Callable[[Stores, Payloads, Sequence[Task]], Awaitable[list[Task]]]  # stores new tasks; raises Denied
_ABOUT = ("cron", "timezone", "task_name", "queue", "args", "priority")
log = Log("ade.schedules")


async def find(stores: Stores, name: str) -> Schedule | None:
    """Return the schedule of this name, or None."""
    return next((schedule for schedule in await stores.schedules.list_schedules() if schedule.name == name), None)


async def get(stores: Stores, name: str) -> Schedule:
    """Return the schedule of this name. Raises UnknownSchedule."""
    schedule = await find(stores, name)
    if schedule is None:
        raise unknown(name)
    return schedule


async def put(stores: Stores, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """Create or replace a schedule; `actor` becomes its author. Raises InvalidSchedule, with nothing stored."""
    planned = _planned(stores, schedule, await find(stores, schedule.name), actor)
    await stores.schedules.put(planned, _change(stores, planned, actor))
    return planned


async def replace(stores: Stores, seen: Schedule, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """Like `put`, if the schedule is still as it was seen. Raises StaleWrite otherwise, with nothing stored."""
    planned = _planned(stores, schedule, seen, actor)
    if not await stores.schedules.put(planned, _change(stores, planned, actor), seen=seen):
        raise StaleWrite(f"schedule {seen.name[:200]!r} has fired or changed since; read it again and decide again")
    return planned


def _planned(stores: Stores, schedule: Schedule, before: Schedule | None, actor: str | None) -> Schedule:
    author = schedule.author if actor is None else actor
    earlier = () if before is None else (*before.writers, before.author)
    writers = tuple(dict.fromkeys(each for each in earlier if each and each != author))
    return plan(structs.replace(schedule, author=author, writers=writers), now=stores.clock.now())


def _change(stores: Stores, planned: Schedule, actor: str | None) -> Event:
    about: dict[str, object] = {field: getattr(planned, field) for field in ("cron", "timezone", "queue")}
    about["name"] = planned.task_name
    return _event(stores, events_model.SCHEDULE_CHANGED, planned.name, actor, about)


async def declare(stores: Stores, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """Store a schedule that an app defines. A pause and a missed firing survive a restart.

    A declaration that equals the stored schedule changes nothing, and keeps its author if there is one.
    """
    known = await find(stores, schedule.name)
    if known is None:
        return await put(stores, schedule, actor=actor)
    is_same = all(getattr(known, field) == getattr(schedule, field) for field in _ABOUT)
    if is_same and (known.author is not None or actor is None):
        planned = plan(known, now=stores.clock.now())
        if known.next_at <= planned.next_at:
            return known
        return await _store(stores, planned)  # it fired while the clock was ahead; that must not delay the next firing
    changed = structs.replace(schedule, paused=known.paused, last_at=known.last_at, last_task_id=known.last_task_id)
    return await put(stores, changed, actor=actor)


async def pause(stores: Stores, name: str, *, actor: str | None = None) -> Schedule:
    """Pause the schedule until it is resumed."""
    paused = structs.replace(await get(stores, name), paused=True)
    return await _store(stores, paused, _event(stores, events_model.SCHEDULE_PAUSED, name, actor))


async def resume(stores: Stores, name: str, *, actor: str | None = None) -> Schedule:
    """Resume with the next firing; firings missed during the pause are skipped."""
    schedule = structs.replace(await get(stores, name), paused=False)
    planned = plan(schedule, now=stores.clock.now())
    return await _store(stores, planned, _event(stores, events_model.SCHEDULE_RESUMED, name, actor))


async def remove(stores: Stores, name: str, *, actor: str | None = None) -> None:
    """Delete the schedule. Raises UnknownSchedule."""
    if not await stores.schedules.remove(name, _event(stores, events_model.SCHEDULE_REMOVED, name, actor)):
        raise unknown(name)


async def no_limit() -> None:
    """Return no default time limit."""


async def fire_due(
    stores: Stores, payloads: Payloads, defaults: TaskSettings, limit: Limit = no_limit, keep: StoreTasks = enqueue_plan
) -> list[Task]:
    """Enqueue a task for every due schedule. Missed firings are coalesced into one; a failed firing stays due.

    `limit` and `keep` are called only if a schedule is due; a firing that `keep` denies is skipped. Safe to run in
    any process at any time: the idempotency key of a firing allows only one task.
    """
    due = await stores.schedules.list_schedules(due_by=stores.clock.now())
    if not due:
        return []
    limit_ms = await limit()
    definitions = {definition.name: definition for definition in await stores.workers.definitions()}
    tasks = []
    for schedule in due:
        definition = definitions.get(schedule.task_name, Definition(name=schedule.task_name))
        try:
            task = await _fire(stores, payloads, schedule, _template(definition, defaults, limit_ms), keep)
        except AdeError as error:  # such as a full queue: it stays due, and must not block the others
            log.error("schedule.failed", schedule=schedule.name, code=error.code, error=error.detail)
            continue
        if task is not None:
            tasks.append(task)
    return tasks


async def fire_now(
    stores: Stores,
    defaults: TaskSettings,
    name: str,
    keep: Callable[[Sequence[Task]], Awaitable[list[Task]]],
    *,
    actor: str | None = None,
) -> Task:
    """Enqueue the schedule's task now, without changing later firings. Raises UnknownSchedule and Denied.

    `keep` stores new tasks. Neither the writers of the schedule nor the actor can approve the task. If the schedule has
    no author, the actor is the author of the task.
    """
    schedule = await get(stores, name)
    definitions = {definition.name: definition for definition in await stores.workers.definitions()}
    definition = definitions.get(schedule.task_name, Definition(name=schedule.task_name))
    template = _from_schedule(template_of(definition, defaults), schedule, actor)
    [task] = await keep([TaskPlan(template=template).make(schedule.args, now=stores.clock.now())])
    return task


async def _fire(
    stores: Stores, payloads: Payloads, schedule: Schedule, template: Task, keep: StoreTasks
) -> Task | None:
    now = stores.clock.now()
    made = structs.replace(_from_schedule(template, schedule), idempotency_key=firing_key(schedule))
    try:
        [task] = await keep(stores, payloads, [TaskPlan(template=made).make(schedule.args, now=now)])
    except IdempotencyConflict:  # the clock was set back, and it fired at this time before it changed
        await stores.schedules.put(plan(schedule, now=now), seen=schedule)
        return None
    except (Denied, AuthorRequired) as refusal:  # an immediate retry would be denied again
        log.warning("schedule.denied", schedule=schedule.name, error=refusal.detail)
        await stores.schedules.put(plan(schedule, now=now), seen=schedule)
        return None
    moved = await stores.schedules.put(fired(schedule, task.id, now=now), seen=schedule)
    return task if moved else None


def _template(definition: Definition, defaults: TaskSettings, limit_ms: int | None) -> Task:
    template = template_of(definition, defaults)
    return structs.replace(template, timeout_ms=limit_ms) if template.timeout_ms is None else template


def _from_schedule(template: Task, schedule: Schedule, actor: str | None = None) -> Task:
    fired_by = (actor,) if actor is not None and schedule.author not in (None, actor) else ()
    others = tuple(dict.fromkeys((*schedule.writers, *fired_by)))
    return structs.replace(
        template,
        queue=schedule.queue,
        priority=schedule.priority,
        source="schedule",
        author_id=schedule.author or actor,
        description=f"schedule {schedule.name}",
        review=structs.replace(template.review or Review(), editors=others) if others else template.review,
    )


async def _store(stores: Stores, schedule: Schedule, event: Event | None = None) -> Schedule:
    stored = structs.replace(schedule, updated_at=stores.clock.now())
    await stores.schedules.put(stored, event)
    return stored


def _event(stores: Stores, kind: str, name: str, actor: str | None, about: dict[str, object] | None = None) -> Event:
    return Event(type=kind, at=stores.clock.now(), actor=actor, payload={"schedule": name, **(about or {})})


def unknown(name: str) -> UnknownSchedule:
    """Build the error for a schedule that does not exist."""
    return UnknownSchedule(f"no schedule is named {name[:200]!r}", advice=UnknownSchedule.usual_advice)
