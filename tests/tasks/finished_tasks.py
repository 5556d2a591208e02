"""Tasks that were run by some worker of ADE's own, or approved by people."""

from ade import Task
from ade.approvals.service import vote
from ade.approvals.votes import VoteRequest, gate_for
from ade.failures import FailureKind, TaskError
from ade.tasks.api import create
from ade.tasks.decisions import fail_run
from tests.domain import ClaimRequest, Decision, Failed, NewTask, RequestContext, Role
from tests.server.operations import LOCAL, Operations


async def failed(
    ops: Operations, message: str = "no luck", *, request: RequestContext = LOCAL, **options: object
) -> Task:
    """A dead letter."""
    stores = ops.services.stores
    made = await create.create_task(ops.services, request, NewTask(name="greet", priority=0, **options))  # type: ignore[arg-type]
    [run] = await stores.tasks.claim(
        ClaimRequest(worker_id="w", run_ids=[f"run-{made.id}"], names=frozenset({"greet"}))
    )
    assert run.id == made.id
    error = TaskError(kind=FailureKind.UNRECOVERABLE, type="ValueError", message=message)
    change = fail_run(run, Failed(error), now=ops.clock.now(), randomness=0.5)
    await stores.tasks.commit(change)
    return change.after


async def approved(ops: Operations, task: Task) -> Task:
    """By somebody else."""
    reviewer = await ops.account("rita", Role.REVIEWER)
    gate = gate_for(task)
    ballot = VoteRequest(voter=reviewer.id, decision=Decision.APPROVE, approval=gate.id, digest=gate.digest)
    return await vote(ops.services.stores, task.id, ballot)
