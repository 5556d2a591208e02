"""Agents and workers read their own tasks, the children of these, and their queues; on every route that reads."""

from typing import Any

import msgspec
import pytest

from tests.accounts.issued_tokens import OWNER, token_of
from tests.domain import (
    ROUTE_OF,
    ROUTES,
    DocumentWrite,
    Permission,
    Role,
    Stores,
    User,
    add_user,
    create_token,
    list_users,
)
from tests.server.conftest import Answer, ServerHarness

API = "/api/v1"
NOBODYS = "01a1e503-5dba-7f16-87d1-29e75c2bd002"
MARK = "of-somebody-else"

# Requests for something of others, one line for each route that shows limited accounts a part. A new route without a
# line fails. A path with a parameter is answered as if there were nothing, and a list does not contain the mark.
SCOPED = {
    "list_tasks": "/tasks?limit=200",
    "get_task": "/tasks/{task}",
    "get_task_result": "/tasks/{task}/result",
    "get_task_output": "/tasks/{task}/output",
    "list_task_events": "/tasks/{task}/events",
    "explain_task": "/tasks/{task}/explain",
    "list_dead_letters": "/dlq",
    "list_dead_letter_groups": "/dlq/groups",
    "list_approvals": "/approvals?mine=false",
    "get_approval": "/approvals/{governed}",
    "list_delegations": "/delegations",
    "get_delegation": "/delegations/{task}",
    "list_locks": "/locks",
    "list_agents": "/agents",
    "get_agent": "/agents/{mark}",
    "list_subagents": "/subagents",
    "get_subagent": "/subagents/{run}",
    "list_workers": "/workers",
    "get_worker": "/workers/w",
    "list_queues": "/queues",
    "get_queue": "/queues/{mark}",
    "list_schedules": "/schedules",
    "get_schedule": "/schedules/{mark}",
    "list_inboxes": "/inboxes",
    "get_inbox": "/inboxes/{mark}",
    "list_users": "/users",
    "get_user": "/users/{mark}",
    "list_events": "/events?after=0&limit=200",
}


def test_every_route_that_reads_states_what_limited_accounts_read() -> None:
    reading = [route for route in ROUTES if not route.mutates]
    assert all(route.reads is not None for route in reading)
    assert {route.operation for route in reading if route.reads == "scoped"} == set(SCOPED)
    shared = {route.path.removeprefix(API).split("/")[1] for route in reading if route.reads == "shared"}
    assert shared == {"definitions", "policies", "config", "features"}  # they name no task


async def govern(server: ServerHarness, name: str, reason: str) -> None:
    """Tasks of this name need a reviewer from now on."""
    demand = {"do": "demand", "name": name, "policy": "one", "reason": reason}
    policy = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
    rules = {"guard": [demand], "policy": [policy], "risk": {"unknown_resources": "low"}}
    answer = await server.ask("PUT", f"{API}/policies", {"rules": rules}, by=Role.ADMIN, if_match="*")
    assert answer.status == 200, answer


async def others(server: ServerHarness) -> dict[str, str]:
    """Something of everything, with a mark, of others."""
    await server.person(MARK, Role.VIEWER)
    task = await server.task(description=MARK, tags=[MARK], args={"text": MARK}, queue=MARK)
    server.tokens[MARK] = await bound(server.stores, "foreign")
    failed = await server.task(name="fails", description=MARK, allow_unknown=True)
    grant = await run(server, "fails", MARK)
    error = {"task_id": failed["id"], "error": {"type": "Wrong", "message": MARK, "retryable": False}}
    ended = await server.ask("POST", f"{API}/runs/{grant['run_id']}/fail", error, by=MARK)
    assert ended.status == 200, ended
    await govern(server, "governed", MARK)
    governed = await server.task(name="governed", description=MARK, allow_unknown=True)
    await server.stores.workers.register(
        msgspec.structs.replace((await server.stores.workers.list_workers())[0], names=("greet", "agent:of-others")),
        [],
        600_000,
    )
    agent_run = await server.task(name="agent:of-others", description=MARK, allow_unknown=True)
    for method, path, body in (
        ("PUT", f"/agents/{MARK}", {"max_tasks": 1}),
        ("PUT", f"/schedules/{MARK}", {"cron": "0 0 1 1 *", "task_name": "greet"}),
        ("POST", f"/inboxes/{MARK}/items", {"items": [{"content": MARK}]}),
        ("POST", "/locks/acquire", {"locks": [f"file:{MARK}-name"], "purpose": MARK, "ttl": 60}),
    ):
        answer = await server.ask(method, API + path, body)
        assert answer.status < 300, answer
    return {"task": task["id"], "run": agent_run["id"], "governed": governed["id"], "mark": MARK}


