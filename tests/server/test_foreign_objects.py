"""What is somebody else's is answered as if it did not exist, on every route, and the log tells of who asked."""

from typing import NamedTuple

import pytest

from ade.accounts.sessions import SignInConditions, open_session
from tests.domain import ROUTE_OF, ROUTES, AuthLevel, Permission, Role, create_token
from tests.server.conftest import PASSWORD, ServerHarness

API = "/api/v1"
NOBODYS = "01a1e503-5dba-7f16-87d1-29e75c2bd002"


class Foreign(NamedTuple):
    """An object that is not of who asks for it."""

    kind: str
    by: Role | None  # None: with a session of a viewer
    code: str
    body: object = None
    headers: dict[str, str] | None = None


# One for each route where it matters whose something is, so that a new route without a line fails.
FOREIGN = {
    "edit_task": Foreign("draft", Role.AGENT, "unknown_task", {"description": "mine"}, {"if-match": '"1"'}),
    "submit_task": Foreign("draft", Role.AGENT, "unknown_task"),
    "cancel_task": Foreign("task", Role.AGENT, "unknown_task"),
    "reschedule_task": Foreign("task", Role.AGENT, "unknown_task", {"delay": 0}),
    "retry_task": Foreign("task", Role.AGENT, "unknown_task"),
    "apply_task": Foreign("task", Role.AGENT, "unknown_task"),
    "roll_back_task": Foreign("task", Role.AGENT, "unknown_task"),
    "revoke_delegation": Foreign("delegation", Role.REVIEWER, "unknown_delegation"),
    "register_agent": Foreign("agent", Role.AGENT, "unknown_agent", {"max_tasks": 5}),
    "heartbeat_agent": Foreign("agent", Role.AGENT, "unknown_agent"),
    "drain_agent": Foreign("agent", Role.AGENT, "unknown_agent"),
    "activate_agent": Foreign("agent", Role.AGENT, "unknown_agent"),
    "mark_agent_offline": Foreign("agent", Role.AGENT, "unknown_agent"),
    "get_token": Foreign("token", Role.VIEWER, "unknown_token"),
    "remove_channel": Foreign("channel", Role.OPERATOR, "unknown_channel"),
    "end_session": Foreign("session", None, "unknown_session"),
    "revoke_own_token": Foreign("token", None, "unknown_token"),
}
# Of these one sees one's own.
LISTS = {
    *("list_tokens", "list_sessions"),
    *("list_channels", "list_notifications", "get_notification", "get_notification_preferences"),
}
OF_ONESELF = {
    "create_delegation",
    "create_channel",
    "change_notification_preferences",
    "test_notification",
}  # the place of another account is rejected by its name, which is not secret


def test_every_route_that_asks_whose_it_is_has_a_line() -> None:
    asking = {route.operation for route in ROUTES if route.others is not None}
    asking |= {route.operation for route in ROUTES if route.door is AuthLevel.SESSION and route.parameters}
    assert asking == set(FOREIGN) | LISTS | OF_ONESELF


async def signed_in_post(server: ServerHarness, path: str, body: object) -> str:
    """The ID of something that takes a session with a password."""
    await server.person("owner", Role.ADMIN, password=PASSWORD)
    answer = await server.ask("POST", f"{API}/{path}", body, by=None, headers=await server.signed_in("owner"))
    assert answer.status == 201, answer
    return str(answer.json()["id"])


async def made(server: ServerHarness, kind: str) -> str:
    """The id of something of somebody else's."""
    if kind in ("task", "draft"):
        return str((await server.task(draft=kind == "draft"))["id"])
    if kind == "agent":
        await server.ask("PUT", f"{API}/agents/the-operator", {"max_tasks": 1})
        return "the-operator"
    if kind == "channel":
        return await signed_in_post(server, "notifications/channels", {"kind": "email", "target": "o@example.org"})
    if kind == "delegation":
        await server.person("deputy", Role.REVIEWER)
        return await signed_in_post(server, "delegations", {"delegate": "deputy", "ends": 3_600})
    owner = await server.person("owner", Role.OPERATOR)
    if kind == "token":
        return (await create_token(server.stores, owner.id, scopes=frozenset({Permission.READ})))[1].id
    return (await open_session(server.stores, owner, SignInConditions()))[1].short_id


