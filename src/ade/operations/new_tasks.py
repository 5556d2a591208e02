"""What new tasks may name over HTTP: tasks and keys of others are not to be had."""

from collections.abc import Sequence

from ade.core.accounts.permissions import Permission
from ade.core.errors import InvalidTask
from ade.core.ids import is_task_id
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.web.forms.tasks import NewTask
from ade.core.web.http_workers import owner_of
from ade.core.web.idempotency import OF_OTHERS, own_task_key
from ade.operations.kit import Asked, Office
from ade.operations.owning import check_own
from ade.operations.remote_workers import account_of


async def parents_of(office: Office, asked: Asked, forms: Sequence[NewTask]) -> dict[str, Task]:
    """The tasks that the new ones name as their parents.

    Over HTTP they must exist and be the caller's: his own, or what a worker of his runs, unless he may operate. One
    that is not is answered as if it did not exist. Raises InvalidTask.
    """
    wanted = [each for each in dict.fromkeys(form.parent for form in forms) if each is not None]
    ids = [each for each in wanted if is_task_id(each)]
    found = {task.id: task for task in await office.stores.tasks.get(ids) if task is not None}
    for task_id in wanted:
        if task_id not in found:
            raise _unknown(task_id)
    if asked.caller is None or Permission.OPERATE in asked.caller.permissions:
        return found
    others = {task.author_id: task.id for task in found.values() if not is_run_by(asked, task)}
    for author, task_id in others.items():
        await check_own(office, asked, author, _unknown(task_id))
    return found


def is_run_by(asked: Asked, task: Task) -> bool:
    """Whether a worker of the caller runs it now."""
    return task.status is Status.RUNNING and owner_of(task.worker_id or "") == account_of(asked)


def key_for(asked: Asked, key: str, parent: Task | None) -> str:
    """The key as it is stored.

    Keys hold for all tasks of a name in a queue. So that nobody uses up those of others, the keys of accounts that may
    not operate are their own. A run's children are the exception: the next run of the task, by whichever worker, must
    find them by the same key; but not under such keys as ADE gives itself.
    """
    caller = asked.caller
    if caller is None or Permission.OPERATE in caller.permissions:
        return key
    if parent is not None and is_run_by(asked, parent) and not key.startswith(OF_OTHERS):
        return key
    return own_task_key(caller.user.id, key)


def _unknown(task_id: str) -> InvalidTask:
    return InvalidTask(f"the parent {task_id[:60]!r} does not exist, or is no task of yours; nothing was stored")
