"""Attack: a human with several accounts counts as several people, because the accounts are linked in a chain."""

import pytest
from msgspec import structs

from ade.accounts.users import USERS, get_user
from ade.approvals.service import sweep_reviews
from tests.attacks.site import PASSWORD, Site
from tests.attacks.test_an_admins_token import signed_in
from tests.attacks.test_edited_records import _verify
from tests.domain import Payloads, Role, User, add_user

GUARD = [{"do": "demand", "name": "pay", "policy": "two", "reason": "money"}]
POLICY = [{"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}]


async def linked(site: Site, account: str, person: str) -> None:
    ada = await signed_in(site, "ada")
    changed = await ada.ask("PATCH", f"/users/{account}", {"person": person}, **{"if-match": "*"})
    assert changed.status == 200, changed


async def is_met_by_one_human(site: Site, accounts: tuple[str, ...]) -> bool:
    """Whether all these accounts together pass what takes two people."""
    await site.rules(guard=GUARD, policy=POLICY)
    task = (await site.enqueue("pay", args={"to": "mallory"}))["id"]
    for account in accounts:
        await site.vote(account, task)
    return await site.status(task) != "reviewing"


@pytest.mark.parametrize("order", [(("rita", "rob"), ("rob", "rosa")), (("rob", "rosa"), ("rita", "rob"))])
async def test_three_linked_accounts_are_one_person_in_a_quorum(site: Site, order: tuple[tuple[str, str], ...]) -> None:
    for account, person in order:
        await linked(site, account, person)
    assert not await is_met_by_one_human(site, ("rita", "rob", "rosa"))
    assert site.done == []


@pytest.mark.parametrize("last", ["", "rita"])
async def test_chains_and_rings_of_earlier_versions_are_one_person(site: Site, last: str) -> None:
    for account, person in (("rita", "rob"), ("rob", "rosa"), ("rosa", last)):
        stored = await USERS.get(site.stores, account)
        assert stored is not None
        old = structs.replace(await get_user(site.stores, account), person=person)
        await site.stores.documents.write([USERS.put(account, old, seen=stored.version)])
    assert not await is_met_by_one_human(site, ("rita", "rob", "rosa"))
    assert site.done == []


async def test_an_author_approves_with_no_account_of_a_chain(site: Site) -> None:
    for account, person in (("rita", "rob"), ("rob", "mallory")):
        await linked(site, account, person)
    await site.rules(guard=GUARD, policy=POLICY)
    task = (await site.enqueue("pay", args={"to": "mallory"}))["id"]  # of the program of mallory
    for account in ("rita", "rob", "mallory"):
        refused = await site.vote(account, task)
        assert (refused.status, refused.code) == (403, "conflict_of_interest"), account


async def delegated(site: Site, by: str, to: str) -> None:
    browser = await signed_in(site, by)
    assert (await browser.ask("POST", "/delegations", {"delegate": to, "ends": 3_600})).status == 201


@pytest.mark.parametrize("voters", [("rob", "rosa"), ("rosa", "rita")])
async def test_unlinking_does_not_multiply_the_votes_for_one_person(site: Site, voters: tuple[str, ...]) -> None:
    """Delegates of both accounts of rita vote, or one of them and she herself. Then an admin unlinks the accounts."""
    await add_user(site.stores, User(id="rita2", roles=frozenset({Role.REVIEWER}), person="rita"), password=PASSWORD)
    users = ["rita", "rita2", "ada"]
    await site.rules(guard=GUARD, policy=[{"id": "two", "rules": [{"needed": 2, "users": users}]}])
    for account, delegate in (("rita", "rob"), ("rita2", "rosa")):
        if delegate in voters:
            await delegated(site, account, delegate)
    task = (await site.enqueue("pay", args={"to": "mallory"}))["id"]
    for voter in voters:
        assert (await site.vote(voter, task)).status == 200
    await linked(site, "rita2", "")
    await sweep_reviews(site.stores, Payloads(site.stores.blobs))
    assert (await site.status(task), site.done) == ("reviewing", [])


async def test_who_votes_for_another_is_not_represented(site: Site) -> None:
    """Rob votes for rita, and rosa for rob. Two of rita and rob are needed, and rob has voted."""
    await site.rules(guard=GUARD, policy=[{"id": "two", "rules": [{"needed": 2, "users": ["rita", "rob"]}]}])
    await delegated(site, "rita", "rob")
    await delegated(site, "rob", "rosa")
    task = (await site.enqueue("pay", args={"to": "mallory"}))["id"]
    assert (await site.vote("rob", task, for_whom="rita")).status == 200
    refused = await site.vote("rosa", task, for_whom="rob")
    assert (refused.status, refused.code) == (403, "not_eligible")
    assert await site.status(task) == "reviewing"
    for voter in ("rita", "rob"):
        assert (await site.vote(voter, task, for_whom=voter)).status == 200
    await site.until(task, "completed")
    assert await _verify(site) == []
