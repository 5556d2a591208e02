"""What there is not is answered 404, with a code that says what it is."""

import pytest

from tests.domain import Role
from tests.server.conftest import PASSWORD, ServerHarness

APPROVALS = "/api/v1/approvals"
DIGEST = "0" * 64


async def test_a_task_that_nobody_has_to_approve_has_no_approval(server: ServerHarness) -> None:
    task = await server.task()
    asked = await server.ask("GET", f"{APPROVALS}/{task['id']}")
    answer = {"decision": "approve", "approval": f"{task['id']}.1", "digest": DIGEST}
    answered = await server.ask("POST", f"{APPROVALS}/{task['id']}/respond", answer, by=Role.REVIEWER)
    await server.person("rita", Role.REVIEWER, password=PASSWORD)
    session = await server.signed_in("rita")
    delegate = {"to": "the-operator"}
    given = await server.ask("POST", f"{APPROVALS}/{task['id']}/delegate", delegate, by=None, headers=session)

    for missing in (asked, answered, given):
        assert (missing.status, missing.code) == (404, "unknown_approval"), missing
        assert missing.json()["detail"] == f"no approval is needed for task {task['id']}"


async def test_an_account_that_never_was_has_no_figures(server: ServerHarness) -> None:
    known = await server.ask("GET", f"{APPROVALS}/stats/The-Operator")
    assert (known.status, known.json()["account"]) == (200, "the-operator")
    unknown = await server.ask("GET", f"{APPROVALS}/stats/nobody")
    assert (unknown.status, unknown.code) == (404, "unknown_account")


@pytest.mark.parametrize(
    "path",
    ["users/nobody", "queues/nowhere", "schedules/never", "agents/nobody", "tokens/none", "config/no.such", "nowhere"],
)
async def test_what_is_missing_is_told_without_a_command(sqlite_server: ServerHarness, path: str) -> None:
    """Commands are advice of their own, for who sits at a command line."""
    answer = await sqlite_server.ask("GET", f"/api/v1/{path}", by=Role.ADMIN)
    told = answer.json()

    assert (answer.status, told["code"] == answer.code) == (404, True)
    for name in ("title", "detail"):
        assert "`ade" not in told[name]
        assert "--" not in told[name]
    assert path == "nowhere" or told.get("advice", "`ade").startswith("`ade")


async def test_a_stranger_is_told_how_to_show_who_he_is_over_http(sqlite_server: ServerHarness) -> None:
    answer = await sqlite_server.ask("GET", "/api/v1/tasks", by=None)

    assert (answer.status, answer.code) == (401, "not_authenticated")
    assert "Authorization: Bearer" in answer.json()["detail"]
    assert "ade tokens create" in answer.json()["advice"]
