"""Workers behind HTTP, and the runs that are theirs."""

from ade.core.accounts.permissions import Permission
from ade.core.agents import Agent
from ade.core.errors import StaleLease, UnknownWorker
from ade.core.lifecycle import Status
from ade.core.records import Task, Worker
from ade.core.web.http_workers import owner_of, worker_id
from ade.governance.agents import unknown
from ade.operations.kit import Asked, Office
from ade.operations.owning import check_own
from ade.operations.task_access import check_id


def account_of(asked: Asked) -> str:
    """Whose workers and runs they are. On a local store whoever asks is the account."""
    return (asked.author or asked.actor).replace(":", "-") if asked.caller is None else asked.caller.user.id


async def agent_for(office: Office, asked: Asked, agent_id: str) -> Agent:
    """The agent that a worker says it works for: it must be known, and the caller's own unless he may operate.

    Raises UnknownAgent.
    """
    uses = await office.stores.agents.list_agents()
    agent = next((use.agent for use in uses if use.agent.id == agent_id), None)
    if agent is None:
        raise unknown(agent_id)
    if asked.caller is not None and Permission.OPERATE not in asked.caller.permissions:
        await check_own(office, asked, agent_id.partition("/")[0], unknown(agent_id))
    return agent


async def registered(office: Office, asked: Asked, name: str) -> Worker:
    """The caller's worker of this name. Raises UnknownWorker."""
    wanted = worker_id(account_of(asked), name)
    found = await worker_of(office, wanted)
    if found is None:
        raise UnknownWorker(f"{wanted} is not registered, or was silent for long; PUT it to /workers first")
    return found


async def worker_of(office: Office, wanted: str | None) -> Worker | None:
    return next((worker for worker in await office.stores.workers.list_workers() if worker.id == wanted), None)


async def task_of(office: Office, task_id: str) -> Task | None:
    check_id(task_id)
    [task] = await office.stores.tasks.get([task_id])
    return task


async def held(office: Office, asked: Asked, run_id: str, task_id: str) -> Task:
    """The task that this run holds, if the run is the caller's. Raises StaleLease."""
    return check_held(asked, run_id, task_id, await task_of(office, task_id))


def check_held(asked: Asked, run_id: str, task_id: str, task: Task | None) -> Task:
    if (
        task is None
        or task.status is not Status.RUNNING
        or task.run_id != run_id
        or owner_of(task.worker_id or "") != account_of(asked)
    ):
        raise StaleLease(f"run {run_id[:60]} does not hold task {task_id} (any more); end it, its outcome is not taken")
    return task
