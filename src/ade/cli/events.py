"""`ade events`: the log of everything that happened, in order."""

import asyncio

import click

from ade.cli.ids import find_id
from ade.cli.parsing import PLACE
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local
from ade.cli.views import event_view
from ade.core.events import Event
from ade.ports import Stores

_PAGE = 500
_FOLLOW_S = 0.3  # how often a follower looks; events are not announced
_SHOWN_AT_FIRST = 20


@group("events")
def events() -> None:
    """Read the event log: what happened, in the order of its seq."""


@events.command("tail")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--task", "task_id", metavar="ID", help="Only of this task, from its beginning.")
@click.option("--after", type=PLACE, metavar="SEQ", help="Begin behind this seq; 0 is the beginning.")
@click.option("--type", "types", multiple=True, help="Only of this type, such as task.failed; may be repeated.")
@pass_session
def tail(session: Session, follow: bool, task_id: str | None, after: int | None, types: tuple[str, ...]) -> None:
    """Print the last events, or those behind a seq."""
    session.run(_tail(session, follow, task_id, after, frozenset(types)))


async def _tail(session: Session, follow: bool, text: str | None, after: int | None, types: frozenset[str]) -> None:
    async with session.stores() as stores:
        task_id = None if text is None else await find_id(stores, text)
        last = await _start(stores, after, whole=task_id is not None)
        while True:
            while page := await stores.events.read(last, _PAGE, task_id=task_id):
                for event in page:
                    if not types or event.type in types:
                        _print(session, event)
                last = page[-1].seq
            if not follow:
                return
            await asyncio.sleep(_FOLLOW_S)


async def _start(stores: Stores, after: int | None, *, whole: bool) -> int:
    if after is not None:
        return after
    newest = [] if whole else await stores.events.newest(_SHOWN_AT_FIRST)
    return newest[0].seq - 1 if newest else 0


def _print(session: Session, event: Event) -> None:
    if session.out.as_json:
        session.out.record(event_view(event))
        return
    told = " ".join(f"{name}={value}" for name, value in event.payload.items() if value and name != "run_id")
    by = f" by {event.actor}" if event.actor else ""
    session.out.line(f"{event.seq:>8}  {local(event.at)}  {event.type:<21}  {event.task_id or '-':<36}  {told}{by}")
