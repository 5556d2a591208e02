"""Tasks that were run by some worker of ADE's own, or approved by people."""

from ade.core.accounts.permissions import Role
from ade.core.approvals.records import Decision
from ade.core.approvals.voting import Ballot, gate_for
from ade.core.failure import FailureKind, TaskError
from ade.core.outcome import Failed
from ade.core.records import Task
from ade.core.task import fail_run
from ade.core.web.forms.tasks import NewTask
from ade.governance.approvals.voting import vote
from ade.operations import tasks
from ade.operations.kit import Asked
from ade.ports import ClaimRequest
from tests.operations.conftest import LOCAL, Desk


async def failed(desk: Desk, message: str = "no luck", *, asked: Asked = LOCAL, **options: object) -> Task:
    """A dead letter."""
    stores = desk.office.stores
    made = await tasks.create_task(desk.office, asked, NewTask(name="greet", priority=0, **options))  # type: ignore[arg-type]
    [run] = await stores.tasks.claim(
        ClaimRequest(worker_id="w", run_ids=[f"run-{made.id}"], names=frozenset({"greet"}))
    )
    assert run.id == made.id
    error = TaskError(kind=FailureKind.UNRECOVERABLE, type="ValueError", message=message)
    change = fail_run(run, Failed(error), now=desk.clock.now(), dice=0.5)
    await stores.tasks.commit(change)
    return change.after


async def approved(desk: Desk, task: Task) -> Task:
    """By somebody else."""
    reviewer = await desk.account("rita", Role.REVIEWER)
    ballot = Ballot(voter=reviewer.id, decision=Decision.APPROVE, digest=gate_for(task).digest)
    return await vote(desk.office.stores, task.id, ballot)
