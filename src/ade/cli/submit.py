"""`ade submit`: a draft is put before people."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from ade.cli.changes import changes_of
from ade.cli.identity import as_option
from ade.cli.ids import find_id
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view
from ade.core.errors import WaitTimeout
from ade.core.lifecycle import Status
from ade.core.records import Task

if TYPE_CHECKING:
    from ade.client.client import Client


@command("submit")
@click.argument("task_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until it is previewed and assessed.")
@click.option("--timeout", type=DURATION, help="How long to wait at most; otherwise for ever.")
@as_option
@pass_session
def submit(session: Session, task_id: str, wait: bool, timeout: float | None) -> None:
    """Freeze a draft and have it assessed: previewed by a worker if its task can be, scored, and put before people."""
    session.run(_submit(session, task_id, wait or timeout is not None, timeout))


async def _submit(session: Session, text: str, wait: bool, timeout: float | None) -> None:
    async with session.api() as api:
        task = await api.submit_task(await find_id(api, text))
        if wait:
            task = await _assessed(api, task, timeout)
    if session.out.as_json:
        session.out.document(task_view(task))
        return
    session.out.line(f"{task.id}  {task.status}")
    errors = task.review.errors if task.review is not None else ()
    for error in errors if task.status is Status.DRAFT else ():
        session.out.note(f"It went back to its author: {error}")


async def _assessed(api: "Client", task: Task, timeout: float | None) -> Task:
    """The task once it is submitted no more. Raises WaitTimeout."""
    try:
        async with asyncio.timeout(timeout), aclosing(changes_of(api, task.id)) as changes:
            async for changed in changes:
                if changed.status is not Status.SUBMITTED:
                    return changed
    except TimeoutError:
        raise WaitTimeout(f"it was not assessed in {timeout:g} s; `ade explain {task.id}` tells why") from None
    raise AssertionError("events do not end by themselves")
