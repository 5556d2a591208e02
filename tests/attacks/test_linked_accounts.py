"""Attack: a human with several accounts counts as several people, because the accounts are linked in a chain."""

import pytest
from msgspec import structs

from ade.accounts.users import USERS, get_user
from tests.attacks.site import Site
from tests.attacks.test_an_admins_token import signed_in

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
