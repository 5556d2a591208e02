"""Answers what runs ask for through their context, by asking the server."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET

from ade.approvals.model import StartMode
from ade.errors import NeedsStore, StaleLease
from ade.locks.holders.remote_run_locks import HttpRunLocks
from ade.tasks.api.requests import BatchTask
from ade.tasks.model import Task
from ade.tasks.outcomes import Withheld
from ade.worker.context_backend import ContextBackend
from ade.worker.messages import (
    AcquireLock,
    BeginEffect,
    CheckToolCall,
    EnqueueChildren,
    FinishEffect,
    ForgetEffect,
    ReleaseLock,
    ReportProgress,
    Request,
    RequestStepApproval,
)
from ade.worker.output_buffer import OutputBuffer
from ade.worker.remote.connection import ServerConnection
from ade.worker.run import Run

# Children that a run enqueues, as the server is asked for them.


def child_request_of(task: Task) -> BatchTask:
    """What a record says beyond what is usual. The server makes a record of its own of it, with another id."""
    review = task.review
    return BatchTask(
        trace=task.trace,
        name=task.name,
        args=task.arguments(),
        queue=task.queue,
        priority=task.priority,
        run_at=_moment(task.run_after if task.run_after > task.created_at else None),
        deadline=_moment(task.deadline),
        key=task.idempotency_key,
        after=list(task.depends_on) or None,
        after_failure=task.after_failure,
        tags=list(task.tags) or None,
        description=task.description,
        max_attempts=task.max_attempts,
        timeout=_seconds(task.timeout_ms),
        backoff=task.backoff,
        result_ttl=_seconds(task.result_ttl_ms),
        concurrency_key=task.concurrency_key,
        locks=list(task.locks) or None,
        needs=list(task.needs) or None,
        parent=task.parent_id,
        team=task.team,
        ticket=task.ticket_ref,
        resources=list(task.resources) or None,
        rollback=cast(Any, task.rollback),
        approval=None if review is None else list(review.policies) or None,
        start=None if review is None or review.start is StartMode.AT_ONCE else "by_hand",
        not_before=None if review is None else _moment(review.not_before),
        not_after=None if review is None else _moment(review.not_after),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


T = TypeVar("T")
_NOT_HERE = {
    BeginEffect: "ctx.once, ctx.settle and ctx.forget",
    FinishEffect: "ctx.once, ctx.settle and ctx.forget",
    ForgetEffect: "ctx.once, ctx.settle and ctx.forget",
    CheckToolCall: "ctx.allows",
}


class HttpContextBackend(ContextBackend):
    def __init__(self, reach: ServerConnection, outputs: OutputBuffer, locks: HttpRunLocks) -> None:
        super().__init__(outputs)
        self._reach = reach
        self._client = reach.client
        self._locks = locks

    async def carry_out(self, run: Run, request: Request) -> Any:
        task_id = run.task.id
        match request:
            case ReportProgress(value):
                report = self._client.report_progress
                return await self._asked(run, lambda: report(run.id, task_id=task_id, progress=value))
            case EnqueueChildren(tasks):
                return await self._spawn(run, tasks)
            case AcquireLock():
                return await self._locks.take_more(run, request)
            case ReleaseLock(lock_id):
                return await self._locks.leave(run, lock_id)
            case RequestStepApproval():
                return await self._hold(run, request)
        raise NeedsStore(
            f"{_NOT_HERE[type(request)]} need a worker on the store itself; this one lives behind HTTP. Let a worker"
            " without --url run this task, or do without"
        )

    async def _hold(self, run: Run, wanted: RequestStepApproval) -> bool:
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
        forms, key = [child_request_of(task) for task in tasks], f"{run.id}-{tasks[0].id}"
        made = await self._asked(run, lambda: self._client.create_tasks(tasks=forms, request_key=key))
        return list(made.items)

    async def _asked(self, run: Run, ask: Callable[[], Awaitable[T]]) -> T:
        """While the server is away the run waits: it goes on as long as its lease does. Raises AdeError."""
        try:
            return await self._reach.persist(ask, "request of a run", lambda: not run.is_ending, task_id=run.task.id)
        except StaleLease:
            self.on_lost(run)
            raise