@pytest.mark.parametrize("role", [Role.AGENT, Role.WORKER])
async def test_what_is_of_others_is_not_found_and_not_listed(server: ServerHarness, role: Role) -> None:
    made = await others(server)
    for operation, template in SCOPED.items():
        path = API + template.format(**made)
        seen = await server.ask("GET", path, by=Role.VIEWER)
        assert seen.status == 200 or operation == "get_delegation", (operation, seen)
        answer = await server.ask("GET", path, by=role)
        if "{" in ROUTE_OF[operation].path:
            nobodys = API + template.format(task=NOBODYS, run=NOBODYS, governed=NOBODYS, mark="nobody-at-all")
            assert answer.status == 404, (operation, answer)
            assert answer.code == (await server.ask("GET", nobodys, by=role)).code
        else:
            assert answer.status == 200, (operation, answer)
            text = answer.body.decode().replace(f"file:{MARK}-name", "")  # that something is locked can be seen
            assert MARK not in text, (operation, text)
            assert MARK in seen.body.decode() or operation in ("list_delegations", "list_workers"), (operation, seen)


async def test_what_shows_everything_is_for_accounts_that_read_everything(server: ServerHarness) -> None:
    for route in ROUTES:
        if route.reads == "all" and Permission.READ in route.needs:
            path = route.path.format(**dict.fromkeys(route.parameters, "the-viewer"))
            answer = await server.ask("GET", path, by=Role.AGENT)
            assert (answer.status, answer.code) == (403, "not_permitted"), answer
            assert "role viewer" in answer.json()["detail"]
            assert (await server.ask("GET", path, by=Role.VIEWER)).status == 200


async def ids(server: ServerHarness, by: str, query: str = "") -> set[str]:
    answer = await server.ask("GET", f"{API}/tasks?limit=200{query}", by=by)
    assert answer.status == 200, answer
    return {task["id"] for task in answer.json()["items"]}


async def test_an_agent_reads_what_it_wrote(server: ServerHarness) -> None:
    theirs = (await server.task())["id"]
    own = (await server.task(Role.AGENT, description="mine"))["id"]
    assert await ids(server, Role.AGENT) == {own}
    assert await ids(server, Role.AGENT, f"&ids={own}&ids={theirs}") == {own}
    assert await ids(server, Role.AGENT, "&author=the-operator") == set()
    assert await ids(server, Role.AGENT, "&text=mine") == {own}
    assert await ids(server, Role.VIEWER) == {own, theirs}
    for part in ("", "/result", "/output", "/events", "/explain"):
        assert (await server.ask("GET", f"{API}/tasks/{own}{part}", by=Role.AGENT)).status == 200
    events = (await server.ask("GET", f"{API}/events?after=0&limit=200", by=Role.AGENT)).json()["items"]
    assert {event["task_id"] for event in events if "task_id" in event} == {own}
    counted = await server.ask("GET", f"{API}/tasks?count=true", by=Role.AGENT)
    assert (counted.status, counted.code) == (400, "invalid_filter")


async def run(server: ServerHarness, name: str, by: str) -> dict[str, Any]:
    """Claim a task of this name."""
    definition = {"worker": "w1", "names": [name], "count": 1}
    put = await server.ask("PUT", f"{API}/workers/w1", {"definitions": [{"name": name}]}, by=by)
    assert put.status in (200, 201), put
    claimed = await server.ask("POST", f"{API}/runs/claim", definition, by=by)
    assert claimed.status == 200, claimed
    [grant] = claimed.json()["runs"]
    found: dict[str, Any] = grant
    return found


async def test_a_worker_reads_what_it_ran_and_the_children_of_that(server: ServerHarness) -> None:
    other = (await server.task(name="greet"))["id"]
    parent = (await server.task(name="mail", allow_unknown=True))["id"]
    grant = await run(server, "mail", Role.WORKER)
    assert grant["task"]["id"] == parent
    child = await server.task(Role.WORKER, parent=parent, run=grant["run_id"])
    assert child["author_id"] == "the-operator"
    assert await ids(server, Role.WORKER) == {parent, child["id"]}
    assert (await server.ask("GET", f"{API}/tasks/{child['id']}", by=Role.WORKER)).status == 200
    assert (await server.ask("GET", f"{API}/tasks/{other}", by=Role.WORKER)).status == 404


async def bound(stores: Stores, name: str, role: Role = Role.WORKER, **fields: Any) -> str:
    if OWNER not in {user.id for user in await list_users(stores)}:
        await add_user(stores, User(id=OWNER, roles=frozenset({Role.OPERATOR})))
    return await token_of(stores, User(id=name, roles=frozenset({role}), is_human=False, owner=OWNER, **fields))


