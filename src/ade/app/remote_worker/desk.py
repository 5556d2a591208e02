"""Answers what runs ask for through their context, by asking the server."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ade.app.remote_worker.locks import RemoteLocks
from ade.app.remote_worker.reach import Reach
from ade.app.remote_worker.spawning import form_of
from ade.core.errors import NeedsStore, StaleLease
from ade.core.outcome import Withheld
from ade.core.records import Task
from ade.worker.front_desk import FrontDesk
from ade.worker.outputs import OutputBuffer
from ade.worker.run import Run
from ade.worker.wire import Begin, Finish, Forget, Hold, LeaveLock, Look, Progress, Request, Spawn, TakeLock

T = TypeVar("T")
_NOT_HERE = {
    Begin: "ctx.once, ctx.settle and ctx.forget",
    Finish: "ctx.once, ctx.settle and ctx.forget",
    Forget: "ctx.once, ctx.settle and ctx.forget",
    Look: "ctx.allows",
}


class RemoteDesk(FrontDesk):
    def __init__(self, reach: Reach, outputs: OutputBuffer, locks: RemoteLocks) -> None:
        super().__init__(outputs)
        self._reach = reach
        self._client = reach.client
        self._locks = locks

    async def carry_out(self, run: Run, request: Request) -> Any:
        task_id = run.task.id
        match request:
            case Progress(value):
                report = self._client.report_progress
                return await self._asked(run, lambda: report(run.id, task_id=task_id, progress=value))
            case Spawn(tasks):
                return await self._spawn(run, tasks)
            case TakeLock():
                return await self._locks.take_more(run, request)
            case LeaveLock(lock_id):
                return await self._locks.leave(run, lock_id)
            case Hold():
                return await self._hold(run, request)
        raise NeedsStore(
            f"{_NOT_HERE[type(request)]} need a worker on the store itself; this one lives behind HTTP. Let a worker"
            " without --url run this task, or do without"
        )

    async def _hold(self, run: Run, wanted: Hold) -> bool:
        """If people must agree first, the server has ended the run: there is nothing left to hand in."""
        judged: Any = UNSET if wanted.judged is None else msgspec.json.decode(wanted.judged)
        answer = await self._asked(
            run,
            lambda: self._client.hold_run(
                run.id,
                task_id=run.task.id,
                step=wanted.step.removeprefix("tool ") if wanted.is_tool else wanted.step,
                about=wanted.about,
                policies=wanted.policies,
                reason=wanted.reason,
                is_tool=wanted.is_tool,
                judged=judged,
            ),
        )
        if not answer.may_go_on:
            run.withheld = Withheld(reason="it waits for people")
        return answer.may_go_on

    async def _spawn(self, run: Run, tasks: list[Task]) -> list[Task]:
        """Under a key, so that a lost answer makes no second child."""
        forms, key = [form_of(task) for task in tasks], f"{run.id}-{tasks[0].id}"
        made = await self._asked(run, lambda: self._client.create_tasks(tasks=forms, request_key=key))
        return list(made.items)

    async def _asked(self, run: Run, ask: Callable[[], Awaitable[T]]) -> T:
        """While the server is away the run waits: it goes on as long as its lease does. Raises AdeError."""
        try:
            return await self._reach.persist(ask, "request of a run", lambda: not run.is_ending, task_id=run.task.id)
        except StaleLease:
            self.on_lost(run)
            raise
