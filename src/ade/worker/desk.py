"""Answers what runs ask for through their context, on the store itself."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import structs

from ade.core.errors import StaleLease
from ade.core.records import Task
from ade.ports import Stores
from ade.worker.front_desk import FrontDesk
from ade.worker.gatekeeping import Gatekeeper
from ade.worker.locking import RunLocks
from ade.worker.outputs import OutputBuffer
from ade.worker.run import Run
from ade.worker.wire import Begin, Finish, Forget, Hold, LeaveLock, Ledger, Look, Progress, Request, Spawn, TakeLock

Enqueue = Callable[[Sequence[Task]], Coroutine[Any, Any, list[Task]]]


class Desk(FrontDesk):
    def __init__(
        self, stores: Stores, enqueue: Enqueue, outputs: OutputBuffer, locks: RunLocks, gates: Gatekeeper
    ) -> None:
        super().__init__(outputs)
        self._stores = stores
        self._enqueue = enqueue
        self._locks = locks
        self._gates = gates

    async def carry_out(self, run: Run, request: Request) -> Any:
        match request:
            case Progress(value):
                await self._keep_progress(run, value)
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
