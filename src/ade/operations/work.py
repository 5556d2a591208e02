"""The verbs of workers that live behind HTTP. Everything is decided here: a worker only says what happened.

A run belongs to the account that claimed it, and is fenced by its id: whoever has lost it is told so (409), and
whatever is repeated after a lost answer has no second effect.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Raw, structs

from ade.core.errors import PayloadTooLarge
from ade.core.ids import is_task_id
from ade.core.lifecycle import Status
from ade.core.outcome import Released
from ade.core.records import OutputLine, Task, Worker
from ade.core.web.forms.work import (
    AppendOutput,
    Claim,
    CompleteRun,
    FailRun,
    HoldRun,
    Progress,
    ReleaseRun,
    RenewRuns,
)
from ade.core.web.remote_runs import (
    Claimed,
    GoneRun,
    Renewed,
    RunEnd,
    RunHeld,
    end_of,
    failure_of,
    has_failed_so,
    is_late,
)
from ade.operations.kit import Asked, Office
from ade.operations.remote_workers import account_of, check_held, held, registered, task_of, worker_of
from ade.operations.run_begins import Claiming
from ade.operations.run_ends import as_json, end, has_its_locks, succeeded
from ade.queue.tasks import result_of

_LARGEST_PROGRESS = 256 * 1024  # bytes


async def claim_tasks(office: Office, asked: Asked, body: Claim) -> Claimed:
    """Tasks with locks come with them held; one that must wait for locks or for people does not come at all."""
    worker = await registered(office, asked, body.worker)
    return Claimed(runs=await Claiming(office, worker, account_of(asked), body).run())


async def renew_runs(office: Office, asked: Asked, body: RenewRuns) -> Renewed:
    """Leases, locks and the units of an agent are kept, for those who still have them."""
    worker, now = await registered(office, asked, body.worker), office.stores.clock.now()
    named = {run_id: task_id for run_id, task_id in body.runs.items() if is_task_id(task_id)}
    found = await office.stores.tasks.get(list(named.values()))
    of_runs = zip(named, found, strict=True)  # a run that is named with the task of another keeps nothing of that
    tasks = {run_id: task for run_id, task in of_runs if task is not None and task.run_id == run_id}
    late = [run_id for run_id, task in tasks.items() if is_late(task, now=now)]
    runs = {run_id: task_id for run_id, task_id in named.items() if run_id not in late}
    lease_ms = round(body.lease_s * 1000)
    worker = structs.replace(worker, running=len(body.runs), progress_at=now, draining=body.draining)
    renewal = await asyncio.to_thread(office.stores.workers.renew, worker, runs, lease_ms=lease_ms)
    kept = {run_id: tasks[run_id] for run_id in runs if run_id not in renewal.gone and run_id in tasks}
    lock_lost = [run_id for run_id, task in kept.items() if not await has_its_locks(office, task)]
    await _keep_units(office, worker, kept, lease_ms)
    lost = {**{run_id: None for run_id in body.runs if run_id not in named}, **renewal.gone}
    gone = [GoneRun(run_id=run_id, task_id=body.runs[run_id], status=status) for run_id, status in lost.items()]
    return Renewed(gone=gone, late=late, lock_lost=lock_lost)


async def _keep_units(office: Office, worker: Worker, kept: Mapping[str, Task], lease_ms: int) -> None:
    if worker.agent is None:
        return
    uses = await office.stores.agents.list_agents()
    agent = next((use.agent for use in uses if use.agent.id == worker.agent), None)
    if agent is not None:
        await asyncio.to_thread(office.stores.agents.renew, agent, list(kept), lease_ms=lease_ms)


async def complete_run(office: Office, asked: Asked, run_id: str, body: CompleteRun) -> RunEnd:
    """Repeating it is harmless. A run that has lost a lock has failed, whatever it says."""
    result, task = as_json(body.result), await task_of(office, body.task_id)
    if task is not None and await _has_this_result(office, task, run_id, result):
        return end_of(task)
    task = check_held(asked, run_id, body.task_id, task)
    return await _ended(office, task, await end(office, task, await succeeded(office, task, result)))


async def _has_this_result(office: Office, task: Task, run_id: str, result: Raw) -> bool:
    if task.status is not Status.COMPLETED or task.run_id != run_id:
        return False
    kept = await result_of(office.stores, office.payloads, task)
    return kept is not None and bytes(kept) == bytes(result)


async def fail_run(office: Office, asked: Asked, run_id: str, body: FailRun) -> RunEnd:
    """Whether and when it is tried again is decided as for every run."""
    failed = failure_of(body, details_size=len(msgspec.json.encode(body.error.details)))
    task = await task_of(office, body.task_id)
    if task is not None and has_failed_so(task, run_id, failed):
        return end_of(task)
    task = check_held(asked, run_id, body.task_id, task)
    return await _ended(office, task, await end(office, task, failed))


async def release_run(office: Office, asked: Asked, run_id: str, body: ReleaseRun) -> RunEnd:
    """The attempt does not count."""
    task = await task_of(office, body.task_id)
    if task is not None and task.run_id == run_id and task.status is Status.PENDING:
        return end_of(task)
    task = check_held(asked, run_id, body.task_id, task)
    return await _ended(office, task, await end(office, task, Released(body.reason)))


async def hold_run(office: Office, asked: Asked, run_id: str, body: HoldRun) -> RunHeld:
    """If people have not agreed yet the run is over. Raises Denied."""
    from ade.governance.approvals.steps import Step, hold

    task = await held(office, asked, run_id, body.task_id)
    step = Step(
        step=f"tool {body.step}" if body.is_tool else body.step,
        about=as_json(body.about),
        policies=tuple(body.policies),
        reason=body.reason,
        is_tool=body.is_tool,
        judged=as_json(body.judged) if isinstance(body.judged, dict) else None,
    )
    withheld = await hold(office.stores, task, step)
    if withheld is None:
        return RunHeld(may_go_on=True, task_id=task.id, status=task.status)
    after = await end(office, task, withheld)
    await _ended(office, task, after)
    return RunHeld(may_go_on=False, task_id=task.id, status=after.status)


async def report_progress(office: Office, asked: Asked, run_id: str, body: Progress) -> None:
    task, progress = await held(office, asked, run_id, body.task_id), as_json(body.progress)
    if len(progress) > _LARGEST_PROGRESS:
        raise PayloadTooLarge(f"progress has at most {_LARGEST_PROGRESS:,} bytes, not {len(progress):,}")
    await office.stores.tasks.report_progress(task.id, run_id, progress)


async def append_output(office: Office, asked: Asked, run_id: str, body: AppendOutput) -> None:
    task, now = await held(office, asked, run_id, body.task_id), office.stores.clock.now()
    lines = [
        OutputLine(task_id=task.id, run_id=run_id, attempt=task.attempt, at=now, text=line.text, stream=line.stream)
        for line in body.lines
    ]
    await office.stores.outputs.append(lines)


async def _ended(office: Office, before: Task, after: Task) -> RunEnd:
    """The unit of the agent that the run had is free."""
    worker = await worker_of(office, before.worker_id)
    if worker is not None and worker.agent is not None and before.run_id is not None:
        await office.stores.agents.release(worker.agent, [before.run_id])
    return end_of(after)
