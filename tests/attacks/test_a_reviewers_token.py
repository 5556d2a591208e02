"""Attack: whoever has stolen a reviewer's token passes the reviewer's vote on, to vote where the token cannot."""

from tests.attacks.site import Site
from tests.attacks.test_an_admins_token import happened, signed_in

GUARD = [{"do": "demand", "name": "pay", "policy": "rita", "reason": "money"}]
POLICY = [{"id": "rita", "rules": [{"needed": 1, "users": ["rita"]}]}]


async def payment(site: Site) -> str:
    """A payment of a critical risk, which only rita can approve, with a password."""
    await site.rules(guard=GUARD, policy=POLICY)
    return str((await site.enqueue("pay", args={"to": "mallory"}))["id"])


async def test_a_stolen_token_of_a_reviewer_does_not_delegate_the_vote(site: Site) -> None:
    task = await payment(site)
    for path, body in (
        ("/delegations", {"delegate": "rob", "ends": 3600}),
        ("/delegations", {"delegate": "rob", "ends": 3600, "delegator": "rita", "cascades": True}),
        (f"/approvals/{task}/delegate", {"to": "rob"}),
    ):
        refused = await site.ask("rita", "POST", path, body)
        assert (refused.status, refused.code) == (403, "reauthentication_needed"), path
        assert "an access token is not enough" in refused.json()["detail"], path
    vote = await site.vote("rob", task, for_whom="rita")
    assert (vote.status, await site.status(task), site.done) == (403, "reviewing", [])
    assert await happened(site, "delegation.created") == []


async def test_the_password_delegates_and_a_token_can_still_end_the_delegation(site: Site) -> None:
    task = await payment(site)
    rita = await signed_in(site, "rita")
    for path, body in (
        ("/delegations", {"delegate": "rob", "ends": 3600}),
        (f"/approvals/{task}/delegate", {"to": "rob"}),
    ):
        made = await rita.ask("POST", path, body)
        assert made.json()["delegate"] == "rob", made
        ended = await site.ask("rita", "DELETE", f"/delegations/{made.json()['id']}")
        assert (ended.status, ended.json()["is_revoked"]) == (200, True)
    vote = await site.vote("rob", task, for_whom="rita")
    assert (vote.status, await site.status(task)) == (403, "reviewing")
