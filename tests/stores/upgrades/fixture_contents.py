"""The contents of the fixtures, as a store of either kind has them after its upgrade."""

from ade import Status
from tests.domain import ClaimRequest, Stores, TaskQuery

TASKS = {
    ("greet", Status.COMPLETED),
    ("pay", Status.COMPLETED),
    ("fail", Status.FAILED),
    ("greet", Status.PENDING),
    ("greet", Status.CANCELLED),
    ("stay", Status.RUNNING),
}


async def check_contents(stores: Stores, version: int) -> None:
    """Everything that the code of this version wrote is there, and nothing is broken."""
    assert await stores.maintenance.check_invariants() == []
    tasks = (await stores.tasks.find(TaskQuery(limit=100))).tasks
    found = {(task.name, task.status) for task in tasks}
    assert found >= TASKS
    assert (("greet", Status.REVIEWING) in found) == (version >= 4)
    assert [task.error.message for task in tasks if task.error] == ["no such card"]
    assert [task.tags for task in tasks if task.idempotency_key == "greet-later"] == [("night",)]
    assert [schedule.name for schedule in await stores.schedules.list_schedules()] == ["nightly"]
    agents = [use.agent.id for use in await stores.agents.list_agents()]
    assert agents == (["coder"] if version >= 3 else [])
    request = ClaimRequest(worker_id="w1", run_ids=["a" * 32], names=frozenset({"greet"}))
    assert await stores.tasks.claim(request) == []  # what is pending waits for its time or for another task
