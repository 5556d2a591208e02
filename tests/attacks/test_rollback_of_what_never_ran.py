"""Attack: a rollback with arguments that no one approved and that never ran."""

from tests.attacks.site import Site

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


async def _failed(site: Site) -> str:
    """An approved payment that failed."""
    task = await site.enqueue("pay", args={"to": "landlord", "fails": True}, max_attempts=1)
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    task_id: str = task["id"]
    return task_id


async def test_after_a_retry_with_edited_arguments(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _failed(site)
    edited = await site.ask("bot", "POST", f"/tasks/{task_id}/retry", {"args": {"to": "mallory", "amount": 1_000_000}})
    assert edited.status in (200, 403), edited
    await site.ask("bot", "POST", f"/tasks/{task_id}/cancel")
    undone = await site.ask("bot", "POST", f"/tasks/{task_id}/rollback")
    if undone.status == 200:
        await site.until(undone.json()["id"], "completed", "failed", "reviewing")
    assert {"refund": "mallory", "amount": 1_000_000} not in site.done


async def test_an_operator_undoes_what_really_ran(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _failed(site)
    await site.ask("olga", "POST", f"/dlq/{task_id}/replay", {"args": {"to": "mallory", "amount": 1_000_000}})
    await site.ask("olga", "POST", f"/tasks/{task_id}/cancel")
    undone = await site.ask("olga", "POST", f"/tasks/{task_id}/rollback")
    assert undone.status == 200, undone
    await site.until(undone.json()["id"], "completed")
    assert site.done[-1] == {"refund": "landlord", "amount": 1}


async def test_a_freeze_stops_a_rollback_too(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _failed(site)
    await site.rules(guard=[{"do": "deny", "reason": "freeze"}])
    undone = await site.ask("olga", "POST", f"/tasks/{task_id}/rollback")
    assert (undone.status, undone.code) == (403, "denied")
    assert not any("refund" in done for done in site.done)


async def test_a_policy_can_require_approval_of_a_rollback(site: Site) -> None:
    guard = [*GUARD, {"do": "demand", "name": "pay:rollback", "policy": "one", "reason": "care"}]
    await site.rules(guard=guard, policy=POLICY)
    task_id = await _failed(site)
    undone = (await site.ask("olga", "POST", f"/tasks/{task_id}/rollback")).json()
    assert undone["status"] == "reviewing"
    await site.vote("rob", undone["id"])
    await site.until(undone["id"], "completed")


async def test_a_stranger_cannot_roll_it_back(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task_id = await _failed(site)
    refused = await site.ask("machine", "POST", f"/tasks/{task_id}/rollback")
    assert refused.code in ("unknown_task", "not_permitted")  # what it may not see does not exist for it


async def test_a_rollback_that_ran_by_itself_does_not_run_again_on_request(site: Site) -> None:
    args = {"to": "mallory", "amount": 5, "fails": True}
    task = (await site.enqueue("pay", args=args, max_attempts=1, rollback="automatic"))["id"]
    await site.until(task, "failed")
    first = None
    for by in ("bot", "olga", "bot"):
        answer = await site.ask(by, "POST", f"/tasks/{task}/rollback")
        assert answer.status in (200, 201), answer
        first = first or answer.json()["id"]
        assert answer.json()["id"] == first
        await site.until(first, "completed")
    assert [each for each in site.done if "refund" in each] == [{"refund": "mallory", "amount": 5}]
