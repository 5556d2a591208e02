"""Attack: the child of a run is written by the worker's account, so its real author may approve it."""

import asyncio

import msgspec
import pytest

from ade.composition.remote_worker import work_over_http
from ade.settings import load
from tests.attacks.site import Site, bank

RULES = {"do": "demand", "name": "pay", "policy": "one", "reason": "money"}
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


async def _child_of(site: Site, queue: str = "default") -> str:
    parent = await site.enqueue("parent", args={"to": "mallory"}, queue=queue)
    await site.until(parent["id"], "completed")
    page = (await site.ask("olga", "GET", f"/tasks?parent={parent['id']}")).json()
    [child] = page["items"]
    child_id: str = child["id"]
    return child_id


async def test_the_author_of_the_parent_cannot_approve_the_child(site: Site) -> None:
    await site.rules(guard=[RULES], policy=POLICY)
    child_id = await _child_of(site)
    refused = await site.vote("mallory", child_id)
    assert (refused.status, await site.status(child_id), site.done) == (403, "reviewing", [])
    await site.vote("rita", child_id)
    await site.until(child_id, "completed")


@pytest.mark.parametrize("name", ["courier", "clerk"])
async def test_nor_what_its_run_enqueues_on_its_own(site: Site, name: str) -> None:
    """`f.enqueue(...)` in a handler makes no child, but it is the author's work all the same."""
    await site.rules(guard=[RULES], policy=POLICY)
    task = await site.enqueue(name, by="mallory", args={"to": "mallory"})
    made: str = msgspec.json.decode((await site.until(task["id"], "completed")).result or b"")

    assert (await site.task(made)).author_id == "mallory"
    assert (await site.vote("mallory", made)).status == 403
    await site.vote("rita", made)
    await site.until(made, "completed")


async def test_an_author_that_the_handler_names_is_one_more_who_cannot_approve(site: Site) -> None:
    await site.rules(guard=[RULES], policy=POLICY)
    task = await site.enqueue("courier", by="mallory", args={"to": "mallory", "author": "rob"})
    made: str = msgspec.json.decode((await site.until(task["id"], "completed")).result or b"")

    assert [(await site.vote(each, made)).status for each in ("mallory", "rob", "rita")] == [403, 403, 200]


async def test_nor_what_a_child_enqueues_if_someone_edited_the_parent(site: Site) -> None:
    await site.rules(guard=[RULES, {**RULES, "name": "sender"}], policy=POLICY)
    sender = await site.enqueue("sender", by="olga", args={"to": "ann"})
    gate = (await site.ask("rob", "GET", f"/approvals/{sender['id']}")).json()["review"]["gates"][-1]
    edited = {"approval": gate["id"], "digest": gate["digest"], "args": {"to": "rob"}}
    amended = await site.ask("rob", "POST", f"/approvals/{sender['id']}/amend", edited)
    assert amended.status == 200, amended
    await site.vote("rita", sender["id"])
    courier: str = msgspec.json.decode((await site.until(sender["id"], "completed")).result or b"")
    made: str = msgspec.json.decode((await site.until(courier, "completed")).result or b"")

    assert [(await site.vote(each, made)).status for each in ("olga", "rob", "rita")] == [403, 403, 200]


async def test_nor_if_a_worker_behind_http_made_the_child(site: Site) -> None:
    await site.rules(guard=[RULES], policy=POLICY)
    flags = {"store.url": "sqlite:////nowhere/at/all.db", "worker.queues": "far"}
    remote, stop = bank(site.done, load(flags=flags, files=[]).settings), asyncio.Event()
    token = site.server.tokens["machine"]
    job = asyncio.create_task(work_over_http(remote, site.server.url, stop, asyncio.Event(), token=token))
    try:
        child_id = await _child_of(site, queue="far")
        assert (await site.task(child_id)).author_id == "bot"
        refused = await site.vote("mallory", child_id)
        assert (refused.status, await site.status(child_id), site.done) == (403, "reviewing", [])
    finally:
        stop.set()
        await job


async def test_a_run_makes_children_for_its_own_task_alone(site: Site) -> None:
    """A worker that runs two tasks cannot write, in the name of one author, what another one asked for."""
    definitions = [{"name": "other"}]
    registered = await site.ask("machine", "PUT", "/workers/w", {"definitions": definitions, "queues": ["far"]})
    assert registered.status == 200, registered
    first = await site.enqueue("other", by="olga", queue="far")
    second = await site.enqueue("other", queue="far")
    claimed = await site.ask("machine", "POST", "/runs/claim", {"worker": "w", "count": 2})
    runs = {run["task"]["id"]: run["run_id"] for run in claimed.json()["runs"]}
    child = {"name": "pay", "args": {"to": "x"}, "parent": first["id"]}
    for run in (None, runs[second["id"]]):
        refused = await site.ask("machine", "POST", "/tasks", {**child, "run": run})
        assert refused.code == "invalid_task", refused
    made = await site.ask("machine", "POST", "/tasks", {**child, "run": runs[first["id"]]})
    assert (made.status, made.json()["author_id"]) == (201, "olga")
