"""HTTP API of runs: claim tasks, renew leases, and report results, for workers without store access."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import Permission
from ade.approvals.rollback import prepare_rollbacks
from ade.errors import STORE_TROUBLE, AdeError, InvalidTask, LockNotPermitted, PayloadTooLarge, StoreError
from ade.locks.model import DEFAULT_NAMESPACE, LockItem
from ade.locks.requests import RECHECK_MS, STANDS_NOWHERE_MS, request_id, request_of
from ade.logs import Log
from ade.server.context import RequestContext, Services, account_of
from ade.server.operation import TrafficClass, operation
from ade.server.pagination import Page
from ade.stores.ports import AGENT, DONE, WORK, ClaimRequest
from ade.tasks.admission import is_own_step
from ade.tasks.changes import Change
from ade.tasks.decisions import is_overdue, run_timeout_ms, settle
from ade.tasks.identifiers import is_task_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import OutputLine, Task, Worker
from ade.tasks.outcomes import Deferred, Failed, Outcome, Released, Succeeded, Withheld
from ade.tasks.service import cancel_lock_waits, result_of
from ade.worker.api.requests import (
    AppendOutput,
    Claim,
    Claimed,
    CompleteRun,
    CompleteRuns,
    CompletionReport,
    FailRun,
    GoneRun,
    HoldRun,
    Progress,
    ReleaseRun,
    RemoteRunsRenewed,
    RenewRuns,
    RunEnd,
    RunGrant,
    RunHold,
    end_of,
    failure_of,
    has_failed_so,
    is_late,
    report_of,
    run_ids,
)
from ade.worker.api.workers import as_json, bound_claim, check_ending, check_held, held, registered, task_of, worker_of
from ade.worker.failures import failure_of as raised
from ade.worker.failures import lock_lost

# The end of a run behind HTTP: decided and written here, as workers on the store do.


log = Log("ade.work")


async def end(services: Services, task: Task, outcome: Outcome) -> Task:
    """End the run and return the task after it. Raises StaleLease if the run has lost the task meanwhile.

    Work done under locks is committed before they are released. A run that did not succeed releases them first: the
    next one can request them under the same ID as soon as the commit is done.
    """
    stores = services.stores
    if isinstance(outcome, Succeeded) and not await has_its_locks(services, task):
        outcome = lock_lost()
    # A task that waits for locks keeps its position in the wait queues.
    if not isinstance(outcome, Succeeded | Deferred):
        await cancel_lock_waits(stores, [task])
    change = settle(task, outcome, now=stores.clock.now(), randomness=random.random())
    await prepare_rollbacks(stores, services.payloads, [change])
    [refusal] = await stores.tasks.commit_each([change])
    if isinstance(outcome, Succeeded):
        await cancel_lock_waits(stores, [task])
    known: dict[str, Any] = {"task_id": task.id, "attempt": task.attempt, "worker": task.worker_id, "verb": change.verb}
    if refusal is not None:
        log.warning("task.result_thrown_away", **known, reason=str(refusal))
        raise refusal
    log.info("task.handed_in", **known, status=change.after.status)
    await _ring(services, change)
    return change.after


async def has_its_locks(services: Services, task: Task) -> bool:
    """Whether the run still holds its task's locks; also renews them."""
    if not task.locks:
        return True
    [grant] = await services.stores.locks.renew(DEFAULT_NAMESPACE, [request_id(task)])
    return grant is not None and grant.is_granted


async def _ring(services: Services, *changes: Change) -> None:
    """Wake waiters for results, and workers that can claim now because a limit has room or a task is due."""
    stores = services.stores
    if any(change.after.is_final for change in changes):
        stores.wakeups.notify(DONE)
    if any(_frees_work(change) for change in changes) or await _have_limits(services, changes):
        stores.wakeups.notify(WORK)


def _frees_work(change: Change) -> bool:
    is_due = change.after.status is Status.PENDING and change.after.run_after <= change.after.updated_at
    return is_due or change.before.concurrency_key is not None


async def _have_limits(services: Services, changes: Sequence[Change]) -> bool:
    limited = {each.name for each in await services.stores.workers.definitions() if each.concurrency is not None}
    return any(change.after.name in limited for change in changes)


async def succeeded(services: Services, task: Task, result: Raw) -> Succeeded:
    """Store a large result separately and return the outcome. Raises PayloadTooLarge."""
    return Succeeded(await services.payloads.spill(task.id, f"{task.generation}.{task.attempt}.result", result))