async def cookie(server: ServerHarness) -> dict[str, str]:
    """A session of somebody else again."""
    secret, _ = await open_session(server.stores, await server.person("visitor", Role.VIEWER), SignInConditions())
    return {"cookie": f"ade-session-{server.url.rpartition(':')[2]}={secret}", "origin": server.url}


@pytest.mark.parametrize("operation", FOREIGN)
async def test_it_does_not_exist(server: ServerHarness, operation: str) -> None:
    route, foreign = ROUTE_OF[operation], FOREIGN[operation]
    found = await made(server, foreign.kind)
    headers = {**(foreign.headers or {}), **(await cookie(server) if foreign.by is None else {})}

    async def told(object_id: str) -> dict[str, object]:
        path = route.path.replace(f"{{{route.parameters[0]}}}", object_id)
        answer = await server.ask(route.method, path, foreign.body, by=foreign.by, headers=headers)
        assert (answer.status, answer.code) == (404, foreign.code), answer
        return {
            name: str(value).replace(object_id, "it") for name, value in answer.json().items() if name != "instance"
        }

    assert await told(found) == await told("nobody" if foreign.kind == "agent" else NOBODYS)

    events = [event for event in await server.stores.events.read(0, 1_000) if event.type == "access.foreign"]
    assert events[0].payload["operation"] == operation
    assert events[0].actor == ("visitor" if foreign.by is None else f"the-{foreign.by}")


async def test_in_lists_one_finds_ones_own(server: ServerHarness) -> None:
    await made(server, "token")
    await server.token(Role.VIEWER)
    mine = (await server.ask("GET", f"{API}/tokens", by=Role.VIEWER)).json()["items"]
    assert {token["account"] for token in mine} == {"the-viewer"}
    sessions = await server.ask("GET", f"{API}/sessions", by=Role.VIEWER)
    assert sessions.json()["items"] == []
    for kind in ("tokens", "sessions"):
        named = await server.ask("GET", f"{API}/{kind}?account=owner", by=Role.VIEWER)
        unknown = await server.ask("GET", f"{API}/{kind}?account=nobody", by=Role.VIEWER)
        assert (named.status, named.code) == (unknown.status, unknown.code) == (404, "unknown_account")


async def test_nobody_gives_away_the_place_of_another(server: ServerHarness) -> None:
    await server.person("deputy", Role.REVIEWER)
    body = {"delegate": "the-reviewer", "delegator": "deputy", "ends": 3_600}
    answer = await server.ask("POST", f"{API}/delegations", body, by=Role.REVIEWER)
    assert (answer.status, answer.code) == (403, "not_permitted")
    assert (await server.ask("GET", f"{API}/delegations", by=Role.REVIEWER)).json()["items"] == []


async def test_many_at_once_are_for_those_who_may_act_on_all(sqlite_server: ServerHarness) -> None:
    """In batches, exports and streams nothing is asked of single objects, so the permission is for everything."""
    server = sqlite_server
    task = await server.task(tags=["theirs"])
    batch = {"action": "cancel", "filter": {"tag": "theirs"}}
    for path, body in (("bulk-actions", batch), ("bulk-actions/preview", batch), ("dlq/replay", {"everything": True})):
        answer = await server.ask("POST", f"{API}/{path}", body, by=Role.AGENT)
        assert (answer.status, answer.code) == (403, "not_permitted"), path
    for path in ("audit", "audit/export"):
        assert (await server.ask("GET", f"{API}/{path}", by=Role.AGENT)).status == 403
    assert (await server.ask("GET", f"{API}/tasks/{task['id']}")).json()["status"] == "pending"
    many = {"tasks": [{"name": "greet"}, {"name": "greet", "after": [NOBODYS]}]}
    assert (await server.ask("POST", f"{API}/tasks/bulk", many, by=Role.AGENT)).status == 422
    assert len((await server.ask("GET", f"{API}/tasks")).json()["items"]) == 1
