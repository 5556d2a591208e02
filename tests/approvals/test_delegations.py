"""Delegations: made by whose place it is, given to who may vote, and never twice or in a ring."""

import pytest

from ade.accounts.model import InvalidDelegation, UnknownAccount, UnknownDelegation, User
from ade.approvals.delegations import create, list_delegations, load_delegations, revoke
from ade.errors import NotPermitted
from ade.testing import TestClock
from tests.domain import Delegation, Stores, UserChanges, add_user, change_user
from tests.stores.interleaved_writes import meanwhile

DAY_MS = 86_400_000
START = TestClock().now()
REVIEWERS = ("ada", "bob", "cyd")


@pytest.fixture
async def stores(stores: Stores) -> Stores:
    """Three reviewers, an admin, a viewer and a program."""
    for name in REVIEWERS:
        await add_user(stores, User(id=name, roles=frozenset({"reviewer"})))
    await add_user(stores, User(id="root", roles=frozenset({"admin"})))
    await add_user(stores, User(id="eve", roles=frozenset({"viewer"})))
    await add_user(stores, User(id="bot", roles=frozenset({"agent"}), is_human=False, owner="ada"))
    return stores


def to(delegator: str, delegate: str, **more: object) -> Delegation:
    known: dict[str, object] = {"starts_at": START, "ends_at": START + 7 * DAY_MS}
    return Delegation(id="", delegator=delegator, delegate=delegate, **(known | more))  # type: ignore[arg-type]  # its fields by name


async def test_somebody_goes_away_and_another_answers(stores: Stores, clock: TestClock) -> None:
    made = await create(stores, to("Ada", "BOB", names=frozenset({"deploy*"})), actor="ada")

    assert (made.delegator, made.delegate) == ("ada", "bob")
    assert await load_delegations(stores) == [made]
    event = (await stores.events.read(0, 100))[-1]
    assert (event.type, event.actor) == ("delegation.created", "ada")
    assert event.payload == {
        "delegation": made.id,
        "delegator": "ada",
        "delegate": "bob",
        "starts_at": clock.now(),
        "ends_at": made.ends_at,
        "cascades": False,
        "conditions": {"names": ["deploy*"]},
    }


async def test_an_admin_may_do_it_for_others_and_nobody_else(stores: Stores) -> None:
    made = await create(stores, to("ada", "bob"), actor="root")

    for meddler in ("bob", "cyd", "eve", "bot"):
        with pytest.raises(NotPermitted, match="only ada or an admin"):
            await create(
                stores, to("ada", "cyd", starts_at=START + 30 * DAY_MS, ends_at=START + 31 * DAY_MS), actor=meddler
            )
        with pytest.raises(NotPermitted):
            await revoke(stores, made.id, actor=meddler)
    assert (await revoke(stores, made.id, actor="root")).is_revoked


async def test_it_is_given_to_active_people_who_may_vote(stores: Stores) -> None:
    await change_user(stores, "cyd", UserChanges(is_active=False))

    for delegate, why in (("cyd", "deactivated"), ("eve", "may not vote"), ("bot", "service account")):
        with pytest.raises(InvalidDelegation, match=why):
            await create(stores, to("ada", delegate), actor="ada")
    with pytest.raises(UnknownAccount):
        await create(stores, to("ada", "nobody"), actor="ada")
    with pytest.raises(UnknownAccount):
        await create(stores, to("nobody", "ada"), actor="root")
    for delegator in ("cyd", "bot"):
        with pytest.raises(InvalidDelegation, match="nothing to delegate"):
            await create(stores, to(delegator, "ada"), actor="root")
    assert await load_delegations(stores) == []


async def test_it_lasts_for_90_days_at_most_and_not_backwards(stores: Stores, clock: TestClock) -> None:
    with pytest.raises(InvalidDelegation, match="90 days"):
        await create(stores, to("ada", "bob", ends_at=START + 90 * DAY_MS + 1), actor="ada")
    with pytest.raises(InvalidDelegation):
        await create(stores, to("ada", "bob", starts_at=START - DAY_MS, ends_at=START), actor="ada")
    early = await create(stores, to("ada", "bob", starts_at=START - DAY_MS), actor="ada")

    assert early.starts_at == clock.now()


async def test_no_ring_and_no_second_delegate_for_the_same(stores: Stores) -> None:
    first = await create(stores, to("ada", "bob"), actor="ada")
    await create(stores, to("bob", "cyd"), actor="bob")

    with pytest.raises(InvalidDelegation, match="already, directly or through others"):
        await create(stores, to("cyd", "ada"), actor="cyd")
    with pytest.raises(InvalidDelegation, match=first.id):
        await create(stores, to("ada", "cyd", tags=frozenset({"web"})), actor="ada")

    await revoke(stores, first.id, actor="ada")
    await create(stores, to("ada", "cyd"), actor="ada")


async def test_a_ring_that_two_close_at_once_is_told(stores: Stores) -> None:
    async def other_way_round() -> None:
        await create(stores, to("bob", "ada"), actor="bob")

    late = await create(meanwhile(stores, other_way_round), to("ada", "bob"), actor="ada")

    event = (await stores.events.read(0, 100))[-1]
    assert (event.type, event.payload["delegation"]) == ("delegation.ring_found", late.id)


async def test_it_is_taken_back_once(stores: Stores) -> None:
    made = await create(stores, to("ada", "bob"), actor="ada")

    await revoke(stores, made.id, actor="ada")
    await revoke(stores, made.id, actor="ada")

    assert [each.is_revoked for each in await load_delegations(stores)] == [True]
    assert [event.type for event in await stores.events.read(0, 100)].count("delegation.revoked") == 1
    with pytest.raises(UnknownDelegation, match="ade delegations list"):
        await revoke(stores, "nonsense", actor="ada")


async def test_everybody_finds_his_own_and_old_ones_are_forgotten(stores: Stores, clock: TestClock) -> None:
    given = await create(stores, to("ada", "bob"), actor="ada")
    clock.advance(1)
    other = await create(stores, to("cyd", "root"), actor="cyd")

    assert await list_delegations(stores, "ada") == await list_delegations(stores, "bob") == [given]
    assert await list_delegations(stores) == [given, other]
    clock.advance((7 + 90) * 86_400)
    assert await list_delegations(stores) == []
