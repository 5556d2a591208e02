"""Attack: so many requests for approval that reviewers no longer look, or no longer find the one that matters."""

import asyncio
from typing import Any

from ade.composition.remote_worker import work_over_http
from ade.settings import load
from tests.attacks.site import Site, bank
from tests.waiting import eventually

GUARD = {"do": "demand", "name": "pay*", "policy": "one", "reason": "money"}
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
PAY: dict[str, Any] = {"name": "pay", "args": {"to": "mallory"}}


async def limited(site: Site, *, agent: int = 3, author: int = 5, **rule: object) -> None:
    await site.rules(guard=[{**GUARD, **rule}], policy=POLICY)
    for who, value in (("agent", agent), ("author", author)):
        done = await site.ask("ada", "PUT", f"/config/approval.max_open_per_{who}", {"value": value})
        assert done.status == 200, done


async def test_an_agent_opens_only_so_many_approvals(site: Site) -> None:
    await limited(site)
    tasks = [await site.enqueue(**PAY) for _ in range(3)]
    refused = await site.ask("bot", "POST", "/tasks", PAY)
    assert (refused.status, refused.code) == (429, "too_many_approvals")
    assert "retry-after" in refused.headers
    waiting = (await site.ask("rita", "GET", "/approvals")).json()["items"]
    assert [item["task_id"] for item in waiting] == [task["id"] for task in tasks]
    await site.vote("rita", tasks[0]["id"], "reject", reason="no")
    await site.enqueue(**PAY)
    assert (await site.ask("bot", "POST", "/tasks", PAY)).code == "too_many_approvals"


async def test_a_person_has_another_limit_and_others_are_not_held_up(site: Site) -> None:
    await limited(site)
    for _ in range(5):
        await site.enqueue(**PAY, by="mallory")
    assert (await site.ask("mallory", "POST", "/tasks", PAY)).code == "too_many_approvals"
    await site.enqueue(**PAY, by="olga")


async def test_a_batch_is_stored_whole_or_not_at_all(site: Site) -> None:
    await limited(site)
    refused = await site.ask("bot", "POST", "/tasks/bulk", {"tasks": [PAY] * 4})
    assert refused.code == "too_many_approvals"
    assert (await site.ask("rita", "GET", "/approvals")).json()["items"] == []


async def test_many_requests_at_once_do_not_get_past_the_limit(site: Site) -> None:
    await limited(site)
    answers = await asyncio.gather(*(site.ask("bot", "POST", "/tasks", PAY) for _ in range(12)))
    assert sorted(answer.status for answer in answers) == [201] * 3 + [429] * 9
    assert len((await site.ask("rita", "GET", "/approvals")).json()["items"]) == 3


async def test_drafts_replays_and_schedules_count_too(site: Site) -> None:
    await limited(site)
    failing = await site.enqueue("pay", args={"to": "mallory", "fails": True}, max_attempts=1)
    await site.vote("rita", failing["id"])
    await site.until(failing["id"], "failed")
    draft = await site.enqueue(**PAY, draft=True)
    cron = {"cron": "0 0 1 1 *", "task_name": "pay", "args": {"to": "x"}}
    assert (await site.ask("mallory", "PUT", "/schedules/rent", cron)).status == 200
    for _ in range(3):
        await site.enqueue(**PAY)
    for _ in range(5):
        await site.enqueue(**PAY, by="mallory")
    before = (await site.task(failing["id"])).version, (await site.task(draft["id"])).version
    for by, path in (
        ("bot", f"/tasks/{failing['id']}/retry"),
        ("bot", f"/tasks/{draft['id']}/submit"),
        ("mallory", "/schedules/rent/fire"),
    ):
        refused = await site.ask(by, "POST", path)
        assert (refused.status, refused.code) == (429, "too_many_approvals"), path
    assert before == ((await site.task(failing["id"])).version, (await site.task(draft["id"])).version)


