"""Tasks that come again and again. A firing makes one task, however many processes look after the clock."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from ade.approvals.errors import Denied
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

Limit = Callable[[], Awaitable[int | None]]  # of a run in ms, for tasks that have none of their own
StoreTasks = Callable[[Stores, Payloads, Sequence[Task]], Awaitable[list[Task]]]  # stores new tasks, or raises Denied
_ABOUT = ("cron", "timezone", "task_name", "queue", "args", "priority")
log = Log("ade.schedules")


async def find(stores: Stores, name: str) -> Schedule | None:
    return next((schedule for schedule in await stores.schedules.list_schedules() if schedule.name == name), None)


async def get(stores: Stores, name: str) -> Schedule:
    """Raises UnknownSchedule."""
    schedule = await find(stores, name)
    if schedule is None:
        raise _unknown(name)
    return schedule


async def put(stores: Stores, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """Create or replace a schedule; the actor, if any, is its author. Raises InvalidSchedule, with nothing stored."""
    planned = _planned(stores, schedule, actor)
    await stores.schedules.put(planned, _change(stores, planned, actor))
    return planned


async def replace(stores: Stores, seen: Schedule, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """The same if it is still as it was seen. Raises StaleWrite otherwise, with nothing stored."""
    planned = _planned(stores, schedule, actor)
    if not await stores.schedules.put(planned, _change(stores, planned, actor), seen=seen):
        raise StaleWrite(f"schedule {seen.name[:200]!r} has fired or changed since; read it again and decide again")
    return planned


def _planned(stores: Stores, schedule: Schedule, actor: str | None) -> Schedule:
    written = schedule if actor is None else structs.replace(schedule, author=actor)
    return plan(written, now=stores.clock.now())


def _change(stores: Stores, planned: Schedule, actor: str | None) -> Event:
    about: dict[str, object] = {field: getattr(planned, field) for field in ("cron", "timezone", "queue")}
    about["name"] = planned.task_name
    return _event(stores, events_model.SCHEDULE_CHANGED, planned.name, actor, about)


async def declare(stores: Stores, schedule: Schedule, *, actor: str | None = None) -> Schedule:
    """Store a schedule that an app defines. A pause, and a firing missed meanwhile, outlive a restart.

    One that says what is stored already changes nothing, its author neither.
    """
    known = await find(stores, schedule.name)
    if known is None:
        return await put(stores, schedule, actor=actor)
    if all(getattr(known, field) == getattr(schedule, field) for field in _ABOUT):
        planned = plan(known, now=stores.clock.now())
        if known.next_at <= planned.next_at:
            return known
        return await _store(stores, planned)  # it fired while the clock was ahead; it must not wait until then
    changed = structs.replace(schedule, paused=known.paused, last_at=known.last_at, last_task_id=known.last_task_id)
    return await put(stores, changed, actor=actor)


async def pause(stores: Stores, name: str, *, actor: str | None = None) -> Schedule:
    """Let it fire no more until it is resumed."""
    paused = structs.replace(await get(stores, name), paused=True)
    return await _store(stores, paused, _event(stores, events_model.SCHEDULE_PAUSED, name, actor))


async def resume(stores: Stores, name: str, *, actor: str | None = None) -> Schedule:
    """Go on with the next firing to come; what was due during the pause is not made up for."""
    schedule = structs.replace(await get(stores, name), paused=False)
    planned = plan(schedule, now=stores.clock.now())
    return await _store(stores, planned, _event(stores, events_model.SCHEDULE_RESUMED, name, actor))


async def remove(stores: Stores, name: str, *, actor: str | None = None) -> None:
    if not await stores.schedules.remove(name, _event(stores, events_model.SCHEDULE_REMOVED, name, actor)):
        raise _unknown(name)


async def no_limit() -> None:
    """Tasks that have no limit of their own run for as long as they like."""


async def fire_due(
    stores: Stores, payloads: Payloads, defaults: TaskSettings, limit: Limit = no_limit, keep: StoreTasks = enqueue_plan
) -> list[Task]:
    """Enqueue a task for every schedule that is due. Missed firings are made up for by one; what fails stays due.

    `limit` and `keep` are asked only when something is due; a firing that `keep` denies is left out for good. Safe to
    run anywhere at any time: a firing's idempotency key makes one task of however many attempts.
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
        except AdeError as error:  # a full queue, say: it stays due, and must not hold up those behind it
            log.error("schedule.failed", schedule=schedule.name, code=error.code, error=error.detail)
            continue
        if task is not None:
            tasks.append(task)
    return tasks


async def fire_now(
    stores: Stores,
    payloads: Payloads,
    defaults: TaskSettings,
    name: str,
    limit: Limit = no_limit,
    keep: StoreTasks = enqueue_plan,
    *,
    actor: str | None = None,
) -> Task:
    """Enqueue its task once more by hand; the firings to come stay as they are. Raises UnknownSchedule, Denied.

    The task of a schedule without an author is the actor's.
    """
    schedule = await get(stores, name)
    definitions = {definition.name: definition for definition in await stores.workers.definitions()}
    definition = definitions.get(schedule.task_name, Definition(name=schedule.task_name))
    template = _from_schedule(_template(definition, defaults, await limit()), schedule, actor)
    [task] = await keep(stores, payloads, [TaskPlan(template=template).make(schedule.args, now=stores.clock.now())])
    return task


async def _fire(
    stores: Stores, payloads: Payloads, schedule: Schedule, template: Task, keep: StoreTasks
) -> Task | None:
    now = stores.clock.now()
    made = structs.replace(_from_schedule(template, schedule), idempotency_key=firing_key(schedule))
    try:
        [task] = await keep(stores, payloads, [TaskPlan(template=made).make(schedule.args, now=now)])
    except IdempotencyConflict:  # a clock was put back: this moment had its firing, before the schedule was changed
        await stores.schedules.put(plan(schedule, now=now), seen=schedule)
        return None
    except Denied as refusal:  # asking again at once would be denied again
        log.warning("schedule.denied", schedule=schedule.name, error=refusal.detail)
        await stores.schedules.put(plan(schedule, now=now), seen=schedule)
        return None
    moved = await stores.schedules.put(fired(schedule, task.id, now=now), seen=schedule)
    return task if moved else None


def _template(definition: Definition, defaults: TaskSettings, limit_ms: int | None) -> Task:
    template = template_of(definition, defaults)
    return structs.replace(template, timeout_ms=limit_ms) if template.timeout_ms is None else template


def _from_schedule(template: Task, schedule: Schedule, actor: str | None = None) -> Task:
    return structs.replace(
        template,
        queue=schedule.queue,
        priority=schedule.priority,
        source="schedule",
        author_id=schedule.author or actor,
        description=f"schedule {schedule.name}",
    )


async def _store(stores: Stores, schedule: Schedule, event: Event | None = None) -> Schedule:
    stored = structs.replace(schedule, updated_at=stores.clock.now())
    await stores.schedules.put(stored, event)
    return stored


def _event(stores: Stores, kind: str, name: str, actor: str | None, about: dict[str, object] | None = None) -> Event:
    return Event(type=kind, at=stores.clock.now(), actor=actor, payload={"schedule": name, **(about or {})})


def _unknown(name: str) -> UnknownSchedule:
    return UnknownSchedule(f"no schedule is named {name[:200]!r}", advice=UnknownSchedule.usual_advice)
