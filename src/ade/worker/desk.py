"""Answers what runs ask for through their context, on the event loop, whatever mode they run in."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import structs

from ade.core.errors import StaleLease
from ade.core.locks.of_tasks import request_id
from ade.core.records import Task
from ade.logs import Log
from ade.ports import Stores
from ade.worker.context import Context, SyncContext
from ade.worker.gatekeeping import Gatekeeper
from ade.worker.locking import RunLocks
from ade.worker.outputs import OutputBuffer
from ade.worker.run import MUTE, Run, Stop
from ade.worker.wire import (
    Begin,
    Facts,
    Finish,
    Forget,
    Hold,
    LeaveLock,
    Ledger,
    Look,
    Progress,
    Request,
    Say,
    Spawn,
    TakeLock,
)

Enqueue = Callable[[Sequence[Task]], Coroutine[Any, Any, list[Task]]]
log = Log("ade.worker")


class Desk:
    def __init__(
        self, stores: Stores, enqueue: Enqueue, outputs: OutputBuffer, locks: RunLocks, gates: Gatekeeper
    ) -> None:
        self._stores = stores
        self._enqueue = enqueue
        self._outputs = outputs
        self._locks = locks
        self._gates = gates
        self.on_lost: Callable[[Run], object] = lambda run: run.end(Stop.LOST)

    async def answer(self, run: Run, request: Request) -> Any:
        """Do what a run asks. A run that has lost its lease gets StaleLease and changes nothing."""
        if not isinstance(request, Say | LeaveLock) and (run.detached or run.stop in MUTE):
            raise StaleLease(f"run {run.id} no longer holds task {run.task.id}")
        match request:
            case Progress(value):
                await self._keep_progress(run, value)
            case Say(text, stream):
                task = run.task
                if stream == "log":
                    log.info("task.says", task_id=task.id, attempt=task.attempt, worker=task.worker_id, line=text)
                await self._outputs.add(task.id, run.id, task.attempt, text, stream)
            case Begin(key):
                return await self._begin(run, key)
            case Finish(key, answer):
                await self._stores.effects.finish(key, run.id, answer)
            case Forget(key):
                await self._stores.effects.forget(key)
            case Spawn(tasks):
                return await self._enqueue([_of_its_author(task, run.task) for task in tasks])
            case TakeLock() | LeaveLock() | Hold() | Look():
                return await self._govern(run, request)
        return None

    async def _govern(self, run: Run, request: TakeLock | LeaveLock | Hold | Look) -> Any:
        """What is not the run's alone to decide."""
        match request:
            case TakeLock():
                return await self._locks.take_more(run, request)
            case LeaveLock(lock_id):
                return await self._locks.leave(run, lock_id)
            case Hold():
                return await self._gates.hold(run, request)
            case Look():
                return await self._gates.look(run, request)

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

    async def _keep_progress(self, run: Run, value: Any) -> None:
        try:
            await self._stores.tasks.report_progress(run.task.id, run.id, value)
        except StaleLease:
            self.on_lost(run)
            raise

    async def _begin(self, run: Run, key: str) -> Ledger:
        effect = await self._stores.effects.begin(key, run.id)
        foreign = not effect.done and effect.run_id != run.id
        return Ledger(effect, live=foreign and await self._stores.effects.is_live(effect.run_id))


def _of_its_author(child: Task, parent: Task) -> Task:
    """Whoever is behind a task has a hand in what it enqueues."""
    return child if child.author_id is not None else structs.replace(child, author_id=parent.author_id)


def facts_of(run: Run) -> Facts:
    task = run.task
    return Facts(
        task_id=task.id,
        name=task.name,
        attempt=task.attempt,
        worker=task.worker_id or "",
        run_id=run.id,
        author=task.author_id,
        progress=task.progress,
        scope=request_id(task),
        locks=tuple(item for held in run.locks.values() for item in held.grant.items),
    )
