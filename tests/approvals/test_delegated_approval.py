"""One approval handed to somebody else: for this task alone, and never a way around the rules."""

import pytest

from ade import Status
from ade.accounts.model import InvalidDelegation, UnknownAccount, User
from ade.approvals import delegations
from ade.approvals.errors import ConflictOfInterest, GateClosed, NotEligible, UnknownApproval
from ade.approvals.service import delegate_approval
from tests.approvals.scene import APPROVE, Scene
from tests.domain import Delegation, add_user

CY = {"id": "cy", "names": ["deploy"], "rules": [{"needed": 1, "users": ["cy"]}]}
DBA = {"id": "dba", "names": ["deploy"], "rules": [{"needed": 1, "roles": ["dba"]}]}
TWO = {"id": "two", "names": ["deploy"], "rules": [{"needed": 2, "roles": ["reviewer"]}]}
DAY = 86_400_000


async def test_somebody_answers_in_the_place_of_who_was_asked(shop: Scene) -> None:
    await shop.rules(CY)
    task, other = await shop.asked(), await shop.asked("site")
    with pytest.raises(NotEligible):
        await shop.vote(task, "dee")

    made = await delegate_approval(shop.stores, task.id, "DEE", actor="cy")

    gate = await shop.gate(task)
    assert (made.delegator, made.delegate, made.task_id, made.ends_at) == ("cy", "dee", task.id, gate.expires_at)
    with pytest.raises(NotEligible):  # of no use anywhere else
        await shop.vote(other, "dee")
    assert (await shop.vote(task, "dee")).status is not Status.REVIEWING
    [vote] = (await shop.gate(task)).votes
    assert (vote.chain, vote.voter) == (("cy", "dee"), "dee")


async def test_whoever_has_a_hand_in_it_cannot_be_asked(shop: Scene) -> None:
    await shop.rules(CY)
    await add_user(shop.stores, User(id="ada2", person="ada", roles=frozenset({"reviewer"})))
    await add_user(shop.stores, User(id="bot", is_human=False, owner="bob", roles=frozenset({"agent"})))
    by_ada, by_bot = await shop.asked(), await shop.asked("site", author="bot")

    for task, to in ((by_ada, "ada"), (by_ada, "ada2"), (by_bot, "bob")):
        with pytest.raises(ConflictOfInterest, match="involved in this task"):
            await delegate_approval(shop.stores, task.id, to, actor="cy")
    with pytest.raises(NotEligible):  # nor has an author anything to hand on
        await delegate_approval(shop.stores, by_ada.id, "dee", actor="ada")
    assert await delegations.list_delegations(shop.stores) == []


async def test_one_person_still_fills_one_place(shop: Scene) -> None:
    await shop.rules(TWO)
    task = await shop.asked()
    await delegate_approval(shop.stores, task.id, "dee", actor="bob")

    await shop.vote(task, "dee", APPROVE)

    assert (await task.get()).status is Status.REVIEWING
    with pytest.raises(NotEligible, match="answered already"):
        await delegate_approval(shop.stores, task.id, "dee", actor="cy")


async def test_nobody_delegates_to_himself_under_another_name(shop: Scene) -> None:
    await shop.rules(CY)
    await add_user(shop.stores, User(id="cy2", person="cy", roles=frozenset({"reviewer"})))
    await shop.change("cy", person="cy")
    task = await shop.asked()

    for to in ("cy", "cy2"):
        with pytest.raises(InvalidDelegation, match="itself"):
            await delegate_approval(shop.stores, task.id, to, actor="cy")


async def test_what_was_lent_is_passed_on_only_if_that_was_allowed(shop: Scene) -> None:
    await shop.rules(CY)
    task, now = await shop.asked(), shop.stores.clock.now()
    lent = Delegation(id="", delegator="cy", delegate="bob", starts_at=now, ends_at=now + DAY)
    made = await delegations.create(shop.stores, lent, actor="cy")

    with pytest.raises(NotEligible, match="may not be passed on"):
        await delegate_approval(shop.stores, task.id, "dee", actor="bob")

    await delegations.revoke(shop.stores, made.id, actor="cy")
    cascading = Delegation(id="", delegator="cy", delegate="bob", starts_at=now, ends_at=now + DAY, cascades=True)
    await delegations.create(shop.stores, cascading, actor="cy")
    await delegate_approval(shop.stores, task.id, "dee", actor="bob")
    await shop.vote(task, "dee")
    assert (await shop.gate(task)).votes[0].chain == ("cy", "bob", "dee")


async def test_who_could_not_answer_is_refused_with_the_reason(shop: Scene) -> None:
    await shop.rules(CY)
    await shop.people(vic="viewer")
    await add_user(shop.stores, User(id="bot", is_human=False, owner="ada", roles=frozenset({"agent"})))
    task = await shop.asked(author="dee")

    with pytest.raises(InvalidDelegation, match="make it a reviewer first"):
        await delegate_approval(shop.stores, task.id, "vic", actor="cy")
    with pytest.raises(InvalidDelegation, match="service account"):
        await delegate_approval(shop.stores, task.id, "bot", actor="cy")
    with pytest.raises(UnknownAccount):
        await delegate_approval(shop.stores, task.id, "nobody", actor="cy")
    await shop.change("bob", is_active=False)
    with pytest.raises(InvalidDelegation, match="deactivated"):
        await delegate_approval(shop.stores, task.id, "bob", actor="cy")


async def test_what_is_decided_is_not_handed_on(shop: Scene) -> None:
    await shop.rules(CY)
    task = await shop.asked()
    await shop.vote(task, "cy")

    with pytest.raises(GateClosed):
        await delegate_approval(shop.stores, task.id, "dee", actor="cy")
    plain = await shop.app.enqueue("nothing-asked", {}, author="ada", allow_unknown=True)
    with pytest.raises(UnknownApproval):
        await delegate_approval(shop.stores, plain.id, "dee", actor="cy")


async def test_a_role_does_not_travel_unless_the_policy_says_so(shop: Scene) -> None:
    await shop.rules(DBA)
    task = await shop.asked()
    with pytest.raises(NotEligible, match="has not the role"):
        await delegate_approval(shop.stores, task.id, "dee", actor="cy")

    await shop.rules({**DBA, "roles_travel": True})
    other = await shop.asked("site")
    await delegate_approval(shop.stores, other.id, "dee", actor="cy")

    await shop.vote(other, "dee")
    assert (await shop.gate(other)).votes[0].chain == ("cy", "dee")
