"""Tasks by team and ticket, over HTTP."""

import pytest

from tests.server.conftest import ServerHarness


async def test_a_list_has_the_tasks_of_a_team_or_a_ticket(server: ServerHarness) -> None:
    made = await server.task(team="support", ticket="OPS-7")
    other = await server.task(team="support", ticket="OPS-8")
    await server.task(team="search")
    assert (made["team"], made["ticket_ref"]) == ("support", "OPS-7")
    for query, ids in (
        ("team=support", [other["id"], made["id"]]),
        ("ticket=OPS-7", [made["id"]]),
        ("team=support&ticket=OPS-8", [other["id"]]),
        ("team=search&ticket=OPS-8", []),
    ):
        answer = await server.ask("GET", f"/api/v1/tasks?{query}")
        assert [task["id"] for task in answer.json()["items"]] == ids
    done = await server.ask(
        "POST", "/api/v1/bulk-actions", {"action": "cancel", "filter": {"ticket": "OPS-7"}, "reason": "no need"}
    )
    assert done.json()["changed"] == [made["id"]], done


@pytest.mark.parametrize("field", ["team", "ticket"])
@pytest.mark.parametrize("value", ["", "x" * 201, "a\nb"])
async def test_odd_labels_are_refused(server: ServerHarness, field: str, value: str) -> None:
    answer = await server.ask("POST", "/api/v1/tasks", {"name": "greet", field: value})
    assert (answer.status, answer.code) == (422, "invalid_task")
    assert f"{field} must have 1 to 200 printable characters" in answer.json()["detail"]
