"""A server as a worker's backend: claims tasks, reports outcomes, and serves context requests over HTTP."""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, structs

from ade import VERSION
from ade.accounts.model import NotAuthenticated
from ade.client.client import Client
from ade.common.calls import Call
from ade.errors import AdeError, NeedsStore, StaleLease, UnknownWorker
from ade.locks.requests import LeaveLock, TakeLock
from ade.locks.run_locks import RunLocks
from ade.locks.task_locks import HttpRunLocks
from ade.logs import Log
from ade.stores.ports import ClaimRequest, Clock, Renewal
from ade.tasks.admission import PREVIEW_SUFFIX, ROLLBACK_SUFFIX
from ade.tasks.handlers import Handler, Registry
from ade.tasks.identifiers import owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.options import new_definition_of, new_task_of
from ade.tasks.outcomes import HoldResponse, Withheld
from ade.worker.api.requests import LONGEST_WAIT_S, MOST_CLAIMED, MOST_COMPLETED, RemoteRunsRenewed
from ade.worker.approval_check import ApprovalChecker
from ade.worker.backend import Ended, Finished, LocksOfRuns, WorkerOptions
from ade.worker.capacity import AgentCapacity
from ade.worker.child_pool import ProcessGroupRegistry
from ade.worker.handler_call import PayloadReader
from ade.worker.lease import LeaseThread
from ade.worker.messages import (
    BeginEffect,
    CheckToolCall,
    EnqueueChildren,
    FinishEffect,
    ForgetEffect,
    ReportProgress,
    Request,
    RequestStepApproval,
)
from ade.worker.output_buffer import OutputBuffer
from ade.worker.remote.connection import HttpOutputStore, LocalClock, ServerConnection, is_fault, is_passing
from ade.worker.remote.outcomes import AT_ONCE, HttpCompleter
from ade.worker.run import Run, StopReason, lose_lock
from ade.worker.state import ClaimTrigger, WorkerState
from ade.worker.views import WorkerView

# Context requests of runs, served by the server.


T = TypeVar("T")
_NOT_HERE = {
    BeginEffect: "ctx.once, ctx.settle and ctx.forget",
    FinishEffect: "ctx.once, ctx.settle and ctx.forget",
    ForgetEffect: "ctx.once, ctx.settle and ctx.forget",
    CheckToolCall: "ctx.allows",
}


