"""What is done to one task after it was made."""

from functools import partial
from typing import Any

from msgspec import Raw, structs

from ade.core.errors import IllegalTransition, InvalidTask
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.web.forms.tasks import Cancel, EditTask, Nothing, Retry
from ade.operations.kit import Asked, Office
from ade.operations.task_access import is_meant, owned
from ade.queue import tasks as use_cases
from ade.queue.names import arguments_by_name


async def cancel_task(office: Office, asked: Asked, task_id: str, body: Cancel) -> Task:
    await owned(office, asked, task_id)
    check = partial(is_meant, asked)
    return await use_cases.cancel(office.stores, task_id, body.reason, actor=asked.actor, check=check)


async def retry_task(office: Office, asked: Asked, task_id: str, body: Retry) -> Task:
    """A failed task, discarded or not, runs again as a new generation with fresh attempts."""
    task = await owned(office, asked, task_id)
    return await replayed(office, asked, task, body.args)


async def replayed(office: Office, asked: Asked, task: Task, args: dict[str, Any] | None) -> Task:
    """Nothing of corrected arguments is kept for a task that cannot be replayed."""
    if task.status is not Status.FAILED:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a failed one can be run again")
    return await use_cases.replay(
        office.stores,
        office.payloads,
        task.id,
        args=None if args is None else await _checked(office, task, args),
        actor=asked.actor,
        check=partial(is_meant, asked),
    )


async def edit_task(office: Office, asked: Asked, task_id: str, body: EditTask) -> Task:
    """A draft. Whoever edits a task cannot approve it."""
    task = await owned(office, asked, task_id)
    if task.status is not Status.DRAFT:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a draft can be edited")
    said = {name: value for name, value in structs.asdict(body).items() if value is not None}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    if body.args is not None:
        fields["args"] = await _checked(office, task, body.args)
    if not fields:
        raise InvalidTask("say what shall be different: args, description, priority, tags or resources")
    return await use_cases.edit(
        office.stores, office.payloads, task_id, actor=_who(asked), check=partial(is_meant, asked), **fields
    )


async def submit_task(office: Office, asked: Asked, task_id: str, body: Nothing) -> Task:
    """It is frozen and assessed; where it is previewed first, the answer is that it is submitted."""
    from ade.governance.approvals.submitting import submit

    await owned(office, asked, task_id)
    return await submit(office.stores, office.payloads, task_id, actor=_who(asked))


async def apply_task(office: Office, asked: Asked, task_id: str, body: Nothing) -> Task:
    """An approved task that waits for a hand joins its queue, if its approval is still good."""
    from ade.governance.approvals.voting import start

    await owned(office, asked, task_id)
    return await start(office.stores, task_id, actor=_who(asked), check=partial(is_meant, asked))


async def roll_back_task(office: Office, asked: Asked, task_id: str, body: Nothing) -> Task:
    """The task that undoes it: the same one, however often it is asked for."""
    from ade.governance.approvals.rolling_back import roll_back

    await owned(office, asked, task_id)
    return await roll_back(office.stores, office.payloads, task_id, actor=_who(asked))


async def _checked(office: Office, task: Task, args: dict[str, Any]) -> Raw:
    _, raw = await arguments_by_name(office.stores, task.name, args, allow_unknown=True)
    return raw


def _who(asked: Asked) -> str:
    """Who has a hand in it, as an account: that counts when people vote on it."""
    return asked.author or asked.actor
