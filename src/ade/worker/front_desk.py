"""What every desk has: contexts for its runs, a first look at what they ask, and the lines they write."""

import asyncio
from collections.abc import Callable
from typing import Any

from ade.core.errors import StaleLease
from ade.core.locks.of_tasks import request_id
from ade.logs import Log
from ade.worker.context import Context, SyncContext
from ade.worker.outputs import OutputBuffer
from ade.worker.run import MUTE, Run, Stop
from ade.worker.tracing import current_trace
from ade.worker.wire import Facts, LeaveLock, Request, Say

log = Log("ade.worker")


class FrontDesk:
    """Answers what runs ask for through their context, on the event loop, whatever mode they run in."""

    def __init__(self, outputs: OutputBuffer) -> None:
        self._outputs = outputs
        self.on_lost: Callable[[Run], object] = lambda run: run.end(Stop.LOST)

    async def answer(self, run: Run, request: Request) -> Any:
        """Do what a run asks. A run that has lost its lease gets StaleLease and changes nothing."""
        if not isinstance(request, Say | LeaveLock) and (run.detached or run.stop in MUTE):
            raise StaleLease(f"run {run.id} no longer holds task {run.task.id}")
        if isinstance(request, Say):
            return await self._say(run, request)
        return await self.carry_out(run, request)

    async def carry_out(self, run: Run, request: Request) -> Any:
        """Everything beside lines."""
        raise NotImplementedError

    def context(self, run: Run) -> Context:
        """For a handler on the loop."""
        return Context(
            facts_of(run), lambda request: self.answer(run, request), lambda: run.is_ending, lambda: run.locks
        )

    def sync_context(self, run: Run) -> SyncContext:
        """For a handler in a thread: its requests are answered by the loop while the thread waits."""
        loop = asyncio.get_running_loop()

        async def ask(request: Request) -> Any:
            return asyncio.run_coroutine_threadsafe(self.answer(run, request), loop).result()

        return SyncContext(Context(facts_of(run), ask, lambda: run.is_ending, lambda: run.locks))

    async def _say(self, run: Run, said: Say) -> None:
        task = run.task
        if said.stream == "log":
            log.info("task.says", task_id=task.id, attempt=task.attempt, worker=task.worker_id, line=said.text)
        await self._outputs.add(task.id, run.id, task.attempt, said.text, said.stream)


def facts_of(run: Run) -> Facts:
    task = run.task
    return Facts(
        task_id=task.id,
        name=task.name,
        attempt=task.attempt,
        worker=task.worker_id or "",
        run_id=run.id,
        author=task.author_id,
        trace=current_trace.get() or task.trace,
        progress=task.progress,
        scope=request_id(task),
        locks=tuple(item for held in run.locks.values() for item in held.grant.items),
    )
