"""`ade schedules`: list, add, pause, resume, remove, and fire cron schedules."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ade.cli.command import group
from ade.cli.identity import as_option
from ade.cli.output import Cell, Row, all_of
from ade.cli.parameters import JSON_OBJECT, PRIORITY, distance, local_with_distance, now_ms
from ade.errors import UnknownName
from ade.tasks import schedules as tasks_schedules
from ade.tasks.commands.options import own_app, unknown_name
from ade.tasks.cron import next_fire_ms
from ade.tasks.model import Schedule

if TYPE_CHECKING:  # keeps listing fast
    from ade.cli.session import Session
    from ade.tasks.handlers import Handler


@group("schedules", bare="list")
def schedules() -> None:
    """Tasks that are enqueued on a cron schedule. `ade schedules` alone lists them."""


@schedules.command("list", reads=True)
async def list_schedules(session: "Session") -> None:
    """List all schedules with their last and next firing."""
    async with session.api() as api:
        known = await all_of(api, api.list_schedules)
    now = now_ms()
    if session.out.as_json:
        session.out.items(known)
        return
    rows: list[Row] = [
        (
            schedule.name,
            schedule.cron,
            schedule.timezone,
            schedule.task_name,
            Cell("paused", "bold yellow") if schedule.paused else distance(schedule.next_at, now=now),
            "never" if schedule.last_at is None else distance(schedule.last_at, now=now),
            schedule.last_task_id or "",
        )
        for schedule in known
    ]
    session.out.table(
        ("schedule", "cron", "time zone", "task", "next", "last", "last task"), rows, ("time zone", "last")
    )
    if not known:
        session.out.note("No schedules. `@ade.cron` in an app or `ade schedules add` creates one.")


@schedules.command("add")
@click.argument("name")
@click.argument("cron")
@click.argument("task_name", metavar="TASK")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of the cron line, such as Europe/Berlin.")
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Arguments of every task it enqueues.")
@click.option("--queue", help="Another queue than the task's own.")
@click.option("--priority", type=PRIORITY, help="Another priority than the task's own.")
@click.option("--allow-unknown", is_flag=True, help="Accept a task name that no app and no worker has defined.")
@as_option
async def add(
    session: "Session",
    /,
    name: str,
    cron: str,
    task_name: str,
    tz: str,
    arguments: dict[str, Any] | None,
    **given: Any,
) -> None:
    """Enqueue TASK whenever the CRON line ("minute hour day month weekday") says, under the NAME of a schedule.

    An existing schedule with this name is replaced. You are the author of its tasks, and cannot approve them.
    """
    next_fire_ms(cron, tz, now_ms())  # the new input, so checked first
    app = own_app(session)
    handler = None if app is None else app.registry.by_name.get(task_name)
    if handler is not None:
        schedule = Schedule(name=name, cron=cron, task_name=task_name, timezone=tz)
        _print_schedule(session, await _put_of_app(session, schedule, handler, arguments or {}, **given))
        return
    async with session.api(must_exist=False) as api:
        try:
            stored = await api.put_schedule(name, cron=cron, task_name=task_name, timezone=tz, args=arguments, **given)
        except UnknownName:
            raise await unknown_name(session, api, task_name) from None
    _print_schedule(session, stored.record)


async def _put_of_app(
    session: "Session",
    schedule: Schedule,
    handler: "Handler",
    arguments: dict[str, Any],
    queue: str | None,
    priority: int | None,
    allow_unknown: bool,
) -> Schedule:
    """Store it with the definition of the local app, which is newer than what workers registered."""
    definition = handler.definition
    changed = structs.replace(
        schedule,
        args=handler.signature.encode(arguments),
        queue=definition.queue if queue is None else queue,
        priority=definition.priority if priority is None else priority,
    )
    author = session.account
    async with session.stores(must_exist=False) as stores:
        return await tasks_schedules.put(stores, changed, actor=author)


@schedules.command("pause")
@click.argument("name")
@as_option
async def pause(session: "Session", name: str) -> None:
    """Pause a schedule until it is resumed."""
    async with session.api() as api:
        _print_schedule(session, await api.pause_schedule(name))


@schedules.command("resume")
@click.argument("name")
@as_option
async def resume(session: "Session", name: str) -> None:
    """Resume a schedule with its next firing; firings missed during the pause are skipped."""
    async with session.api() as api:
        _print_schedule(session, await api.resume_schedule(name))


@schedules.command("remove")
@click.argument("name")
@as_option
async def remove(session: "Session", name: str) -> None:
    """Remove a schedule. A worker whose app declares it creates it again at its next start."""
    async with session.api() as api:
        await api.remove_schedule(name)
    if session.out.as_json:
        session.out.document({"removed": name})
    else:
        session.out.line(f"{name}: removed")


@schedules.command("fire")
@click.argument("name")
@as_option
async def fire(session: "Session", name: str) -> None:
    """Enqueue the task of a schedule now; later firings are not affected."""
    async with session.api() as api:
        task = await api.fire_schedule(name)
    if session.out.as_json:
        session.out.document(task)
    else:
        session.out.line(task.id)


def _print_schedule(session: "Session", schedule: Schedule) -> None:
    if session.out.as_json:
        session.out.document(schedule)
    elif schedule.paused:
        session.out.line(f"{schedule.name}: paused")
    else:
        fires = local_with_distance(schedule.next_at, now=now_ms())
        session.out.line(f"{schedule.name}: enqueues {schedule.task_name} next at {fires}")