_BREATH_S = 0.02  # between two polls, however often work is announced: it may be for others
_SLOW_LOOK_S = 5.0  # finds tasks that no notification announced
_LIMITED_LOOK_S = 1.0  # the same for names with rate limits: no notification announces a free rate
_MOST_IN_VAIN = 10  # consecutive polls that returned only tasks that must wait
_TROUBLE_DELAY_MS = 1_000  # before a run that could not be prepared is claimed again
_NOT_RECEIVED = Released("the client disconnected", has_begun=False)


class ClaimRound:
    """One claim of a worker behind HTTP. It polls again when there may be work, until the wait time is over."""

    def __init__(self, services: Services, worker: Worker, account: str, body: Claim) -> None:
        self._office = services
        self._worker = worker
        self._account = account
        self._body = body
        self._lease_ms = round(body.lease_s * 1000)
        self._names: frozenset[str] = frozenset()
        self._slow_look_s = _SLOW_LOOK_S
        self._is_capped = False  # its agent had no free unit

    async def run(self) -> list[RunGrant]:
        """Claim tasks, acquire their locks, and check their approvals; returns those that can start."""
        self._names = await self._served()
        wakeups, loop = self._office.stores.wakeups, asyncio.get_running_loop()
        until, look, in_vain = loop.time() + self._body.wait, 0, 0
        while True:
            seen = {topic: wakeups.generation(topic) for topic in (WORK, AGENT)}
            had_tasks, grants = await self._looked(look)
            if grants:
                return grants
            if had_tasks and in_vain < _MOST_IN_VAIN:  # they wait for locks or approvals: tasks behind them may run
                look, in_vain = look + 1, in_vain + 1
                continue
            left_s = until - loop.time()
            if left_s <= 0:
                return []
            topic = AGENT if self._is_capped else WORK
            await wakeups.wait(topic, seen[topic], min(left_s, await self._next_look_s()))
            await asyncio.sleep(min(_BREATH_S, max(until - loop.time(), 0)))
            in_vain = 0

    async def _looked(self, look: int) -> tuple[bool, list[RunGrant]]:
        """Poll once. If the client disconnects meanwhile, its claimed tasks are returned to the queue without counting
        an attempt.
        """
        job = asyncio.ensure_future(self._look(look))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            _, grants = await job
            await asyncio.gather(*(_end(self._office, grant.task, _NOT_RECEIVED) for grant in grants))
            await self._give_back([grant.run_id for grant in grants])
            raise

    async def _look(self, look: int) -> tuple[bool, list[RunGrant]]:
        tasks = await self._claim(look, is_first=look == 0)
        return bool(tasks), await begin_all(self._office, tasks, self._lease_ms, self._give_back, self._worker.versions)

    async def _served(self) -> frozenset[str]:
        """Return the claimable names without ADE's internal tasks: a client that ran those could fake previews or
        suppress webhooks. Raises InvalidTask if no name is left.
        """
        named = frozenset(self._worker.names if self._body.names is None else self._body.names)
        if not named:
            raise InvalidTask("name the tasks that the worker can run, in the claim or in its registration")
        if not (names := frozenset(name for name in named if not is_own_step(name))):
            raise InvalidTask(
                f"{', '.join(sorted(named))[:200]}: these are internal tasks of ADE, which only its own workers run;"
                " name other tasks"
            )
        definitions = await self._office.stores.workers.definitions()
        served = names - {definition.name for definition in definitions if definition.has_preview}
        if not served:
            raise InvalidTask(
                f"tasks of {', '.join(sorted(names))[:200]} are previewed anew before each run, which only ADE's own"
                " workers do; run one of those for them"
            )
        if any(each.name in served and each.rate_count is not None for each in definitions):
            self._slow_look_s = _LIMITED_LOOK_S
        return served

    async def _claim(self, look: int, *, is_first: bool) -> list[Task]:
        body, worker, stores = self._body, self._worker, self._office.stores
        ids = (
            [os.urandom(16).hex() for _ in range(body.count)]
            if body.request_id is None
            else run_ids(self._account, body.request_id, look, body.count)
        )
        given = ids
        if worker.agent is not None:
            given = await stores.agents.take(worker.agent, ids, lease_ms=self._lease_ms)
            self._is_capped = not given
        if not given:
            return []
        tasks = await stores.tasks.claim(
            ClaimRequest(
                worker_id=worker.id,
                run_ids=given,
                names=self._names,
                queues=tuple(worker.queues if body.queues is None else body.queues),
                capabilities=frozenset(worker.capabilities if body.capabilities is None else body.capabilities),
                lease_ms=self._lease_ms,
                may_be_repeated=body.request_id is not None and is_first,
            )
        )
        used = {task.run_id for task in tasks}
        await self._give_back([run_id for run_id in given if run_id not in used])
        return tasks

    async def _give_back(self, run_ids: Sequence[str]) -> None:
        """Release units of the agent that no run needs."""
        if self._worker.agent is not None and run_ids:
            await self._office.stores.agents.release(self._worker.agent, run_ids)

    async def _next_look_s(self) -> float:
        due = await self._office.stores.sweeps.next_due()
        if due is None:
            return self._slow_look_s
        return min(max((due - self._office.stores.clock.now()) / 1000, 0.0), self._slow_look_s)


