"""Secret values are masked for accounts without the permission to read payloads, wherever they appear."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.domain import Definition, Permission, Role, Stores, Worker, create_token
from tests.server.conftest import ServerHarness, start_server
from tests.server.test_read_access import API, bound, first_events, govern
from tests.stores.urls import store_url

SECRET, PIN, KEY = "hunter2-the-password", 4711, "sk-live-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {
        "login": {"$ref": "#/$defs/Login"},
        "pin": {"type": "integer", "x-secret": True},
        "to": {"type": "string"},
    },
    "$defs": {"Login": {"type": "object", "properties": {"password": {"type": "string", "x-secret": True}}}},
}
ARGS = {"login": {"name": "ada", "password": SECRET}, "pin": PIN, "to": "rent"}
MASKED = "[masked]"


async def define(stores: Stores) -> None:
    worker = Worker(id="w", hostname="h", pid=1, started_at=0, version="0", names=("pay",))
    await stores.workers.register(worker, [Definition(name="pay", schema=SCHEMA)], 600_000)


@pytest.fixture(params=["sqlite", "valkey"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerHarness]:
    patterns = {"http.masked_fields": ("*token*",), "http.masked_patterns": (r"sk-live-\w+",)}
    async with start_server(store_url(request.param, tmp_path), tmp_path, **patterns) as each:
        await define(each.stores)
        yield each


async def paid(server: ServerHarness, **fields: Any) -> dict[str, Any]:
    """A task with secrets, whose result, error, progress, and output repeat them."""
    task = await server.task(name="pay", args=ARGS, description=f"with {KEY}", **fields)
    server.tokens.setdefault("payer", await bound(server.stores, "payer"))
    claim = {"worker": "w1", "names": ["pay"], "count": 1}
    await server.ask("PUT", f"{API}/workers/w1", {"definitions": [{"name": "pay", "schema": SCHEMA}]}, by="payer")
    [grant] = (await server.ask("POST", f"{API}/runs/claim", claim, by="payer")).json()["runs"]
    assert grant["task"]["args"] == ARGS  # who runs it needs them
    about = {"task_id": task["id"]}
    place = f"{API}/runs/{grant['run_id']}"
    for path, body in (
        ("output", {"lines": [{"text": f"signing in with {SECRET}"}]}),
        ("progress", {"progress": {"with": SECRET, "api_token": "abc"}}),
        ("fail", {"error": {"type": "Wrong", "message": f"{SECRET} was wrong, and {KEY}", "retryable": False}}),
    ):
        answer = await server.ask("POST", f"{place}/{path}", {**about, **body}, by="payer")
        assert answer.status < 300, answer
    return task


READS = ("", "/result", "/output", "/events", "/explain")


async def test_a_viewer_sees_masks_and_an_operator_the_values(server: ServerHarness) -> None:
    task = await paid(server)
    paths = [*(f"/tasks/{task['id']}{part}" for part in READS), "/tasks", f"/tasks?ids={task['id']}", "/dlq"]
    paths += ["/dlq/groups", "/events?after=0&limit=200", f"/tasks/{task['id']}?whole=true"]
    shown = ""
    for path in paths:
        answer = await server.ask("GET", API + path, by=Role.VIEWER)
        assert answer.status == 200, answer
        for secret in (SECRET, str(PIN), KEY, '"abc"'):
            assert secret not in answer.body.decode(), (path, answer)
        shown += (await server.ask("GET", API + path)).body.decode()
    assert all(secret in shown for secret in (SECRET, str(PIN), KEY, '"abc"'))

    seen = (await server.ask("GET", f"{API}/tasks/{task['id']}", by=Role.VIEWER)).json()
    assert seen["args"] == {"login": {"name": "ada", "password": MASKED}, "pin": MASKED, "to": "rent"}
    assert seen["error"]["message"] == f"{MASKED} was wrong, and {MASKED}"
    assert seen["description"] == f"with {MASKED}"
    assert seen["progress"] == {"with": MASKED, "api_token": MASKED}


async def test_of_large_arguments_nothing_is_repeated(server: ServerHarness) -> None:
    """They are not in the record: a list does not load them to find their secrets in other text."""
    for _ in range(2):
        await server.task(name="pay", args={**ARGS, "to": "x" * 200_000}, description=f"with {SECRET}")
    [one, other] = (await server.ask("GET", f"{API}/tasks", by=Role.VIEWER)).json()["items"]
    assert (one["description"], other["description"]) == (MASKED, MASKED)
    alone = await server.ask("GET", f"{API}/tasks/{one['id']}?whole=true", by=Role.VIEWER)
    assert alone.json()["description"] == f"with {MASKED}"
    assert SECRET not in alone.body.decode()


async def test_streams_are_masked_too(server: ServerHarness) -> None:
    task = await paid(server)
    assert SECRET not in await first_events(server, Role.VIEWER, "task.failed")
    assert SECRET in await first_events(server, Role.OPERATOR, "task.failed")
    lines = await server.ask("GET", f"{API}/tasks/{task['id']}/output", by=Role.VIEWER, accept="text/event-stream")
    assert f"signing in with {MASKED}" in lines.body.decode()


async def test_reviewers_see_what_they_sign_and_which_values_are_masked(server: ServerHarness) -> None:
    await govern(server, "pay", "money")
    task = await server.task(name="pay", args=ARGS)
    place = f"{API}/approvals/{task['id']}"
    shown = (await server.ask("GET", place, by=Role.REVIEWER)).json()
    assert shown["args"] == {"login": {"name": "ada", "password": MASKED}, "pin": MASKED, "to": "rent"}
    assert sorted(shown["masked"]) == ["login.password", "pin"]
    gate = shown["review"]["gates"][0]
    assert gate["signed"]["args"] == shown["args"]
    whole = (await server.ask("GET", place, by=Role.ADMIN)).json()
    assert (whole["args"], whole.get("masked", [])) == (ARGS, [])
    assert gate["digest"] == whole["review"]["gates"][0]["digest"]  # of the real values

    listed = (await server.ask("GET", f"{API}/approvals?mine=false", by=Role.REVIEWER)).json()["items"][0]
    assert listed["arguments"].startswith('{"login":{"name":"ada","password":"[masked]"}')

    seen = {"approval": gate["id"], "digest": gate["digest"]}
    amended = {**seen, "args": {**shown["args"], "to": "mallory"}}
    refused = await server.ask("POST", f"{place}/amend", amended, by=Role.REVIEWER)
    assert (refused.status, refused.code) == (422, "invalid_task"), refused
    voted = await server.ask("POST", f"{place}/respond", {**seen, "decision": "approve"}, by=Role.REVIEWER)
    assert voted.json()["task"]["status"] == "pending", voted
    assert SECRET not in voted.body.decode()


async def test_a_change_of_a_masked_argument_is_masked(server: ServerHarness) -> None:
    await govern(server, "pay", "money")
    task = await server.task(name="pay", args=ARGS)
    place = f"{API}/approvals/{task['id']}"
    gate = (await server.ask("GET", place, by=Role.ADMIN)).json()["review"]["gates"][0]
    other = {**ARGS, "login": {"name": "ada", "password": "another-secret"}, "to": "bob"}
    amended = {"approval": gate["id"], "digest": gate["digest"], "args": other}
    assert (await server.ask("POST", f"{place}/amend", amended, by=Role.REVIEWER)).status == 200
    shown = await server.ask("GET", place, by=Role.REVIEWER)
    changes = {each["path"]: each for each in shown.json()["review"]["gates"][-1]["changes"]}
    assert changes["args.login.password"]["after"] == MASKED
    assert changes["args.to"]["after"] == "bob"
    assert SECRET not in shown.body.decode()
    assert "another-secret" not in shown.body.decode()


async def test_the_role_payload_reader_and_the_scope_take_masks_away(server: ServerHarness) -> None:
    task = await paid(server)
    path = f"{API}/tasks/{task['id']}"
    assert SECRET in (await server.ask("GET", path, by=Role.PAYLOAD_READER)).body.decode()
    for scopes, is_masked in (({Permission.READ}, True), ({Permission.READ, Permission.READ_PAYLOADS}, False)):
        secret, _ = await create_token(server.stores, "the-operator", scopes=frozenset(scopes))
        server.tokens["scoped"] = secret
        answer = await server.ask("GET", path, by="scoped")
        # It wrote the task: what an account wrote is not masked for it.
        assert SECRET in answer.body.decode()
        secret, _ = await create_token(server.stores, "the-payload-reader", scopes=frozenset(scopes))
        server.tokens["scoped"] = secret
        answer = await server.ask("GET", path, by="scoped")
        assert (SECRET not in answer.body.decode()) is is_masked


async def test_schedules_are_masked_by_the_schema_of_their_task(server: ServerHarness) -> None:
    body = {"cron": "0 0 1 1 *", "task_name": "pay", "args": ARGS}
    assert (await server.ask("PUT", f"{API}/schedules/rent", body)).status < 300
    for path in ("/schedules", "/schedules/rent"):
        answer = await server.ask("GET", API + path, by=Role.VIEWER)
        assert SECRET not in answer.body.decode()
        assert MASKED in answer.body.decode()


async def test_an_export_of_the_audit_log_is_never_masked_but_refused(server: ServerHarness) -> None:
    await server.token(Role.ADMIN)
    secret, _ = await create_token(server.stores, "the-admin", scopes=frozenset({Permission.ADMINISTER}))
    server.tokens["exporting"] = secret
    answer = await server.ask("GET", f"{API}/audit/export", by="exporting")
    assert (answer.status, answer.code) == (403, "not_permitted")
    assert (await server.ask("GET", f"{API}/audit/export", by=Role.ADMIN)).status == 200


async def test_without_secrets_nothing_is_masked(sqlite_server: ServerHarness) -> None:
    """As before: a viewer of an app that declares no secrets sees all."""
    task = await sqlite_server.task(args={"password": SECRET})
    answer = await sqlite_server.ask("GET", f"{API}/tasks/{task['id']}", by=Role.VIEWER)
    assert answer.json()["args"] == {"password": SECRET}
