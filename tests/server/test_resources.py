"""Locks, agents, workers, schedules and inboxes as programs meet them at the socket."""

import asyncio

from tests.domain import Role
from tests.server.conftest import ServerHarness

REPO = "repo:app"


async def test_a_client_that_hangs_up_leaves_the_line(server: ServerHarness) -> None:
    held = await server.ask("POST", "/api/v1/locks/acquire", {"locks": [REPO]}, by=Role.AGENT)
    assert held.status == 200
    waiting = asyncio.create_task(
        server.ask("POST", "/api/v1/locks/acquire", {"locks": [REPO], "wait": 30, "stay": True}, by=Role.WORKER)
    )

    async def waiters() -> list[str]:
        seen = await server.ask("GET", "/api/v1/locks?resource=repo%3Aapp", by=Role.VIEWER)
        return [one["owner"] for lock in seen.json()["items"] for one in lock["waiters"]]

    async with asyncio.timeout(60):
        while await waiters() != ["the-worker"]:
            continue
    waiting.cancel()
    async with asyncio.timeout(60):
        while await waiters():
            continue
    stolen = await server.ask("POST", "/api/v1/locks/release", {"ids": [held.json()["id"]]}, by=Role.WORKER)
    assert stolen.json() == {"released": [], "lost": [held.json()["id"]]}
    renewed = await server.ask("POST", "/api/v1/locks/renew", {"ids": [held.json()["id"]]}, by=Role.WORKER)
    assert (renewed.status, renewed.code) == (409, "lock_lost")


async def test_an_agent_may_have_a_slash_in_its_name(server: ServerHarness) -> None:
    for address in ("the-agent/one", "the-agent%2Ftwo"):
        made = await server.ask("PUT", f"/api/v1/agents/{address}", {"max_tasks": 2}, by=Role.AGENT)
        assert made.json()["id"] == address.replace("%2F", "/")
        beat = await server.ask("POST", f"/api/v1/agents/{address}/heartbeat", by=Role.AGENT)
        assert beat.json()["status"] == "active"
    foreign = await server.ask("PUT", "/api/v1/agents/other/one", {"max_tasks": 2}, by=Role.AGENT)
    assert (foreign.status, foreign.code) == (404, "unknown_agent")


async def test_a_worker_has_the_id_that_was_made_for_it(server: ServerHarness) -> None:
    made = await server.ask("PUT", "/api/v1/workers/w1", {"definitions": [{"name": "count"}]}, by=Role.WORKER)
    worker_id = made.json()["worker"]["id"]
    assert worker_id == "http:the-worker:w1"
    seen = await server.ask("GET", f"/api/v1/workers/{worker_id}", by=Role.VIEWER)
    assert seen.json()["worker"]["names"] == ["count"]
    assert (await server.ask("DELETE", f"/api/v1/workers/{worker_id}", by=Role.WORKER)).status == 204


async def test_a_schedule_is_replaced_as_it_was_seen(server: ServerHarness) -> None:
    form = {"cron": "0 3 * * *", "task_name": "greet"}
    never = await server.ask("PUT", "/api/v1/schedules/nightly", {**form, "cron": "* * 31 2 *"}, by=Role.OPERATOR)
    assert (never.status, never.code) == (422, "invalid_schedule")
    made = await server.ask("PUT", "/api/v1/schedules/nightly", form, by=Role.OPERATOR)
    seen = await server.ask("GET", "/api/v1/schedules/nightly", by=Role.VIEWER)
    assert made.headers["etag"] == seen.headers["etag"]
    meant = {"If-Match": seen.headers["etag"]}
    later = {**form, "cron": "0 4 * * *"}
    assert (await server.ask("PUT", "/api/v1/schedules/nightly", later, by=Role.OPERATOR, headers=meant)).status == 200
    again = await server.ask("PUT", "/api/v1/schedules/nightly", form, by=Role.OPERATOR, headers=meant)
    assert (again.status, again.code) == (412, "precondition_failed")


async def test_a_conversation_is_told_and_emptied(server: ServerHarness) -> None:
    items = {"items": [{"content": "hello", "key": "k1"}]}
    put = await server.ask("POST", "/api/v1/inboxes/team/c1/items", items, by=Role.AGENT)
    assert put.json()["items"] == [{"is_new": True, "item_id": "q-1", "key": "k1"}]
    seen = await server.ask("GET", "/api/v1/inboxes/team/c1", by=Role.VIEWER)
    assert seen.json()["items"][0]["author"] == "the-agent"
    cleared = await server.ask(
        "POST", "/api/v1/inboxes/team/c1/clear", {"reason": "cancelled"}, by=Role.OPERATOR,
        headers={"If-Match": seen.headers["etag"]},
    )  # fmt: skip
    assert cleared.json()["cleared"] == ["q-1"]
