"""Attack: the author of a task names a policy that asks less than the rules require."""

import pytest

from tests.attacks.site import Site

WEAK = [
    {"id": "anyone", "rules": [{"needed": 1, "roles": ["reviewer"]}]},
    {"id": "self", "rules": [{"needed": 1, "roles": ["reviewer"]}], "authors_may_vote": True},
    {"id": "nobody", "rules": [{"needed": 1, "roles": ["reviewer"]}], "auto_approve": "medium"},
    {
        "id": "friends",
        "rules": [{"needed": 1, "users": ["rita"]}],
        "steps": [{"after": "1s", "users": ["mallory"]}],
    },
]
GUARD = {"do": "demand", "name": "pay", "reason": "money"}
TWO = {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}


@pytest.mark.parametrize("policy", ["anyone", "self", "nobody", "friends"])
async def test_a_guard_without_a_policy_still_needs_the_usual_quorum(site: Site, policy: str) -> None:
    payee = {"names": ["pay"], "argument": "to", "resource": "payee:{value}"}  # without it, the risk is critical
    await site.rules(guard=[GUARD], policy=WEAK, criticality={"bank:*": 100}, resource=[payee])
    accounts = ["bank:main", "bank:payroll", "bank:reserve"]  # a high risk, which two reviewers must approve
    task = await site.enqueue("pay", args={"to": "mallory"}, resources=accounts, approval=[policy])
    assert task["status"] == "reviewing"
    for voter in ("mallory", "rita"):
        await site.vote(voter, task["id"])
        assert await site.status(task["id"]) == "reviewing", f"{voter} alone was enough"
    assert site.done == []
    for voter in ("rob", "rosa") if policy == "friends" else ("rob",):  # rita fills the slot that the author added
        await site.vote(voter, task["id"])
    await site.until(task["id"], "completed")


@pytest.mark.parametrize("policy", ["anyone", "self", "nobody", "friends"])
async def test_a_named_policy_of_the_guard_is_not_weakened(site: Site, policy: str) -> None:
    await site.rules(guard=[{**GUARD, "policy": "two"}], policy=[TWO, *WEAK])
    task = await site.enqueue("pay", args={"to": "mallory"}, approval=[policy])
    await site.vote("mallory", task["id"])
    await site.vote("rita", task["id"])
    assert (await site.status(task["id"]), site.done) == ("reviewing", [])
    await site.vote("rob", task["id"])
    if policy == "friends":  # rita's vote is the one that the author asked for, and one person fills one slot
        assert (await site.status(task["id"]), site.done) == ("reviewing", [])
        await site.vote("rosa", task["id"])
    await site.until(task["id"], "completed")


@pytest.mark.parametrize("policy", ["self", "nobody"])
async def test_a_task_with_a_preview_keeps_the_usual_quorum(site: Site, policy: str) -> None:
    await site.rules(policy=WEAK)
    await site.ask("ada", "PUT", "/features/auto_approve_low_risk", {"is_on": True})
    task = await site.enqueue("deploy", args={"service": "web"}, approval=[policy])
    await site.until(task["id"], "reviewing")
    refused = await site.vote("mallory", task["id"])
    assert (refused.status, await site.status(task["id"]), site.done) == (403, "reviewing", [])
    await site.vote("rita", task["id"])
    assert (await site.until(task["id"], "completed")).result is not None


async def test_what_no_rule_governs_follows_the_authors_own_choice(site: Site) -> None:
    """An author who wants a second pair of eyes gets just that."""
    await site.rules(policy=WEAK)
    task = await site.enqueue("pay", args={"to": "landlord"}, approval=["anyone"])
    await site.vote("rita", task["id"])
    assert (await site.until(task["id"], "completed")).result is not None
