"""Attack on the attention of reviewers: they vote on tasks that can never run, because a dependency has failed."""

from typing import Any

import pytest

from tests.attacks.site import Site

GUARD = [{"do": "demand", "name": "pay", "reason": "money"}]


async def waiting(site: Site, **fields: str) -> tuple[str, dict[str, Any]]:
    """A deployment that waits for approval, and a payment that waits for approval and for the deployment."""
    await site.rules(guard=GUARD)
    first = await site.enqueue("deploy", args={"service": "shop"})
    await site.until(first["id"], "reviewing")
    task = await site.enqueue("pay", args={"to": "landlord"}, after=[first["id"]], **fields)
    assert await site.status(task["id"]) == "reviewing"
    return first["id"], task


async def newest_gate(site: Site, task_id: str) -> dict[str, Any]:
    shown = (await site.ask("rita", "GET", f"/approvals/{task_id}")).json()
    found: dict[str, Any] = shown["review"]["gates"][-1]
    return found


async def test_a_failed_dependency_ends_the_review_at_once(site: Site) -> None:
    first, task = await waiting(site)
    assert (await site.vote("rita", first, "reject")).status == 200

    ended = await site.task(task["id"])  # within the same request
    assert str(ended.status) == "cancelled"
    gate = await newest_gate(site, task["id"])
    reason = f"dependency failed: it waits for {first}, which did not complete"
    assert (gate["state"], gate["end_reason"]) == ("cancelled", reason)
    refused = await site.vote("rob", task["id"])
    assert (refused.status, refused.json()["code"]) == (409, "gate_closed")
    assert reason in refused.json()["detail"]
    assert task["id"] not in str((await site.ask("rob", "GET", "/approvals")).json())


async def test_a_run_that_fails_ends_the_reviews_that_wait_for_it(site: Site) -> None:
    await site.rules(guard=GUARD)
    first = await site.enqueue("wipe", args={"disk": "a"}, max_attempts=1)
    task = await site.enqueue("pay", args={"to": "landlord"}, after=[first["id"]])
    await site.until(first["id"], "reviewing")
    assert await site.status(task["id"]) == "reviewing"
    await site.vote("rita", first["id"], "respond", text="never")  # the handler does not read it, and fails

    await site.until(first["id"], "failed")
    await site.until(task["id"], "cancelled")
    assert (await newest_gate(site, task["id"]))["state"] == "cancelled"


@pytest.mark.parametrize("start", ["at_once", "by_hand"])
async def test_it_becomes_a_dead_letter_if_it_asked_for_that(site: Site, start: str) -> None:
    first, task = await waiting(site, after_failure="fail", start=start)
    if start == "by_hand":
        await site.vote("rita", task["id"])
        assert await site.status(task["id"]) == "approved"
    await site.vote("rita", first, "reject")

    ended = await site.task(task["id"])
    assert ended.error is not None
    assert (str(ended.status), str(ended.error.kind)) == ("failed", "dependency_failed")
    assert (await newest_gate(site, task["id"]))["state"] == "cancelled"
    letters = (await site.ask("olga", "GET", "/dlq")).json()
    assert task["id"] in str(letters)


async def test_it_stays_under_review_if_it_runs_anyway(site: Site) -> None:
    first, task = await waiting(site, after_failure="run")
    await site.vote("rita", first, "reject")
    assert await site.status(task["id"]) == "reviewing"

    await site.vote("rob", task["id"])
    await site.until(task["id"], "completed")
    assert site.done == [{"pay": "landlord", "amount": 1}]


async def test_a_draft_is_left_to_its_author_until_it_is_submitted(site: Site) -> None:
    await site.rules(guard=GUARD)
    first = await site.enqueue("deploy", args={"service": "shop"})
    await site.until(first["id"], "reviewing")
    draft = await site.enqueue("pay", args={"to": "landlord"}, after=[first["id"]], draft=True)
    await site.vote("rita", first["id"], "reject")
    assert await site.status(draft["id"]) == "draft"

    await site.ask("bot", "POST", f"/tasks/{draft['id']}/submit", {})
    await site.until(draft["id"], "cancelled")


async def test_a_task_that_is_enqueued_after_the_failure_asks_no_one(site: Site) -> None:
    first, _ = await waiting(site)
    await site.vote("rita", first, "reject")
    task = await site.enqueue("pay", args={"to": "landlord"}, after=[first])
    refused = await site.vote("rob", task["id"])
    assert refused.status == 409, refused
    assert refused.json()["code"] in ("task_cannot_run", "gate_closed")
    await site.until(task["id"], "cancelled")
