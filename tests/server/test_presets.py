"""Priorities and delays by name, over HTTP: numbers come back."""

import pytest

from tests.domain import Role
from tests.server.conftest import ServerHarness


async def test_names_are_taken_and_numbers_answered(server: ServerHarness) -> None:
    made = await server.task(priority="urgent", backoff="1m,5m,15m")
    assert (made["priority"], made["backoff"]["steps_ms"]) == (1, [60_000, 300_000, 900_000])
    schedule = {"cron": "0 0 * * *", "task_name": "greet", "priority": "low"}
    saved = await server.ask("PUT", "/api/v1/schedules/nightly", schedule)
    assert saved.json()["priority"] == 7
    lock = await server.ask("POST", "/api/v1/locks/acquire", {"locks": ["repo:app"], "priority": "high"})
    assert lock.json()["priority"] == 3
    draft = await server.task(draft=True)
    edited = await server.ask("PATCH", f"/api/v1/tasks/{draft['id']}", {"priority": "high"}, if_match='"1"')
    assert edited.json()["priority"] == 3
    definition = {"name": "wave", "priority": "high", "backoff": "steps"}
    worker = {"hostname": "h", "pid": 1, "version": "0", "definitions": [definition]}
    registered = await server.ask("PUT", "/api/v1/workers/w-1", worker, by=Role.WORKER)
    assert registered.status == 200, registered
    [known] = [each for each in await server.stores.workers.definitions() if each.name == "wave"]
    assert (known.priority, known.backoff and known.backoff.steps_ms) == (3, (60_000, 300_000, 900_000))


@pytest.mark.parametrize("field", [{"priority": "asap"}, {"backoff": "linear"}])
async def test_an_unknown_name_is_a_problem_that_lists_the_others(
    server: ServerHarness, field: dict[str, object]
) -> None:
    answer = await server.ask("POST", "/api/v1/tasks", {"name": "greet", **field})
    assert (answer.status, answer.code) == (422, "invalid_task")
    assert "urgent (1)" in answer.json()["detail"] or "exponential or steps" in answer.json()["detail"]
