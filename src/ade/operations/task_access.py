"""Tasks by their ids: those that exist, and those that the caller may change."""

from ade.core.ids import is_task_id
from ade.core.records import Task
from ade.core.web.access import Access
from ade.operations.kit import Asked, Office
from ade.operations.owning import check_own
from ade.queue.decisions import get, unknown


async def known(office: Office, task_id: str) -> Task:
    """Raises UnknownTask."""
    check_id(task_id)
    return await get(office.stores, task_id)


async def owned(office: Office, asked: Asked, task_id: str) -> Task:
    """The task, if the caller may change it and means this version of it. Raises UnknownTask, and 412."""
    task = await known(office, task_id)
    if asked.access is Access.OWN:
        await check_own(office, asked, task.author_id, unknown(task_id))
    asked.check_version(task.version)
    return task


def check_id(task_id: str) -> None:
    """What is no id is not looked for."""
    if not is_task_id(task_id):
        raise unknown(task_id)


def is_meant(asked: Asked, task: Task) -> None:
    """For the use case, which decides on the newest record: still the version that the caller means. Raises 412."""
    asked.check_version(task.version)