async def begin_all(
    services: Services,
    tasks: Sequence[Task],
    lease_ms: int,
    give_back: Callable[[Sequence[str]], Awaitable[None]],
    versions: Mapping[str, str],
) -> list[RunGrant]:
    """Return the runs that can start now; the other tasks wait for locks or approvals, or have failed.

    `versions` are those of the worker's code.
    Locks are requested in task order: first come, first served.
    """
    locks = [await _locks(services, task, lease_ms) for task in tasks]
    begun = await asyncio.gather(
        *(
            _begin(services, task, held, lease_ms, versions.get(task.name, ""))
            for task, held in zip(tasks, locks, strict=True)
        )
    )
    grants = [grant for grant in begun if grant is not None]
    running = {grant.run_id for grant in grants}
    await give_back([task.run_id or "" for task in tasks if task.run_id not in running])
    return grants


async def _begin(
    services: Services, task: Task, locks: tuple[LockItem, ...] | Deferred | Failed, lease_ms: int, version: str
) -> RunGrant | None:
    try:
        outcome = await _check(services, task, version) if isinstance(locks, tuple) else locks
        if outcome is None and isinstance(locks, tuple):
            whole = structs.replace(task, args=await services.payloads.load(task.args))
            timeout_ms = run_timeout_ms(task)
            return RunGrant(run_id=task.run_id or "", task=whole, lease_ms=lease_ms, timeout_ms=timeout_ms, locks=locks)
    except AdeError as error:  # a task that cannot be checked or read must not block the others
        log.warning("run.not_begun", task_id=task.id, attempt=task.attempt, worker=task.worker_id, error=str(error))
        if isinstance(error, STORE_TROUBLE):
            reason = f"it could not begin: {error.detail}"[:2_000]
            outcome = Released(reason, _TROUBLE_DELAY_MS, has_begun=False)
        else:
            outcome = structs.replace(raised(error), has_begun=False)
    assert outcome is not None
    await _end(services, task, outcome)
    return None


async def _end(services: Services, task: Task, outcome: Outcome) -> None:
    try:
        await end(services, task, outcome)
    except AdeError as error:  # its lease expires on its own
        log.warning("run.not_ended", task_id=task.id, attempt=task.attempt, worker=task.worker_id, error=str(error))


async def _locks(services: Services, task: Task, lease_ms: int) -> tuple[LockItem, ...] | Deferred | Failed:
    """Acquire all locks of the task, or return how it waits for them, or fails without them."""
    if not task.locks:
        return ()
    resources = tuple(spec.resource for spec in task.locks)
    try:
        grant = await services.locks().grant(request_of(task, ttl_ms=lease_ms))
    except LockNotPermitted as error:
        return structs.replace(raised(error), has_begun=False)
    except AdeError as error:  # too many wait already
        log.warning("locks.not_asked_for", task_id=task.id, resources=resources, error=str(error))
        return Deferred(resources, STANDS_NOWHERE_MS)
    return Deferred(resources, RECHECK_MS) if grant is None else grant.items


async def _check(services: Services, task: Task, version: str) -> Outcome | None:
    """Check approvals like a worker on the store. ADE's internal tasks, which the check skips, never get here."""
    if task.review is None and not is_overdue(task, services.stores.clock.now()):
        rulebook, _ = await services.rules()
        if not rulebook.guard:
            return None
    from ade.approvals.run_gates import check_before_run

    return await check_before_run(services.stores, services.payloads, task, version=version)


# Operations of workers behind HTTP. All decisions are made here: a worker only reports what happened.
# A run belongs to the account that claimed it, and its ID is the fencing token: a run that has lost its task gets 409,
# and repeating a request after a lost response has no second effect.

_LARGEST_PROGRESS = 256 * 1024  # bytes


