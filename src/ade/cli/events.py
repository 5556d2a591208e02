"""`ade events`: the log of everything that happened, in order."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

import click

from ade.cli.ids import find_id
from ade.cli.parsing import PLACE
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local
from ade.cli.views import event_view, told_payload
from ade.core.errors import UnknownTask
from ade.core.events import Event
from ade.core.feeds.filters import compile_filter, parse_filter

if TYPE_CHECKING:
    from ade.client.client import Client

_PAGE = 500
_SHOWN_AT_FIRST = 20


@group("events")
def events() -> None:
    """Read the event log: what happened, in the order of its seq."""


@events.command("tail")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--task", "task_id", metavar="ID", help="Only of this task, from its beginning.")
@click.option("--after", type=PLACE, metavar="SEQ", help="Begin behind this seq; 0 is the beginning.")
@click.option("--type", "types", multiple=True, help="Only this type, such as task.failed or task.*; may be repeated.")
@pass_session
def tail(session: Session, follow: bool, task_id: str | None, after: int | None, types: tuple[str, ...]) -> None:
    """Print the last events, or those behind a seq."""
    if follow:
        session.run(_follow(session, task_id, after, types))
    else:
        session.look(_tail(session, task_id, after, types))


async def _tail(session: Session, text: str | None, after: int | None, types: tuple[str, ...]) -> None:
    async with session.api() as api:
        task_id = None if text is None else await find_id(api, text)
        await _print_past(session, api, task_id, await _start(api, after, task_id), types)


async def _follow(session: Session, text: str | None, after: int | None, types: tuple[str, ...]) -> None:
    async with session.api() as api:
        task_id = None if text is None else await find_id(api, text)
        begin, newest = await _start(api, after, task_id), (await api.list_events(limit=1)).items
        last = await _print_past(session, api, task_id, begin, types)
        seen = max(last, newest[-1].seq if newest else 0)  # there is nothing more up to there
        tasks = () if task_id is None else (task_id,)
        async for item in api.follow_events(after=seen, types=types, tasks=tasks):
            if isinstance(item, Event):
                _print(session, item)
            else:
                session.out.note(f"Events behind {item.after} and up to {item.until} may be missing: they are gone.")


async def _start(api: "Client", after: int | None, task_id: str | None) -> int:
    if after is not None:
        return after
    newest = () if task_id is not None else (await api.list_events(limit=_SHOWN_AT_FIRST)).items
    return newest[0].seq - 1 if newest else 0


async def _print_past(session: Session, api: "Client", task_id: str | None, after: int, types: tuple[str, ...]) -> int:
    """What is there already; the seq of the last one."""
    last = after
    async for event in _past(api, task_id, after, types):
        _print(session, event)
        last = event.seq
    return last


async def _past(
    api: "Client", task_id: str | None, after: int, types: tuple[str, ...]
) -> "AsyncGenerator[Event, None]":
    if task_id is not None and await _is_kept(api, task_id):
        is_wanted = compile_filter(parse_filter(("type", each) for each in types))
        async for event in api.every(partial(api.list_task_events, task_id), after=after, limit=_PAGE):
            if is_wanted(event):
                yield event
        return
    tasks = () if task_id is None else (task_id,)
    async for event in api.every(api.list_events, type=types, task=tasks, after=after, limit=_PAGE):
        yield event


async def _is_kept(api: "Client", task_id: str) -> bool:
    """What happened to a task that was pruned is in the log for longer, and has to be searched for."""
    try:
        await api.get_task(task_id)
    except UnknownTask:
        return False
    return True


def _print(session: Session, event: Event) -> None:
    if session.out.as_json:
        session.out.record(event_view(event))
        return
    told = " ".join(f"{name}={value}" for name, value in told_payload(event).items() if name != "run_id")
    by = f" by {event.actor}" if event.actor else ""
    session.out.line(f"{event.seq:>8}  {local(event.at)}  {event.type:<21}  {event.task_id or '-':<36}  {told}{by}")
