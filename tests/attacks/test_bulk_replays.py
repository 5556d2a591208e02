"""Attack: replay many failed tasks with one request, to get past what a replay of each of them would meet."""

from typing import Any

import pytest

from tests.attacks.site import PASSWORD, Site
from tests.attacks.test_a_task_without_an_author import program
from tests.attacks.test_from_the_shell_and_python import Shell, shell

__all__ = ["shell"]
GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
FAILING = {"to": "mallory", "fails": True}
WAYS: dict[str, Any] = {
    "/dlq/replay": {"name": "pay"},
    "/bulk-actions": {"action": "retry", "filter": {"name": "pay"}},
}


async def failed(site: Site, count: int, limit: int) -> list[str]:
    """Payments of the bot, which may have so many approvals open, that were approved and failed."""
    await site.rules(guard=GUARD, policy=POLICY)
    done = await site.ask("ada", "PUT", "/config/approval.max_open_per_agent", {"value": limit})
    assert done.status == 200, done
    ids = []
    for _ in range(count):
        task = await site.enqueue("pay", args=FAILING, max_attempts=1)
        await site.vote("rita", task["id"])
        await site.until(task["id"], "failed")
        ids.append(task["id"])
    return ids


async def versions(site: Site, ids: list[str]) -> list[int]:
    return [(await site.task(task_id)).version for task_id in ids]


@pytest.mark.parametrize("way", WAYS)
async def test_no_more_approvals_are_open_than_one_by_one(site: Site, way: str) -> None:
    ids = await failed(site, 4, 2)
    before = await versions(site, ids[2:])
    for _ in range(2):  # repeated, it changes nothing
        report = (await site.ask("olga", "POST", way, WAYS[way])).json()
        [refused] = report["refused"]
        assert (refused["code"], refused["count"], refused["task_ids"]) == ("too_many_approvals", 2, ids[2:])
        assert "the limit is 2" in refused["reason"]
        assert report["is_more"] is False
    assert [await site.status(task_id) for task_id in ids] == ["reviewing"] * 2 + ["failed"] * 2
    assert await versions(site, ids[2:]) == before
    alone = await site.ask("olga", "POST", f"/dlq/{ids[2]}/replay", {})
    assert alone.code == "too_many_approvals"


@pytest.mark.parametrize("way", WAYS)
async def test_refused_tasks_do_not_stop_others(site: Site, way: str) -> None:
    ids = await failed(site, 1, 1)
    await site.enqueue("pay", args={"to": "mallory"})  # now the bot has no room left
    await site.rules()
    plain = (await site.enqueue("pay", args=FAILING, max_attempts=1, by="olga"))["id"]
    await site.until(plain, "failed")
    report = (await site.ask("olga", "POST", way, WAYS[way] | {"limit": 1})).json()
    assert (report["changed"], report["refused"][0]["task_ids"]) == ([plain], ids)
    await site.until(plain, "failed")


@pytest.mark.parametrize("way", WAYS)
async def test_an_author_who_is_nobody_is_refused(site: Site, way: str) -> None:
    await site.rules(guard=GUARD, policy=POLICY, authors={"missing": "block"})
    async with program(site, "ghost") as app:
        task = await app.enqueue("pay", FAILING, max_attempts=1)
    glass = {"reason": "now", "password": PASSWORD}
    assert (await site.ask("ada", "POST", f"/approvals/{task.id}/break-glass", glass)).status == 200
    await site.until(task.id, "failed")
    await site.rules(guard=GUARD, policy=POLICY)
    before = await versions(site, [task.id])
    alone = await site.ask("olga", "POST", f"/dlq/{task.id}/replay", {})
    report = (await site.ask("olga", "POST", way, WAYS[way])).json()
    [refused] = report["refused"]
    assert (alone.code, refused["code"], refused["count"]) == ("author_required", "author_required", 1)
    assert (report["changed"], await versions(site, [task.id])) == ([], before)


async def test_a_shell_is_told_what_was_refused(site: Site, shell: Shell) -> None:
    ids = await failed(site, 3, 1)
    code, report = await shell.run("olga", "dlq", "replay", "--name", "pay", "--yes")
    assert (code, report["changed"]) == (0, ids[:1])
    assert [(each["code"], each["count"]) for each in report["refused"]] == [("too_many_approvals", 2)]


async def test_whoever_replays_many_approves_none_of_them(site: Site) -> None:
    ids = await failed(site, 2, 10)
    report = (await site.ask("mallory", "POST", "/dlq/replay", {"name": "pay"})).json()
    assert report["changed"] == ids
    for task_id in ids:
        assert (await site.vote("mallory", task_id)).code == "conflict_of_interest"
        assert await site.status(task_id) == "reviewing"
