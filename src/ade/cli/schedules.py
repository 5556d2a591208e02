"""`ade schedules`: tasks that come again and again."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec import Raw, structs

from ade.cli.identity import acting, as_option
from ade.cli.naming import unknown_name
from ade.cli.output import Cell, Row
from ade.cli.parsing import JSON_OBJECT
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance, local_with_distance
from ade.cli.views import schedule_view, task_view
from ade.core.errors import UnknownName
from ade.core.records import Definition, Schedule
from ade.core.schedule import next_fire_ms
from ade.ports import Stores
from ade.queue import schedules as use_cases
from ade.queue.names import arguments_by_name

if TYPE_CHECKING:  # listing does without it
    from ade.app.ade import Ade


@group("schedules", bare="list")
def schedules() -> None:
    """Tasks that come again and again by a cron line. `ade schedules` alone lists them."""


@schedules.command("list")
@pass_session
def list_schedules(session: Session) -> None:
    """List all schedules with their last and next firing."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.stores() as stores:
        known = await use_cases.list_all(stores)
        now = stores.clock.now()
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


async def _add(
    session: Session,
    schedule: Schedule,
    arguments: dict[str, Any] | None,
    queue: str | None,
    priority: int | None,
    allow_unknown: bool,
) -> None:
    author = acting(session)
    async with session.open_app() as app:
        stores = (await app.open()).stores
        next_fire_ms(schedule.cron, schedule.timezone, stores.clock.now())  # the line first: it is what is new here
        definition, args = await _definition(app, stores, schedule.task_name, arguments or {}, allow_unknown)
        changed = structs.replace(
            schedule,
            args=args,
            queue=definition.queue if queue is None else queue,
            priority=definition.priority if priority is None else priority,
        )
        stored = await use_cases.put(stores, changed, actor=author)
        _tell(session, stored, stores)


async def _definition(
    app: "Ade", stores: Stores, name: str, arguments: dict[str, Any], allow_unknown: bool
) -> tuple[Definition, Raw]:
    """What the app or some worker says about the name, and the arguments checked against it."""
    handler = app.registry.by_name.get(name)
    if handler is not None:
        return handler.definition, handler.signature.encode(arguments)
    try:
        return await arguments_by_name(stores, name, arguments, allow_unknown=allow_unknown)
    except UnknownName:
        raise await unknown_name(app, stores, name) from None


@schedules.command("pause")
@click.argument("name")
@as_option
@pass_session
def pause(session: Session, name: str) -> None:
    """Let it fire no more until it is resumed."""
    session.run(_pause(session, name))


async def _pause(session: Session, name: str) -> None:
    async with session.stores() as stores:
        _tell(session, await use_cases.pause(stores, name, actor=acting(session)), stores)


@schedules.command("resume")
@click.argument("name")
@as_option
@pass_session
def resume(session: Session, name: str) -> None:
    """Go on with the next firing to come; what was due during the pause is not made up for."""
    session.run(_resume(session, name))


async def _resume(session: Session, name: str) -> None:
    async with session.stores() as stores:
        _tell(session, await use_cases.resume(stores, name, actor=acting(session)), stores)


@schedules.command("remove")
@click.argument("name")
@as_option
@pass_session
def remove(session: Session, name: str) -> None:
    """Delete it. A worker whose app declares it makes it again at its next start."""
    session.run(_remove(session, name))


async def _remove(session: Session, name: str) -> None:
    async with session.stores() as stores:
        await use_cases.remove(stores, name, actor=acting(session))
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
    from ade.governance.firing import keep_guarded
    from ade.governance.runtime import default_timeout_ms

    actor = acting(session)
    async with session.open_app() as app:
        opened = await app.open()
        stores, payloads = opened.stores, opened.payloads
        limit = partial(default_timeout_ms, stores)
        task = await use_cases.fire_now(stores, payloads, app.defaults, name, limit, keep_guarded, actor=actor)
    if session.out.as_json:
        session.out.document(task_view(task))
    else:
        session.out.line(task.id)


def _tell(session: Session, schedule: Schedule, stores: Stores) -> None:
    if session.out.as_json:
        session.out.document(schedule_view(schedule))
    elif schedule.paused:
        session.out.line(f"{schedule.name}: paused")
    else:
        fires = local_with_distance(schedule.next_at, now=stores.clock.now())
        session.out.line(f"{schedule.name}: enqueues {schedule.task_name} next at {fires}")
