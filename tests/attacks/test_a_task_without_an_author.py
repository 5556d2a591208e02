"""Attack: a task names no author, or one without an account, so that its author can approve it under another name."""

from typing import Any

import pytest

from ade import Ade, AuthorRequired
from ade.settings import load
from tests.attacks.site import Site

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADE_USER", raising=False)


def program(site: Site, author: str | None = None, **settings: object) -> Ade:
    """A program of mallory's on the same store."""
    url = site.server.app.settings.store.url
    flags = {"store.url": url, "redis.allow_volatile": True, **settings}
    return Ade(settings=load(flags=flags, files=[]).settings, author=author)


async def count(site: Site) -> int:
    return len((await site.ask("rita", "GET", "/tasks")).json()["items"])


@pytest.mark.parametrize("author", [None, "mallory2", "cli:mallory"])
async def test_a_governed_task_of_nobody_is_rejected_and_nothing_is_stored(site: Site, author: str | None) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    options: Any = {} if author is None else {"author": author}
    async with program(site) as app:
        with pytest.raises(AuthorRequired, match="account"):
            await app.enqueue("pay", {"to": "mallory"}, **options)
        assert await count(site) == 0
        draft = await app.draft("pay", {"to": "mallory"}, **options)
        with pytest.raises(AuthorRequired):
            await draft.submit()
        with pytest.raises(AuthorRequired):
            await draft.submit(by="mallory2")
        assert await draft.status() == "draft"
    assert site.done == []


async def test_a_task_that_needs_no_approval_needs_no_author(site: Site) -> None:
    async with program(site) as app:
        task = await app.enqueue("pay", {"to": "rent"})
        await site.until(task.id, "completed")
        assert (await task.get()).author_id is None


async def test_the_author_comes_from_the_app_the_environment_or_the_settings(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    for app in (program(site, "Mallory"), program(site, **{"task.author": "mallory"})):
        async with app:
            task = await app.enqueue("pay", {"to": "mallory"})
        refused = await site.vote("mallory", task.id)
        assert (refused.status, refused.code) == (403, "conflict_of_interest")
    monkeypatch.setenv("ADE_USER", "mallory")
    async with program(site, **{"task.author": "olga"}) as app:
        task = await app.enqueue("pay", {"to": "mallory"})
    assert (await site.task(task.id)).author_id == "mallory"
    assert (await site.vote("mallory", task.id)).code == "conflict_of_interest"


async def test_rules_can_block_such_a_task_instead_and_no_vote_lets_it_pass(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY, authors={"missing": "block"})
    async with program(site) as app:
        nameless = await app.enqueue("pay", {"to": "mallory"})
        unknown = await app.enqueue("pay", {"to": "mallory"}, author="mallory2")
    for task in (nameless, unknown):
        shown = (await site.ask("rita", "GET", f"/approvals/{task.id}")).json()["review"]["gates"][-1]
        assert (shown["state"], shown["missing"][0].split(",")[0]) in (
            ("blocked", "an author"),
            ("blocked", "an account mallory2"),
        )
        for voter in ("mallory", "rita"):
            assert (await site.vote(voter, task.id)).status == 200
        assert await site.status(task.id) == "reviewing"
    assert site.done == []


async def test_a_run_cannot_choose_another_author_for_its_children(site: Site) -> None:
    """Mallory's task enqueues a payment in the name of olga, and mallory approves it."""
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("parent", by="mallory", args={"to": "mallory", "author": "olga"})
    await site.until(task["id"], "completed")
    child_id = (await site.ask("rita", "GET", f"/tasks/{task['id']}")).json()["result"]
    child = await site.task(child_id)
    assert child.author_id == "mallory"
    refused = await site.vote("mallory", child_id)
    assert (refused.status, refused.code) == (403, "conflict_of_interest")
    assert child.review is not None
    assert child.review.gate is not None
    assert {"mallory", "olga"} <= child.review.gate.conflicts  # the named author is only added


async def test_who_asks_for_another_run_cannot_approve_it(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", by="olga", args={"to": "rent", "fails": True}, max_attempts=1)
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    replayed = await site.ask("mallory", "POST", f"/dlq/{task['id']}/replay", {})
    assert (replayed.status, await site.status(task["id"])) == (200, "reviewing"), replayed
    refused = await site.vote("mallory", task["id"])
    assert (refused.status, refused.code) == (403, "conflict_of_interest")
