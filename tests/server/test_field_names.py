"""A field has one name in requests and responses; requests accept the earlier names as well."""

import pytest

from ade.server.openapi import description
from tests.domain import Role
from tests.server.conftest import PASSWORD, ServerHarness

API = "/api/v1"
SCHEMAS = description()["components"]["schemas"]
# Request type, response type, and the fields that only the request has: instructions, and what ADE computes with.
PAIRS = [
    ("NewTask", "Task", {"delay", "draft", "run", "policies", "start", "not_before", "not_after", "allow_unknown"}),
    ("EditTask", "Task", set()),
    ("TaskFilter", "Task", {"tag", "resource", "text", "created_from", "created_before"}),
    ("NewDefinition", "Definition", {"rate"}),
    ("NewDelegation", "Delegation", set()),
    ("DelegateApproval", "Delegation", {"approval"}),
    ("PutSchedule", "Schedule", {"allow_unknown"}),
    ("NewWebhook", "WebhookWithSecret", set()),
    ("ChangeWebhook", "WebhookView", {"reason"}),
    ("NewChannel", "ChannelWithSecret", set()),
    ("ChangePreferences", "PreferencesView", set()),
    ("NewUser", "UserView", {"password"}),
    ("ChangeUser", "UserView", {"more_roles", "fewer_roles"}),
    ("NewToken", "CreatedToken", {"seconds"}),
    ("SignIn", "SignedIn", {"password"}),
    ("NewInboxItem", "ItemView", set()),
    ("AcquireLocks", "LockRequest", {"locks", "wait", "stay", "run", "run_task"}),
    ("RegisterAgent", "AgentView", set()),
    ("RegisterWorker", "Worker", {"definitions", "ttl"}),
    ("AnswerApproval", "VoteView", {"approval", "digest", "args", "password"}),
    ("CompleteRun", "StoredTaskResult", set()),
    ("RunError", "TaskError", set()),
    ("OutputText", "OutputLine", set()),
    ("NewComment", "Comment", set()),
]


@pytest.mark.parametrize(("request_type", "response_type", "only_requested"), PAIRS)
def test_a_request_names_its_fields_as_the_response_does(
    request_type: str, response_type: str, only_requested: set[str]
) -> None:
    sent, returned = SCHEMAS[request_type]["properties"].keys(), SCHEMAS[response_type]["properties"].keys()

    assert sent - returned == only_requested


async def test_a_task_is_created_with_the_names_that_it_is_read_with(sqlite_server: ServerHarness) -> None:
    parent, first = (await sqlite_server.task())["id"], (await sqlite_server.task())["id"]
    fields = {
        "idempotency_key": "k", "depends_on": [first], "parent_id": parent, "ticket_ref": "OPS-7",
        "run_after": "2096-01-31T12:00:00.000Z", "timeout_ms": 1_500, "result_ttl_ms": 60_000,
    }  # fmt: skip

    task = await sqlite_server.task(**fields)

    assert {name: task[name] for name in fields} == fields
    filters = f"parent_id={parent}&ticket_ref=OPS-7&author_id={task['author_id']}"
    found = (await sqlite_server.ask("GET", f"{API}/tasks?{filters}")).json()["items"]
    assert [each["id"] for each in found] == [task["id"]]


async def test_requests_accept_the_earlier_names(sqlite_server: ServerHarness) -> None:
    parent, first = (await sqlite_server.task())["id"], (await sqlite_server.task())["id"]
    earlier = {
        "key": "k", "after": [first], "parent": parent, "ticket": "OPS-7",
        "run_at": "2096-01-31T12:00:00.000Z", "timeout": 1.5, "result_ttl": 60,
    }  # fmt: skip

    task = await sqlite_server.task(**earlier)

    assert (task["idempotency_key"], task["depends_on"], task["parent_id"]) == ("k", [first], parent)
    assert (task["timeout_ms"], task["result_ttl_ms"], task["ticket_ref"]) == (1_500, 60_000, "OPS-7")
    assert task["run_after"] == earlier["run_at"]
    filters = f"parent={parent}&ticket=OPS-7&author={task['author_id']}"
    found = (await sqlite_server.ask("GET", f"{API}/tasks?{filters}")).json()["items"]
    assert [each["id"] for each in found] == [task["id"]]
    many = await sqlite_server.ask("POST", f"{API}/tasks/bulk", {"tasks": [{"name": "greet", "ticket": "OPS-8"}]})
    assert [each["ticket_ref"] for each in many.json()["items"]] == ["OPS-8"]
    bulk = {"action": "cancel", "filter": {"ticket": "OPS-8"}}
    assert (await sqlite_server.ask("POST", f"{API}/bulk-actions/preview", bulk)).json()["count"] == 1
    await sqlite_server.ask("PUT", f"{API}/workers/w9", {"definitions": [{"name": "greet"}]}, by=Role.WORKER)
    claim = {"worker": "w9", "names": ["greet"], "lease_s": 30}
    claimed = await sqlite_server.ask("POST", f"{API}/runs/claim", claim, by=Role.WORKER)
    assert [run["lease_ms"] for run in claimed.json()["runs"]] == [30_000]
    await sqlite_server.person("grace", Role.VIEWER, password=PASSWORD)
    signed_in = await sqlite_server.ask("POST", f"{API}/sessions", {"name": "grace", "password": PASSWORD}, by=None)
    assert signed_in.json()["account"] == "grace"


async def test_a_field_under_both_of_its_names_is_rejected(sqlite_server: ServerHarness) -> None:
    body = {"name": "greet", "key": "a", "idempotency_key": "b"}
    refused = await sqlite_server.ask("POST", f"{API}/tasks", body)

    assert (refused.status, refused.code) == (422, "invalid_body")
    assert "key and idempotency_key are the same field; send only idempotency_key" in refused.body.decode()
    refused = await sqlite_server.ask("GET", f"{API}/tasks?ticket=a&ticket_ref=b")
    assert (refused.status, refused.code) == (400, "bad_request")


async def test_an_earlier_name_of_a_duration_has_the_same_bounds(sqlite_server: ServerHarness) -> None:
    for body in ({"timeout": 0}, {"timeout_ms": 0}, {"timeout": "5m"}, {"timeout": True}):
        refused = await sqlite_server.ask("POST", f"{API}/tasks", {"name": "greet", **body})
        assert refused.status == 422, body
    for lease in ({"lease_s": 0.5}, {"lease_ms": 500}):
        claim = {"worker_id": "w9", "names": ["greet"], **lease}
        assert (await sqlite_server.ask("POST", f"{API}/runs/claim", claim, by=Role.WORKER)).status == 422
