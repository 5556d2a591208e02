"""`ade submit`: a draft is put before people."""

import asyncio

import click

from ade.cli.identity import acting, as_option
from ade.cli.ids import find_id
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view
from ade.core.errors import WaitTimeout
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.ports import DONE, Stores
from ade.queue.tasks import get

_LOOK_S = 0.25  # how often to look for what nobody announces


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
    from ade.governance.approvals.submitting import submit as submit_task

    actor = acting(session)
    async with session.stores() as stores:
        task = await submit_task(stores, session.payloads(stores), await find_id(stores, text), actor=actor)
        if wait:
            task = await _assessed(stores, task, timeout)
    if session.out.as_json:
        session.out.document(task_view(task))
        return
    session.out.line(f"{task.id}  {task.status}")
    errors = task.review.errors if task.review is not None else ()
    for error in errors if task.status is Status.DRAFT else ():
        session.out.note(f"It went back to its author: {error}")


async def _assessed(stores: Stores, task: Task, timeout: float | None) -> Task:
    """The task once it is submitted no more. Raises WaitTimeout."""
    try:
        async with asyncio.timeout(timeout):
            while task.status is Status.SUBMITTED:
                seen = stores.hints.generation(DONE)  # rung when the preview has ended
                task = await get(stores, task.id)
                if task.status is Status.SUBMITTED:
                    await stores.hints.wait(DONE, seen, _LOOK_S)
    except TimeoutError:
        raise WaitTimeout(f"it was not assessed in {timeout:g} s; `ade explain {task.id}` tells why") from None
    return task
