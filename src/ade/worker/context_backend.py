"""Serves the requests that runs send through their context: on the store, or through the worker's backend."""

import asyncio
from typing import Any

from ade.approvals.review_requests import with_author_of, writers_of
from ade.errors import StaleLease
from ade.locks.requests import LeaveLock, TakeLock, request_id
from ade.locks.run_locks import RunLocks
from ade.logs import Log
from ade.stores.ports import Stores
from ade.worker.approval_check import ApprovalChecker
from ade.worker.backend import WorkerBackend
from ade.worker.context import Context, SyncContext
from ade.worker.instrumentation import current_trace
from ade.worker.messages import (
    BeginEffect,
    CheckToolCall,
    EffectState,
    EnqueueChildren,
    FinishEffect,
    ForgetEffect,
    ReportProgress,
    Request,
    RequestStepApproval,
    RunInfo,
    WriteOutput,
)
from ade.worker.run import MUTE, Run, StopReason


class StoreContextBackend:
    """Serves context requests of runs on the store, except output."""

    def __init__(self, stores: Stores, locks: RunLocks[Run], gates: ApprovalChecker) -> None:
        self._stores = stores
        self._locks = locks
        self._gates = gates

    async def ask(self, run: Run, request: Request) -> Any:
        """Serve a request. Raises StaleLease and the errors of the request."""
        match request:
            case ReportProgress(value):
                await self._keep_progress(run, value)
            case BeginEffect(key):
                return await self._begin(run, key)
            case FinishEffect(key, answer):
                await self._stores.effects.finish(key, run.id, answer)
            case ForgetEffect(key):
                await self._stores.effects.forget(key)
            case EnqueueChildren(tasks):
                return await self._gates.enqueue([with_author_of(run.task, task) for task in tasks])
            case TakeLock() | LeaveLock() | RequestStepApproval() | CheckToolCall():
                return await self._govern(run, request)
        return None

    async def _govern(self, run: Run, request: TakeLock | LeaveLock | RequestStepApproval | CheckToolCall) -> Any:
        """Serve requests for locks and approvals."""
        match request:
            case TakeLock():
                return await self._locks.take_more(run, request)
            case LeaveLock(lock_id):
                return await self._locks.leave(run, lock_id)
            case RequestStepApproval():
                return await self._gates.hold(run, request)
            case CheckToolCall():
                return await self._gates.look(run, request)

    async def _keep_progress(self, run: Run, value: Any) -> None:
        try:
            await self._stores.tasks.report_progress(run.task.id, run.id, value)
        except StaleLease:
            run.abort(StopReason.LOST)
            raise

    async def _begin(self, run: Run, key: str) -> EffectState:
        try:
            effect = await self._stores.effects.begin(key, run.task.id, run.id)
        except StaleLease:
            run.abort(StopReason.LOST)
            raise
        foreign = not effect.done and effect.run_id != run.id
        return EffectState(effect, live=foreign and await self._stores.effects.is_live(effect.task_id, effect.run_id))


# The part that all backends share: it checks the lease, buffers output, and passes other requests to the backend.


log = Log("ade.worker")


class ContextBackend:
    """Creates the contexts of runs and serves their requests on the event loop, in every handler mode."""

    def __init__(self, backend: WorkerBackend) -> None:
        self._backend = backend
        self._outputs = backend.outputs

    async def answer(self, run: Run, request: Request) -> Any:
        """Serve a request of a run. A run that has lost its lease gets StaleLease and changes nothing."""
        if not isinstance(request, WriteOutput | LeaveLock) and (run.detached or run.stop in MUTE):
            raise StaleLease(f"run {run.id} no longer holds task {run.task.id}")
        if isinstance(request, WriteOutput):
            return await self._say(run, request)
        return await self._backend.ask(run, request)

    def context(self, run: Run) -> Context:
        """Return the context of an async handler."""
        return Context(
            facts_of(run), lambda request: self.answer(run, request), lambda: run.is_ending, lambda: run.locks
        )

    def sync_context(self, run: Run) -> SyncContext:
        """Return the context of a handler in a thread: the loop serves its requests while the thread blocks."""
        loop = asyncio.get_running_loop()

        async def ask(request: Request) -> Any:
            return asyncio.run_coroutine_threadsafe(self.answer(run, request), loop).result()

        return SyncContext(Context(facts_of(run), ask, lambda: run.is_ending, lambda: run.locks))

    async def _say(self, run: Run, said: WriteOutput) -> None:
        task = run.task
        if said.stream == "log":
            log.info("task.says", task_id=task.id, attempt=task.attempt, worker=task.worker_id, line=said.text)
        await self._outputs.add(task.id, run.id, task.attempt, said.text, said.stream)


def facts_of(run: Run) -> RunInfo:
    """Return what a handler can read about its run."""
    task = run.task
    return RunInfo(
        task_id=task.id,
        name=task.name,
        attempt=task.attempt,
        worker=task.worker_id or "",
        run_id=run.id,
        author=task.author_id,
        writers=writers_of(task),
        trace=current_trace.get() or task.trace,
        progress=task.progress,
        scope=request_id(task),
        locks=tuple(item for held in run.locks.values() for item in held.grant.items),
    )
