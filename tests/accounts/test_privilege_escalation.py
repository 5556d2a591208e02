"""Nobody gets, through the account of another, what he may not do himself."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.accounts import api as accounts_api
from ade.accounts.api import ChangeUser, NewToken, NewUser, SetPassword
from ade.accounts.authorization import check_grant, is_grant
from ade.accounts.model import Caller, Permission, Role, Token, User
from ade.approvals import api as approvals_api
from ade.approvals.api import NewDelegation
from ade.errors import NotPermitted
from tests.approvals.people import PASSWORD, as_caller, by, person, through_token
from tests.domain import RequestContext, local_caller
from tests.server.operations import LOCAL, Operations

Ask = Callable[[str], Awaitable[RequestContext]]
NARROW = (Permission.READ, Permission.ADMINISTER)
ROLES = st.frozensets(st.sampled_from([*map(str, Role), "dba"]))


async def _people(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await person(ops, "bob", "reviewer")
    await person(ops, "olga", "operator")
    await person(ops, "vera", "viewer")


async def _giving(ops: Operations, ask: Ask) -> None:
    """All ways to become a reviewer, and then the others."""
    services = ops.services
    another = "another one, long"
    ways: list[tuple[str, Callable[[RequestContext], Awaitable[Any]]]] = [
        (
            "create_user",
            lambda by: accounts_api.create_user(services, by, NewUser(id="eve", roles=["Reviewer"], password=another)),
        ),
        ("change_user", lambda by: accounts_api.change_user(services, by, "vera", ChangeUser(more_roles=["reviewer"]))),
        ("change_user", lambda by: accounts_api.change_user(services, by, "vera", ChangeUser(roles=["admin"]))),
        ("change_user", lambda by: accounts_api.change_user(services, by, "bob", ChangeUser(more_roles=["dba"]))),
        ("change_user", lambda by: accounts_api.change_user(services, by, "bob", ChangeUser(person="vera"))),
        (
            "set_user_password",
            lambda by: accounts_api.set_user_password(services, by, "Bob", SetPassword(password=another)),
        ),
        (
            "set_user_password",
            lambda by: accounts_api.set_user_password(services, by, "root", SetPassword(password=another)),
        ),
        ("create_login_link", lambda by: accounts_api.create_login_link(services, by, "bob")),
    ]
    for operation, way in ways:
        with pytest.raises(NotPermitted, match=r"cannot give access to .* vote"):
            await way(await ask(operation))
    await accounts_api.change_user(services, LOCAL, "bob", ChangeUser(is_active=False))
    with pytest.raises(NotPermitted):
        await accounts_api.change_user(services, await ask("change_user"), "bob", ChangeUser(is_active=True))
    with pytest.raises(NotPermitted):  # it might be switched on later
        await accounts_api.set_user_password(
            services, await ask("set_user_password"), "bob", SetPassword(password=another)
        )


async def test_who_answers_for_a_program_is_said_by_who_votes(ops: Operations) -> None:
    """Bob could approve what his own program does, if somebody else were its owner."""
    await _people(ops)
    await ops.account("bot", Role.AGENT, owner="bob")
    services, change, local = ops.services, ChangeUser(owner="olga"), await local_caller(ops.services.stores)
    every = tuple(Permission)
    without_vote = [each for each in every if each is not Permission.VOTE]
    for request in (await through_token(ops, "root", "change_user", *without_vote), as_caller(local, "change_user")):
        with pytest.raises(NotPermitted, match="bob could then approve what it does"):
            await accounts_api.change_user(services, request, "bot", change)
        await accounts_api.change_user(services, request, "bot", ChangeUser(owner="bob", display_name="Bot"))
    narrow = await through_token(ops, "root", "change_user", Permission.ADMINISTER, Permission.VOTE)
    with pytest.raises(NotPermitted, match="cannot give access to bot"):
        await accounts_api.change_user(services, narrow, "bot", change)
    changed = await accounts_api.change_user(
        services, await through_token(ops, "root", "change_user", *every), "bot", change
    )
    assert changed.record.owner == "olga"


@pytest.mark.parametrize("scopes", [{Permission.ADMINISTER}, NARROW, {Permission.ADMINISTER, Permission.OPERATE}])
async def test_a_token_that_is_not_for_votes_delegates_none(ops: Operations, scopes: frozenset[Permission]) -> None:
    await _people(ops)
    for operation in ("create_delegation", "revoke_delegation", "delegate_approval"):
        with pytest.raises(NotPermitted, match="does not have the scope vote"):
            await through_token(ops, "root", operation, *scopes)
    only_votes = await through_token(ops, "root", "create_delegation", Permission.VOTE)
    with pytest.raises(NotPermitted, match="cannot decide on a delegation of bob"):
        await approvals_api.create_delegation(
            ops.services, only_votes, NewDelegation(delegator="bob", delegate="root", ends=60.0)
        )


async def test_a_token_that_is_for_less_gives_less(ops: Operations) -> None:
    await _people(ops)
    await _giving(ops, lambda operation: through_token(ops, "root", operation, *NARROW))
    narrow = await through_token(ops, "root", "create_token", *NARROW)
    for form in (NewToken(account="olga"), NewToken(account="olga", scopes=frozenset({Permission.OPERATE}))):
        with pytest.raises(NotPermitted, match="operate: root does not have that permission through this token"):
            await accounts_api.create_token(ops.services, narrow, form)
    made = await accounts_api.create_token(
        ops.services, narrow, NewToken(account="olga", scopes=frozenset({Permission.READ}))
    )
    assert made.scopes == {Permission.READ}


async def test_who_never_votes_makes_nobody_who_does(ops: Operations) -> None:
    await _people(ops)
    local = await local_caller(ops.services.stores)

    async def ask(operation: str) -> RequestContext:
        return as_caller(local, operation)

    await _giving(ops, ask)
    made = await accounts_api.create_user(
        ops.services, await ask("create_user"), NewUser(id="otto", roles=["operator"])
    )
    assert made.record.roles == ["operator"]
    await accounts_api.create_login_link(ops.services, await ask("create_login_link"), "otto")


async def test_to_take_something_away_one_needs_not_have_it(ops: Operations) -> None:
    await _people(ops)

    async def changed(**fields: Any) -> list[str]:
        request = await through_token(ops, "root", "change_user", *NARROW)
        return (await accounts_api.change_user(ops.services, request, "bob", ChangeUser(**fields))).record.roles

    assert await changed(display_name="Robert") == ["reviewer"]
    await accounts_api.set_user_password(
        ops.services, await through_token(ops, "root", "set_user_password", *NARROW), "bob", SetPassword(remove=True)
    )
    assert await changed(roles=["viewer"]) == ["viewer"]
    assert await changed(is_active=False) == ["viewer"]


async def test_an_admin_with_all_permissions_gives_them(ops: Operations) -> None:
    await _people(ops)
    root = await by(ops, "root", "create_user")
    await accounts_api.create_user(ops.services, root, NewUser(id="eve", roles=["admin"], password=PASSWORD))
    await accounts_api.create_login_link(ops.services, await by(ops, "root", "create_login_link"), "bob")
    events = await ops.services.stores.events.newest(2)
    assert [(event.type, event.actor) for event in events] == [("user.added", "root"), ("login_link.created", "root")]


@given(of_caller=ROLES, scopes=st.none() | st.frozensets(st.sampled_from(list(Permission))), before=ROLES, after=ROLES)
def test_whatever_is_given_the_giver_has(
    of_caller: frozenset[str], scopes: frozenset[Permission] | None, before: frozenset[str], after: frozenset[str]
) -> None:
    token = None if scopes is None else Token(id="t", account="root", scopes=scopes, created_at=0, expires_at=1)
    caller = Caller(user=User(id="root", roles=of_caller), token=token)
    old, new = User(id="bob", roles=before), User(id="bob", roles=after)
    assert is_grant(old, new) or new.permissions <= old.permissions
    try:
        check_grant(caller, new)
    except NotPermitted:
        assert not new.permissions <= caller.permissions
    else:
        assert new.permissions <= caller.permissions
