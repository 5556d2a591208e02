"""Attack: someone whose vote did not count takes the approval of others back."""

from tests.attacks.site import Site
from tests.waiting import eventually

GUARD = [{"do": "demand", "name": "pay", "policy": "two", "reason": "money"}]
POLICY = [{"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}], "deny_threshold": 2}]


async def test_only_who_approved_or_an_operator_revokes(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "landlord"}, start="by_hand")
    await site.vote("rosa", task["id"], "reject")  # one no is not enough under this policy
    await site.vote("rita", task["id"])
    await site.vote("rob", task["id"])
    assert await site.status(task["id"]) == "approved"
    path, why = f"/approvals/{task['id']}/revoke", {"reason": "I disagree"}
    for stranger in ("rosa", "bot"):
        refused = await site.ask(stranger, "POST", path, why)
        assert refused.status == 403, refused
        assert await site.status(task["id"]) == "approved"
    assert (await site.ask("rob", "POST", path, why)).status == 200
    assert await site.status(task["id"]) == "reviewing"


async def test_an_operator_may(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "landlord"}, start="by_hand")
    for voter in ("rita", "rob"):
        await site.vote(voter, task["id"])
    revoked = await site.ask("olga", "POST", f"/approvals/{task['id']}/revoke", {"reason": "wrong account"})
    assert (revoked.status, await site.status(task["id"])) == (200, "reviewing")


async def test_who_revokes_a_step_leaves_the_approval_of_the_task(site: Site) -> None:
    one = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
    await site.rules(guard=[{"do": "demand", "name": "wipe", "policy": "one", "reason": "disks"}], policy=one)
    task = (await site.enqueue("wipe", args={"disk": "d"}))["id"]
    await site.vote("rita", task)

    async def step() -> bool:
        found = await site.task(task)
        return str(found.status) == "reviewing" and found.review is not None and len(found.review.gates) > 1

    await eventually(step)
    assert (await site.ask("olga", "POST", "/queues/default/pause", {})).status == 200
    await site.vote("rob", task)
    revoked = await site.ask("rob", "POST", f"/approvals/{task}/revoke", {"reason": "a mistake"})
    assert (revoked.status, await site.status(task)) == (200, "reviewing")

    assert (await site.vote("rosa", task)).status == 200
    assert (await site.ask("olga", "POST", "/queues/default/resume", {})).status == 200
    ended = await site.until(task, "completed", "failed", "reviewing")
    assert (str(ended.status), site.done) == ("completed", [{"wipe": "d"}])
    assert ended.review is not None
    assert [str(gate.state) for gate in ended.review.gates] == ["approved", "revoked", "approved"]
