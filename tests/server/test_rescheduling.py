"""Rescheduling over HTTP: guarded by the version, and by who may change the task."""

from tests.domain import ClaimRequest, Role
from tests.server.conftest import ServerHarness


async def test_over_http(server: ServerHarness) -> None:
    task = await server.task(run_at="2040-01-01T00:00:00Z")
    path = f"/api/v1/tasks/{task['id']}/reschedule"

    now = await server.ask("POST", path, {"delay": 0, "priority": "urgent"})
    assert now.status == 200, now
    assert (now.json()["priority"], now.json()["run_after"] < "2040") == (1, True)
    assert now.json()["version"] == task["version"] + 1
    stale = await server.ask("POST", path, {"priority": 5}, if_match='"1"')
    assert (stale.status, stale.code) == (412, "precondition_failed")
    both = await server.ask("POST", path, {"delay": 0, "run_at": "2040-01-01T00:00:00Z"})
    assert (both.status, both.code) == (422, "invalid_task")
    [event] = [
        each
        for each in (await server.ask("GET", f"/api/v1/tasks/{task['id']}/events")).json()["items"]
        if each["type"] == "task.rescheduled"
    ]
    assert event["payload"]["before"]["run_after"] == "2040-01-01T00:00:00.000Z"
    [claim] = await server.stores.tasks.claim(
        ClaimRequest(worker_id="w1", run_ids=["0" * 32], names=frozenset({"greet"}))
    )
    running = await server.ask("POST", path, {"priority": 5})
    assert (claim.id, running.status, running.code) == (task["id"], 409, "illegal_transition")


async def test_an_agent_moves_only_its_own_tasks(sqlite_server: ServerHarness) -> None:
    server = sqlite_server
    others, own = await server.task(), await server.task(by=Role.AGENT)
    refused = await server.ask("POST", f"/api/v1/tasks/{others['id']}/reschedule", {"priority": 0}, by=Role.AGENT)
    assert refused.status == 404
    allowed = await server.ask("POST", f"/api/v1/tasks/{own['id']}/reschedule", {"priority": 8}, by=Role.AGENT)
    assert allowed.json()["priority"] == 8
    viewer = await server.ask("POST", f"/api/v1/tasks/{own['id']}/reschedule", {"priority": 8}, by=Role.VIEWER)
    assert viewer.status == 403
