"""Attack: an escalation step of one policy adds voters to the rules of another one that the task needs too."""

from typing import Any

from tests.attacks.site import Site

GUARD = {"do": "demand", "name": "pay", "policy": "owner", "reason": "money"}
# The owner answers for the bot, and so cannot approve what it asks for: her rule is stuck, and steps fire early.
OWNER: dict[str, Any] = {"id": "owner", "rules": [{"needed": 1, "users": ["mallory"]}]}
MONEY = {
    "id": "money",
    "names": ["pay"],
    "rules": [{"needed": 1, "users": ["rob"]}],
    "steps": [{"after": "1h", "users": ["rosa"]}],
}


async def test_whom_one_policy_adds_does_not_vote_for_another(site: Site) -> None:
    await site.rules(guard=[GUARD], policy=[OWNER, MONEY])
    task = await site.enqueue("pay", args={"to": "mallory"})
    refused = await site.vote("rosa", task["id"])
    await site.vote("rob", task["id"])
    assert (refused.status, await site.status(task["id"]), site.done) == (403, "reviewing", [])
    [gate] = (await site.ask("rita", "GET", f"/approvals/{task['id']}")).json()["review"]["gates"]
    assert (gate["state"], [step["is_fired"] for step in gate["escalations"]]) == ("blocked", [False])


async def test_its_own_steps_still_help_a_policy_that_is_stuck(site: Site) -> None:
    steps = [{"after": "1h", "users": ["rita"]}]
    await site.rules(guard=[GUARD], policy=[{**OWNER, "steps": steps}, MONEY])
    task = await site.enqueue("pay", args={"to": "landlord"})
    assert (await site.vote("rosa", task["id"])).status == 403  # nobody needs her: rob can still vote
    for voter in ("rita", "rob"):
        assert (await site.status(task["id"]), site.done) == ("reviewing", [])
        await site.vote(voter, task["id"])
    await site.until(task["id"], "completed")