async def test_children_of_remote_runs_count_for_their_author(site: Site) -> None:
    await limited(site, agent=1)
    await site.enqueue(**PAY)
    flags = {"store.url": "sqlite:////nowhere/at/all.db", "worker.queues": "far"}
    remote, stop = bank(site.done, load(flags=flags, files=[]).settings), asyncio.Event()
    token = site.server.tokens["machine"]
    job = asyncio.create_task(work_over_http(remote, site.server.url, stop, asyncio.Event(), token=token))
    try:
        parent = await site.enqueue("parent", args={"to": "mallory"}, queue="far", max_attempts=1)
        failed = await site.until(parent["id"], "failed")
        assert failed.error is not None
        assert failed.error.type == "TooManyApprovals"
    finally:
        stop.set()
        await job


async def test_steps_of_runs_count_too(site: Site) -> None:
    await limited(site, agent=1)
    await site.enqueue(**PAY)
    await site.ask("machine", "PUT", "/workers/w", {"definitions": [{"name": "agent"}], "queues": ["far"]})
    task = await site.enqueue("agent", queue="far")
    claimed = await site.ask("machine", "POST", "/runs/claim", {"worker": "w", "count": 1})
    [run] = claimed.json()["runs"]
    held = await site.ask("machine", "POST", f"/runs/{run['run_id']}/hold", {"task_id": task["id"], "step": "send"})
    assert (held.status, held.code) == (429, "too_many_approvals")
    assert await site.status(task["id"]) == "running"  # the run decides what to do without


async def test_what_is_held_at_its_start_waits_until_there_is_room(site: Site) -> None:
    await limited(site, agent=1, at=["run"])
    tasks = [await site.enqueue(**PAY) for _ in range(2)]

    async def held() -> list[str] | None:
        found = [await site.task(task["id"]) for task in tasks]
        waiting = [task.id for task in found if task.status == "reviewing"]
        throttled = [task.id for task in found if task.throttles]
        return waiting if len(waiting) == 1 and len(throttled) == 1 else None

    assert len(await eventually(held)) == 1
    assert site.done == []


async def test_small_payments_add_up_until_a_rule_holds_one(site: Site) -> None:
    """Each alone is below the score from which people must approve; many on one resource are not."""
    guard = {**GUARD, "name": "wire", "from_score": 35}
    await site.rules(guard=[guard], policy=POLICY, criticality={"bank:*": 40})

    statuses = [(await site.enqueue("wire", by="olga", args={"to": f"friend {each}"}))["status"] for each in range(40)]

    assert statuses[0] == "pending"
    assert statuses[-1] == "reviewing"


async def test_rollbacks_that_an_agent_requests_count_among_its_approvals(site: Site) -> None:
    await limited(site, name="pay:rollback")
    tasks = [await site.enqueue(**PAY) for _ in range(4)]
    for task in tasks:
        await site.until(task["id"], "completed")

    answers = [await site.ask("bot", "POST", f"/tasks/{task['id']}/rollback") for task in tasks]

    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert (await site.ask("olga", "POST", f"/tasks/{tasks[3]['id']}/rollback")).status == 200, "hers, not the agent's"


async def test_nobody_comments_on_what_is_none_of_their_business(site: Site) -> None:
    await site.rules(guard=[GUARD], policy=POLICY)
    task = await site.enqueue("pay", by="olga", args={"to": "ann"})
    own = await site.enqueue(**PAY)

    async def comment(by: str, task_id: str) -> int:
        return (await site.ask(by, "POST", f"/approvals/{task_id}/comment", {"text": "é" * 4_000})).status

    assert await comment("bot", task["id"]) == 404, "it cannot even read it"
    assert [await comment("bot", own["id"]) for _ in range(21)] == [200] * 20 + [422], "the rest is for others"
    assert await comment("rita", own["id"]) == 200
    assert await comment("olga", own["id"]) == 200
