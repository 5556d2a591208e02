"""Runs of agents that are in the store: waited for and stopped from any process. No other tasks are: what an agent may
look at and end is agents' work."""

from msgspec import Struct

from ade.agents.background import TaskStatus
from ade.core.agent_runs.endings import error_of, report_of
from ade.core.agent_runs.names import is_run
from ade.core.agent_runs.results import progress_in, result_in
from ade.core.agent_runs.telling import ABORTED
from ade.core.errors import IllegalTransition, UnknownTask, WaitTimeout
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.ports import Stores
from ade.queue import tasks
from ade.queue.payloads import Payloads
from ade.queue.waiting import FinishWatch


class StoredOutput(Struct, frozen=True):
    status: TaskStatus
    output: str
    error: str | None = None


class StoredTasks:
    """Belongs to one event loop."""

    def __init__(self, stores: Stores, payloads: Payloads, watch: FinishWatch | None = None) -> None:
        self._stores = stores
        self._payloads = payloads
        self._watch = watch or FinishWatch(stores)

    async def wait(self, task_id: str, timeout: float) -> StoredOutput | None:
        """The run as it is when it has ended, or when the time is over. None: there is none of this id."""
        try:
            task = await self._run(task_id)
            if timeout and not task.is_final:
                task = await self._once_final(task_id, timeout)
        except UnknownTask:
            return None
        if not task.is_final:
            progress = progress_in(task.progress)
            status = TaskStatus.RUNNING if task.status is Status.RUNNING else TaskStatus.PENDING
            return StoredOutput(status, "" if progress is None else progress.said)
        if task.status is Status.COMPLETED:
            return StoredOutput(TaskStatus.COMPLETED, await self._report(task))
        progress = progress_in(task.progress)
        return StoredOutput(TaskStatus.FAILED, "" if progress is None else progress.said, error_of(task))

    async def stop(self, task_id: str) -> bool:
        """Cancel it and its children; True if there was something to cancel."""
        try:
            if (await self._run(task_id)).is_final:
                return False
            await tasks.cancel(self._stores, task_id, ABORTED)
        except (UnknownTask, IllegalTransition):  # gone, or it ended meanwhile
            return False
        return True

    async def _run(self, task_id: str) -> Task:
        """Raises UnknownTask for what is no run of an agent, too."""
        task = await tasks.get(self._stores, task_id)
        if not is_run(task.name):
            raise UnknownTask
        return task

    async def _once_final(self, task_id: str, timeout: float) -> Task:
        try:
            return await self._watch.wait(task_id, timeout)
        except WaitTimeout:
            return await tasks.get(self._stores, task_id)

    async def _report(self, task: Task) -> str:
        return report_of(task, result_in(await tasks.result_of(self._stores, self._payloads, task)))