async def test_an_account_reads_the_queues_that_it_is_bound_to(server: ServerHarness) -> None:
    server.tokens["mailer"] = await bound(server.stores, "mailer", queues=("mail",))
    server.tokens["narrow"] = await bound(server.stores, "narrow", Role.AGENT, queues=("mail",), names=("greet",))
    there = (await server.task(queue="mail"))["id"]
    also = (await server.task(name="other", queue="mail", allow_unknown=True))["id"]
    elsewhere = (await server.task())["id"]
    assert await ids(server, "mailer") == {there, also}
    assert await ids(server, "narrow") == {there}
    assert (await server.ask("GET", f"{API}/tasks/{elsewhere}", by="mailer")).status == 404
    queues = (await server.ask("GET", f"{API}/queues", by="mailer")).json()["items"]
    assert [queue["name"] for queue in queues] == ["mail"]
    counted = await server.ask("GET", f"{API}/tasks?count=true&queue=mail", by="mailer")
    assert counted.json()["count"] == 2
    assert (await server.ask("GET", f"{API}/tasks?count=true&queue=default", by="mailer")).code == "invalid_filter"


async def test_an_account_of_an_earlier_version_keeps_reading_everything(server: ServerHarness) -> None:
    """Its record does not say what it reads."""
    task = (await server.task())["id"]
    server.tokens["old"] = await bound(server.stores, "old", Role.AGENT)
    [document] = await server.stores.documents.fetch("user", ["old"])
    assert document is not None
    record = msgspec.json.decode(document.body)
    assert record.pop("reads") == "own"
    body = msgspec.Raw(msgspec.json.encode(record))
    await server.stores.documents.write([DocumentWrite(kind="user", id="old", body=body, seen=document.version)])
    assert (await server.ask("GET", f"{API}/tasks/{task}", by="old")).status == 200
    assert (await server.ask("GET", f"{API}/users/old", by=Role.VIEWER)).json()["reads"] == "all"
    health = (await server.ask("GET", f"{API}/health")).json()["findings"]
    [finding] = [each for each in health if each["check"] == "accounts"]
    assert "old" in finding["sentence"]
    assert "--reads own" in finding["advice"]


async def test_a_role_that_reads_everything_lifts_the_limit(server: ServerHarness) -> None:
    task = (await server.task())["id"]
    roles = frozenset({Role.AGENT, Role.VIEWER})
    await server.token(Role.AGENT)  # the owner of programs
    server.tokens["both"] = await token_of(server.stores, User(id="both", roles=roles, is_human=False, owner=OWNER))
    assert (await server.ask("GET", f"{API}/tasks/{task}", by="both")).status == 200


async def test_streams_show_limited_accounts_their_tasks_alone(server: ServerHarness) -> None:
    theirs = (await server.task())["id"]
    own = (await server.task(Role.AGENT))["id"]
    refused = await server.ask("GET", f"{API}/tasks/{theirs}/output", by=Role.AGENT, accept="text/event-stream")
    assert (refused.status, refused.code) == (404, "unknown_task")
    streamed = await first_events(server, Role.AGENT, own)
    assert own in streamed
    assert theirs not in streamed


async def first_events(server: ServerHarness, by: str, until: str) -> str:
    """The beginning of a stream of all events, up to one that names this."""
    headers = {"authorization": f"Bearer {await server.token(by)}", "accept": "text/event-stream"}
    text = ""
    async with server.client.stream("GET", f"{API}/events?after=0", headers=headers) as response:
        async for chunk in response.chunks():
            text += chunk.decode()
            if until in text:
                return text
    raise AssertionError(text)


async def test_a_comment_needs_a_task_that_the_account_reads(server: ServerHarness) -> None:
    task = (await server.task())["id"]
    answer: Answer = await server.ask("POST", f"{API}/approvals/{task}/comment", {"text": "hello"}, by=Role.AGENT)
    assert (answer.status, answer.code) == (404, "unknown_task")


async def test_a_dependency_on_a_task_of_others_is_unknown(server: ServerHarness) -> None:
    theirs, own = (await server.task())["id"], (await server.task(Role.AGENT))["id"]
    for after, status in ((theirs, 422), (NOBODYS, 422), (own, 201)):
        answer = await server.ask("POST", f"{API}/tasks", {"name": "greet", "after": [after]}, by=Role.AGENT)
        assert answer.status == status, answer
        assert status == 201 or answer.code == "unknown_dependency"


async def test_a_limited_token_of_an_account_that_reads_everything_does_too(server: ServerHarness) -> None:
    """As tokens did that were made before."""
    task = (await server.task())["id"]
    await server.token(Role.OPERATOR)
    secret, _ = await create_token(server.stores, "the-operator", scopes=frozenset({Permission.READ}))
    server.tokens["reading"] = secret
    assert (await server.ask("GET", f"{API}/tasks/{task}", by="reading")).status == 200