@operation("POST /runs/claim", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def claim_tasks(services: Services, request: RequestContext, body: Claim) -> Claimed:
    """Take tasks that are due; may wait for some. Locks of a task are held when it is returned; a task that must wait
    for locks or for people is not returned. Of a bound account, only its queues and names are claimed."""
    worker = await registered(services, request, body.worker)
    within = bound_claim(request, worker, body)
    return Claimed(runs=await ClaimRound(services, worker, account_of(request), within).run())


@operation("POST /runs/heartbeat", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def renew_runs(services: Services, request: RequestContext, body: RenewRuns) -> RemoteRunsRenewed:
    """Keep the leases of runs, and learn which were lost. Renews leases, locks and the units of an agent of the runs
    that still have them."""
    worker, now = await registered(services, request, body.worker), services.stores.clock.now()
    named = {run_id: task_id for run_id, task_id in body.runs.items() if is_task_id(task_id)}
    found = await services.stores.tasks.get(list(named.values()))
    of_runs = zip(named, found, strict=True)  # a run that names the task of another run renews nothing
    tasks = {run_id: task for run_id, task in of_runs if task is not None and task.run_id == run_id}
    late = [run_id for run_id, task in tasks.items() if is_late(task, now=now)]
    runs = {run_id: task_id for run_id, task_id in named.items() if run_id not in late}
    lease_ms = round(body.lease_s * 1000)
    worker = structs.replace(worker, running=len(body.runs), progress_at=now, draining=body.draining)
    renewal = (await asyncio.to_thread(services.stores.workers.renew, worker, runs, lease_ms=lease_ms)).complete()
    kept = {run_id: tasks[run_id] for run_id in runs if run_id not in renewal.gone and run_id in tasks}
    lock_lost = [run_id for run_id, task in kept.items() if not await has_its_locks(services, task)]
    await _keep_units(services, worker, kept, lease_ms)
    lost = {**{run_id: None for run_id in body.runs if run_id not in named}, **renewal.gone}
    gone = [GoneRun(run_id=run_id, task_id=body.runs[run_id], status=status) for run_id, status in lost.items()]
    return RemoteRunsRenewed(gone=gone, late=late, lock_lost=lock_lost)


async def _keep_units(services: Services, worker: Worker, kept: Mapping[str, Task], lease_ms: int) -> None:
    if worker.agent is None:
        return
    uses = await services.stores.agents.list_agents()
    agent = next((use.agent for use in uses if use.agent.id == worker.agent), None)
    if agent is not None:
        await asyncio.to_thread(services.stores.agents.renew, agent, list(kept), lease_ms=lease_ms)


@operation("POST /runs/{run_id}/complete", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def complete_run(services: Services, request: RequestContext, run_id: str, body: CompleteRun) -> RunEnd:
    """Hand in a result. Repeating it is harmless. A run that lost a lock fails, whatever it reports."""
    result, task = as_json(body.result), await task_of(services, body.task_id)
    if task is not None and await _has_this_result(services, task, run_id, result):
        return end_of(task)
    task = check_ending(request, run_id, body.task_id, task)
    return await _ended(services, task, await end(services, task, await succeeded(services, task, result)))


@operation("POST /runs/complete", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def complete_runs(services: Services, request: RequestContext, body: CompleteRuns) -> Page[CompletionReport]:
    """Report the results of several runs in one write. Each has its own report, in the order of the request. Repeating
    it is harmless."""
    ids = [each.task_id for each in body.runs if is_task_id(each.task_id)]
    tasks = dict(zip(ids, await services.stores.tasks.get(ids), strict=True))
    reports: dict[int, CompletionReport] = {}
    changes: dict[int, Change] = {}
    for place, each in enumerate(body.runs):
        task = tasks.pop(each.task_id, None)  # None for a task that was named before
        try:
            if task is None or task.locks or task.status is not Status.RUNNING:
                alone = CompleteRun(task_id=each.task_id, result=each.result)
                status = (await complete_run(services, request, each.run_id, alone)).status
                reports[place] = CompletionReport(task_id=each.task_id, run_id=each.run_id, status=status)
            else:
                check_held(request, each.run_id, task.id, task)
                outcome = await succeeded(services, task, as_json(each.result))
                changes[place] = settle(task, outcome, now=services.stores.clock.now(), randomness=random.random())
        except StoreError:
            raise
        except AdeError as error:
            reports[place] = report_of(each.task_id, each.run_id, error)
    refusals = await services.stores.tasks.commit_each(list(changes.values())) if changes else []
    for (place, change), refusal in zip(changes.items(), refusals, strict=True):
        reports[place] = report_of(change.task_id, change.before.run_id, refusal or change.after)
    log.info("runs.reported", runs=len(body.runs), rejected=sum(bool(report.code) for report in reports.values()))
    await _ring(services, *changes.values())
    for worker_id in {change.before.worker_id for change in changes.values()}:
        runs = [each.before.run_id or "" for each in changes.values() if each.before.worker_id == worker_id]
        await _release_units(services, worker_id, runs)
    return Page(items=[reports[place] for place in range(len(body.runs))])


async def _has_this_result(services: Services, task: Task, run_id: str, result: Raw) -> bool:
    if task.status is not Status.COMPLETED or task.run_id != run_id:
        return False
    kept = await result_of(services.stores, services.payloads, task)
    return kept is not None and bytes(kept) == bytes(result)


@operation("POST /runs/{run_id}/fail", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def fail_run(services: Services, request: RequestContext, run_id: str, body: FailRun) -> RunEnd:
    """Report a failure. Whether and when it is retried is decided as for every run."""
    failed = failure_of(body, details_size=len(msgspec.json.encode(body.error.details)))
    task = await task_of(services, body.task_id)
    if task is not None and has_failed_so(task, run_id, failed):
        return end_of(task)
    task = check_ending(request, run_id, body.task_id, task)
    return await _ended(services, task, await end(services, task, failed))


@operation("POST /runs/{run_id}/hold", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def hold_run(services: Services, request: RequestContext, run_id: str, body: HoldRun) -> RunHold:
    """Let the task wait for people. If people have not agreed yet, the run is over. Raises Denied."""
    from ade.approvals.run_gates import RunStep, request_step_approval

    task = await held(services, request, run_id, body.task_id)
    step = RunStep(
        step=f"tool {body.step}" if body.is_tool else body.step,
        about=as_json(body.about),
        policies=tuple(body.policies),
        reason=body.reason,
        is_tool=body.is_tool,
        judged=as_json(body.judged) if isinstance(body.judged, dict) else None,
        responses=body.responses,
    )
    worker = await worker_of(services, task.worker_id)
    version = "" if worker is None else worker.versions.get(task.name, "")
    decided = await request_step_approval(services.stores, task, step, version=version)
    if not isinstance(decided, Withheld):
        return RunHold(may_go_on=True, task_id=task.id, status=task.status, response=decided)
    after = await end(services, task, decided)
    await _ended(services, task, after)
    return RunHold(may_go_on=False, task_id=task.id, status=after.status)


@operation("POST /runs/{run_id}/release", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def release_run(services: Services, request: RequestContext, run_id: str, body: ReleaseRun) -> RunEnd:
    """Hand a task back unfinished. The attempt does not count."""
    task = await task_of(services, body.task_id)
    if task is not None and task.run_id == run_id and task.status is Status.PENDING:
        return end_of(task)
    task = check_ending(request, run_id, body.task_id, task)
    return await _ended(services, task, await end(services, task, Released(body.reason)))


@operation("POST /runs/{run_id}/progress", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def report_progress(services: Services, request: RequestContext, run_id: str, body: Progress) -> None:
    """Keep the newest progress."""
    task, progress = await held(services, request, run_id, body.task_id), as_json(body.progress)
    if len(progress) > _LARGEST_PROGRESS:
        raise PayloadTooLarge(f"progress has at most {_LARGEST_PROGRESS:,} bytes, not {len(progress):,}")
    await services.stores.tasks.report_progress(task.id, run_id, progress)


@operation("POST /runs/{run_id}/output", permission=Permission.WORK, traffic=TrafficClass.WORK, takes_key=False)
async def append_output(services: Services, request: RequestContext, run_id: str, body: AppendOutput) -> None:
    """Keep lines that the run has written."""
    task, now = await held(services, request, run_id, body.task_id), services.stores.clock.now()
    lines = [
        OutputLine(task_id=task.id, run_id=run_id, attempt=task.attempt, at=now, text=line.text, stream=line.stream)
        for line in body.lines
    ]
    await services.stores.outputs.append(lines)


async def _ended(services: Services, before: Task, after: Task) -> RunEnd:
    """Release the agent's capacity unit of the run."""
    if before.run_id is not None:
        await _release_units(services, before.worker_id, [before.run_id])
    return end_of(after)


async def _release_units(services: Services, worker_id: str | None, run_ids: Sequence[str]) -> None:
    worker = await worker_of(services, worker_id)
    if worker is not None and worker.agent is not None:
        await services.stores.agents.release(worker.agent, list(run_ids))