class HttpContextBackend:
    """Serves context requests of runs through the server, except output."""

    def __init__(self, reach: ServerConnection, locks: RunLocks[Run]) -> None:
        self._reach = reach
        self._client = reach.client
        self._locks = locks

    async def ask(self, run: Run, request: Request) -> Any:
        """Serve a request. Raises NeedsStore for requests that need direct store access."""
        task_id = run.task.id
        match request:
            case ReportProgress(value):
                report = self._client.report_progress
                return await self._asked(run, lambda: report(run.id, task_id=task_id, progress=value))
            case EnqueueChildren(tasks):
                return await self._spawn(run, tasks)
            case TakeLock():
                return await self._locks.take_more(run, request)
            case LeaveLock(lock_id):
                return await self._locks.leave(run, lock_id)
            case RequestStepApproval():
                return await self._hold(run, request)
        raise NeedsStore(
            f"{_NOT_HERE[type(request)]} need a worker on the store itself; this one lives behind HTTP. Let a worker"
            " without --url run this task, or do without"
        )

    async def _hold(self, run: Run, wanted: RequestStepApproval) -> HoldResponse | None:
        """Request approval of a step. Without approval, the server has ended the run: nothing is left to report."""
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
                responses=wanted.responses,
            ),
        )
        if not answer.may_go_on:
            run.withheld = Withheld(reason="it waits for people")
            return None
        return HoldResponse(is_approved=True) if answer.response is None else answer.response

    async def _spawn(self, run: Run, tasks: list[Task]) -> list[Task]:
        """Enqueue children with an idempotency key, so that a lost response creates no duplicate."""
        forms = [structs.replace(new_task_of(task), run=run.id) for task in tasks]
        key = f"{run.id}-{tasks[0].id}"
        made = await self._asked(run, lambda: self._client.create_tasks(tasks=forms, request_key=key))
        return list(made.items)

    async def _asked(self, run: Run, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry while the server is unavailable: the run continues as long as its lease does. Raises AdeError."""
        try:
            return await self._reach.persist(ask, "request of a run", lambda: not run.is_ending, task_id=run.task.id)
        except StaleLease:
            run.abort(StopReason.LOST)
            raise


_SHORT_WAIT_S = 1.0  # while some mode has no room: the server is not notified when it has
_NOWHERE = "ade-no-such-queue"  # a queue without tasks
_MOST_RUNS = 1_000  # in one heartbeat
_MOST_REJECTIONS = 3  # of the token, in consecutive claims: a server that is being restored can reject it once
_LEAST_TTL_S, _LONGEST_TTL_S = 5.0, 3_600.0
_LAST_WORD_S = 5.0  # for the server to deregister the worker
log = Log("ade.worker")


class WholePayloads:
    """Sends and receives payloads inline: the server stores large ones separately."""

    def fits(self, raw: Raw) -> bool:
        return True

    async def load(self, raw: Raw) -> Raw:
        return raw

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw:
        return raw


class HttpBackend:
    """A worker backend over HTTP. The server checks approvals, counts agent capacity, and grants the locks of tasks."""

    waits = True
    finishes_at_once = AT_ONCE
    finishes_together = MOST_COMPLETED

    def __init__(
        self,
        reach: ServerConnection,
        registry: Registry,
        options: WorkerOptions,
        on_rejected: Callable[[], None] | None = None,
    ) -> None:
        self._reach = reach
        self._options = options
        self._on_rejected = on_rejected  # called when the server no longer accepts the token
        self._rejections = 0  # consecutive
        self.rejected: NotAuthenticated | None = None
        self._names = frozenset(registry.names())
        self._definitions = [new_definition_of(each) for each in registry.definitions(options.code_version)]
        self._loop = asyncio.get_running_loop()
        self._is_registered = False
        self.name = worker_name()
        # Two checks for hanging renewals must fit before the leases expire.
        self.lease_check_s = min(options.heartbeat_s, options.lease_s / 4) / 4
        self.state = WorkerState(options)
        self.clock: Clock = LocalClock()
        self.outputs = OutputBuffer(HttpOutputStore(reach.client), self.clock)
        self.payloads: PayloadReader = WholePayloads()
        self.groups: ProcessGroupRegistry | None = None
        self.gates: ApprovalChecker | None = None
        self.capacity: AgentCapacity | None = None
        self._locks = HttpRunLocks[Run](reach.lock_client(), options.lease_ms, lose_lock)
        self.locks: LocksOfRuns = self._locks
        self._desk = HttpContextBackend(reach, self._locks)
        self._reports = HttpCompleter(reach, self.outputs)

    # Running tasks

    async def claim(self, request: ClaimRequest, *, is_last: bool = False) -> Sequence[Task]:
        """Claim tasks; the server waits until there is work. The first run ID is the request ID."""
        try:
            tasks = await self._claim_registered(request, is_last)
        except NotAuthenticated as error:
            self._reject(error)
            raise
        self._rejections = 0
        return tasks

    def _reject(self, error: NotAuthenticated) -> None:
        """Stop the worker once its token was rejected several times: no later claim can succeed."""
        self._rejections += 1
        if self._rejections >= _MOST_REJECTIONS and self.rejected is None:
            self.rejected = error
            log.error("worker.token_rejected", worker=self.name, error=str(error))
            if self._on_rejected is not None:
                self._on_rejected()

    async def _claim_registered(self, request: ClaimRequest, is_last: bool) -> list[Task]:
        try:
            return await self._claim(request, is_last)
        except UnknownWorker:  # it was lost for too long, or the server has a different store now
            if is_last:
                raise
            await self._register()
            return await self._claim(request, is_last)

    async def _claim(self, request: ClaimRequest, is_last: bool) -> list[Task]:
        asked_at = self._loop.time()
        claimed = await self._reach.client.claim_tasks(
            worker=self.name,
            names=sorted(request.names),
            queues=[_NOWHERE] if is_last else None,  # None: as registered
            count=min(len(request.run_ids), MOST_CLAIMED),
            lease_s=self._options.lease_s,
            wait=self._wait_s(request),
            request_id=request.run_ids[0],
        )
        if request.may_be_repeated:
            log.info("claim.answered_again", tasks=len(claimed.runs))
        grants = [grant for grant in claimed.runs if grant.run_id not in self.state.held]
        for grant in grants:
            if grant.locks and not self.state.draining:
                self._locks.expect(grant.run_id, grant.locks, asked_at)
        return [grant.task for grant in grants]

    def _wait_s(self, request: ClaimRequest) -> float:
        if request.may_be_repeated:
            return 0.0
        longest = min(LONGEST_WAIT_S, self._options.lease_s / 2)  # the locks that come with a task must be fresh
        return longest if request.names == self._names else min(_SHORT_WAIT_S, longest)

    def renew(self, held: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal:
        began, gone, listed = self._loop.time(), dict[str, Status | None](), list(held.items())
        for start in range(0, max(len(listed), 1), _MOST_RUNS):
            try:
                answer = self._beat(dict(listed[start : start + _MOST_RUNS]))
            except Exception as error:  # runs that are gone by earlier answers end nevertheless
                return Renewal(gone=gone, error=error)
            gone.update({each.run_id: each.status for each in answer.gone})
            self._loop.call_soon_threadsafe(self._end_early, answer)
        self._locks.beaten(began)
        return Renewal(gone=gone)

    def _beat(self, runs: Mapping[str, str]) -> RemoteRunsRenewed:
        options = self._options

        def renewed() -> RemoteRunsRenewed:
            return self._reach.beats.renew_runs(
                worker=self.name, runs=runs, lease_s=options.lease_s, draining=self.state.draining
            ).wait()

        try:
            return renewed()
        except UnknownWorker:  # no heartbeat reached the server for too long
            self._registration(self._reach.beats).wait()
            return renewed()

    def _end_early(self, answer: RemoteRunsRenewed) -> None:
        for why, run_ids in ((StopReason.TIMED_OUT, answer.late), (StopReason.LOCK_LOST, answer.lock_lost)):
            for run_id in run_ids:
                run = self.state.held.get(run_id)
                if run is not None and not run.finishing:
                    run.abort(why)

    async def finish(self, batch: Sequence[Ended]) -> Finished:
        """Report each outcome until it is confirmed. Reports are idempotent."""
        return Finished(await self._reports.report_all(batch))

    def ask(self, run: Run, request: Request) -> Coroutine[Any, Any, Any]:
        return self._desk.ask(run, request)

    # Polling

    def follow(self, trigger: ClaimTrigger) -> Callable[[], None]:
        return _nothing_to_leave  # the server gets the notifications while a claim waits there

    def claim_pause_s(self, times: int) -> float:
        return self._reach.pause(times)

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, AdeError) and not is_passing(error) and not is_fault(error)

    async def next_due_s(self) -> float:
        return 0.0

    # Setup and shutdown

    async def register(self, stop: asyncio.Event | None = None) -> bool:
        """Register, waiting for the server if it is unavailable."""
        stop = stop or asyncio.Event()
        asking = asyncio.ensure_future(self._reach.persist(self._register, "registration", lambda: not stop.is_set()))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
            return self._is_registered
        finally:
            for job in (asking, stopping):
                job.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)

    async def _register(self) -> None:
        """Describe this worker to the server. Raises AdeError."""
        view = await self._registration(self._reach.client)
        self._is_registered = True
        self._locks.registered(owner_of(view.worker.id) or "")
        if left := sorted(set(self._names) - set(view.worker.names)):
            log.warning("tasks.left_to_others", names=left, reason="the account of this worker is bound to other tasks")
        log.info("worker.registered", worker=view.worker.id, names=len(view.worker.names))

    def _registration(self, client: Client) -> Call[WorkerView]:
        options = self._options
        return client.register_worker(
            self.name,
            definitions=self._definitions,
            queues=options.queues,
            capabilities=options.capabilities,
            concurrency=options.concurrency,
            agent=options.agent,
            hostname=socket.gethostname()[:200],
            pid=os.getpid(),
            version=VERSION,
            draining=self.state.draining,
            ttl=min(max(options.lease_s, _LEAST_TTL_S), _LONGEST_TTL_S),
        )

    async def open(self) -> None: ...

    def jobs(self, lease: LeaseThread) -> dict[str, Coroutine[Any, Any, None]]:
        return {}

    def guarded_at(self) -> float:
        return 0.0  # only the lease thread renews

    async def close(self) -> None: ...

    async def deregister(self) -> None:
        if not self._is_registered:
            return
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await self._reach.client.deregister_worker(self.name)
        except (AdeError, TimeoutError) as error:  # it will be removed as a lost worker
            log.warning("worker.not_deregistered", worker=self.name, error=str(error))


def worker_name() -> str:
    """Return a name that is unique in the account; the server prefixes the account."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.")[:60] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(4).hex()}"


def _nothing_to_leave() -> None: ...


# The handlers that a worker registers with the server.


def servable(handlers: Iterable[Handler]) -> tuple[list[Handler], list[str]]:
    """Return the handlers that a worker behind HTTP can run, and the names of the others.

    Tasks with a preview or a rollback are left to workers on the store, which check them again before a run. The
    preview and rollback handlers of these tasks are also excluded.
    """
    handlers = list(handlers)
    governed = {each.name for each in handlers if each.definition.has_preview or each.definition.has_rollback}
    left = governed | {name + suffix for name in governed for suffix in (PREVIEW_SUFFIX, ROLLBACK_SUFFIX)}
    return [each for each in handlers if each.name not in left], sorted(governed)
