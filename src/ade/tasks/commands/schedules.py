"""`ade schedules`: tasks that come again and again."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ade.cli.command import group, pass_session
from ade.cli.identity import acting, as_option
from ade.cli.output import Cell, Row, all_of
from ade.cli.parameters import JSON_OBJECT, distance, local_with_distance, now_ms
from ade.cli.session import Session
from ade.errors import UnknownName
from ade.server.wire_cli import schedule_view, task_view
from ade.tasks import schedules as tasks_schedules
from ade.tasks.commands.options import own_app, unknown_name
from ade.tasks.cron import next_fire_ms
from ade.tasks.model import Schedule

if TYPE_CHECKING:  # listing does without it
    from ade.tasks.handlers import Handler


@group("schedules", bare="list")
def schedules() -> None:
    """Tasks that come again and again by a cron line. `ade schedules` alone lists them."""


@schedules.command("list")
@pass_session
def list_schedules(session: Session) -> None:
    """List all schedules with their last and next firing."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_schedules)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"schedules": [schedule_view(schedule) for schedule in known]})
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
        session.out.note("No schedules. `@ade.cron` in an app or `ade schedules add` makes one.")


@schedules.command("add")
@click.argument("name")
@click.argument("cron")
@click.argument("task_name", metavar="TASK")
@click.option("--tz", default="UTC", show_default=True, help="Time zone of the cron line, such as Europe/Berlin.")
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Arguments of every task it makes.")
@click.option("--queue", help="Another queue than the task's own.")
@click.option("--priority", type=int, help="Another priority than the task's own.")
@click.option("--allow-unknown", is_flag=True, help="Take a task name that no app and no worker has defined.")
@as_option
@pass_session
def add(session: Session, /, name: str, cron: str, task_name: str, tz: str, **given: Any) -> None:
    """Enqueue TASK whenever the CRON line ("minute hour day month weekday") says, under the NAME of a schedule.

    A schedule of this name that exists is replaced. You are the author of its tasks, and cannot approve them.
    """
    session.run(_add(session, Schedule(name=name, cron=cron, task_name=task_name, timezone=tz), **given))


async def _add(session: Session, schedule: Schedule, arguments: dict[str, Any] | None, **given: Any) -> None:
    next_fire_ms(schedule.cron, schedule.timezone, now_ms())  # the line first: it is what is new here
    app = own_app(session)
    handler = None if app is None else app.registry.by_name.get(schedule.task_name)
    if handler is not None:
        _tell(session, await _put_of_app(session, schedule, handler, arguments or {}, **given))
        return
    async with session.api(must_exist=False) as api:
        try:
            stored = await api.put_schedule(
                schedule.name,
                cron=schedule.cron,
                task_name=schedule.task_name,
                timezone=schedule.timezone,
                args=arguments,
                **given,
            )
        except UnknownName:
            raise await unknown_name(session, api, schedule.task_name) from None
    _tell(session, stored.record)


async def _put_of_app(
    session: Session,
    schedule: Schedule,
    handler: "Handler",
    arguments: dict[str, Any],
    queue: str | None,
    priority: int | None,
    allow_unknown: bool,
) -> Schedule:
    """An app knows its own tasks better than what a worker has told of them some time ago."""
    definition = handler.definition
    changed = structs.replace(
        schedule,
        args=handler.signature.encode(arguments),
        queue=definition.queue if queue is None else queue,
        priority=definition.priority if priority is None else priority,
    )
    author = acting(session)
    async with session.stores(must_exist=False) as stores:
        return await tasks_schedules.put(stores, changed, actor=author)


@schedules.command("pause")
@click.argument("name")
@as_option
@pass_session
def pause(session: Session, name: str) -> None:
    """Let it fire no more until it is resumed."""
    session.run(_pause(session, name))


async def _pause(session: Session, name: str) -> None:
    async with session.api() as api:
        _tell(session, await api.pause_schedule(name))


@schedules.command("resume")
@click.argument("name")
@as_option
@pass_session
def resume(session: Session, name: str) -> None:
    """Go on with the next firing to come; what was due during the pause is not made up for."""
    session.run(_resume(session, name))


async def _resume(session: Session, name: str) -> None:
    async with session.api() as api:
        _tell(session, await api.resume_schedule(name))


@schedules.command("remove")
@click.argument("name")
@as_option
@pass_session
def remove(session: Session, name: str) -> None:
    """Delete it. A worker whose app declares it makes it again at its next start."""
    session.run(_remove(session, name))


async def _remove(session: Session, name: str) -> None:
    async with session.api() as api:
        await api.remove_schedule(name)
    if session.out.as_json:
        session.out.document({"removed": name})
    else:
        session.out.line(f"{name}: removed")


@schedules.command("fire")
@click.argument("name")
@as_option
@pass_session
def fire(session: Session, name: str) -> None:
    """Enqueue its task now; the firings to come stay as they are."""
    session.run(_fire(session, name))


async def _fire(session: Session, name: str) -> None:
    async with session.api() as api:
        task = await api.fire_schedule(name)
    if session.out.as_json:
        session.out.document(task_view(task))
    else:
        session.out.line(task.id)


def _tell(session: Session, schedule: Schedule) -> None:
    if session.out.as_json:
        session.out.document(schedule_view(schedule))
    elif schedule.paused:
        session.out.line(f"{schedule.name}: paused")
    else:
        fires = local_with_distance(schedule.next_at, now=now_ms())
        session.out.line(f"{schedule.name}: enqueues {schedule.task_name} next at {fires}")
