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
from ade.errors import AdeError, NotPermitted
from tests.approvals.people import PASSWORD, as_caller, by, fresh, person, through_token
from tests.domain import ReauthenticationNeeded, RequestContext, local_caller
from tests.server.operations import LOCAL, Operations

Ask = Callable[[str], Awaitable[RequestContext]]
NARROW = (Permission.READ, Permission.ADMINISTER)
ROLES = st.frozensets(st.sampled_from([*map(str, Role), "dba"]))


async def _people(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await person(ops, "bob", "reviewer")
    await person(ops, "olga", "operator")
    await person(ops, "vera", "viewer")


async def _giving(ops: Operations, ask: Ask, refusal: type[AdeError], words: str) -> None:
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
        with pytest.raises(refusal, match=words):
            await way(await ask(operation))
    await accounts_api.change_user(services, LOCAL, "bob", ChangeUser(is_active=False))
    with pytest.raises(refusal):
        await accounts_api.change_user(services, await ask("change_user"), "bob", ChangeUser(is_active=True))
    with pytest.raises(refusal):  # it might be switched on later
        await accounts_api.set_user_password(
            services, await ask("set_user_password"), "bob", SetPassword(password=another)
        )


async def test_who_answers_for_a_program_is_said_by_who_votes(ops: Operations) -> None:
    """Bob could approve what his own program does, if somebody else were its owner."""
    await _people(ops)
    await ops.account("bot", Role.AGENT, owner="bob")
    services, change, local = ops.services, ChangeUser(owner="olga"), await local_caller(ops.services.stores)
    for request, refusal in (
        (await through_token(ops, "root", "change_user"), ReauthenticationNeeded),
        (as_caller(local, "change_user"), NotPermitted),
    ):
        with pytest.raises(refusal):
            await accounts_api.change_user(services, request, "bot", change)
        await accounts_api.change_user(services, request, "bot", ChangeUser(owner="bob", display_name="Bot"))
    changed = await accounts_api.change_user(services, await fresh(ops, "root", "change_user"), "bot", change)
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


@pytest.mark.parametrize("scopes", [(), NARROW])
async def test_a_token_gives_nothing_to_anybody(ops: Operations, scopes: tuple[Permission, ...]) -> None:
    await _people(ops)
    words = "an access token is not enough"
    await _giving(ops, lambda operation: through_token(ops, "root", operation, *scopes), ReauthenticationNeeded, words)
    token = await through_token(ops, "root", "create_token", *scopes)
    for form in (NewToken(account="olga"), NewToken(account="olga", scopes=frozenset({Permission.READ}))):
        with pytest.raises(ReauthenticationNeeded):
            await accounts_api.create_token(ops.services, token, form)


async def test_a_session_gives_nothing_before_or_long_after_its_password(ops: Operations) -> None:
    await _people(ops)
    words, sessions = "within the last 10 minutes", (0, ops.clock.now() - 600_001, ops.clock.now() + 1)
    for at in sessions:
        await _giving(ops, lambda name, at=at: by(ops, "root", name, confirmed_at=at), ReauthenticationNeeded, words)  # type: ignore[misc]
        await accounts_api.change_user(ops.services, LOCAL, "bob", ChangeUser(is_active=True))


async def test_who_never_votes_makes_nobody_who_does(ops: Operations) -> None:
    await _people(ops)
    local = await local_caller(ops.services.stores)

    async def ask(operation: str) -> RequestContext:
        return as_caller(local, operation)

    await _giving(ops, ask, NotPermitted, r"cannot give access to .* vote")
    made = await accounts_api.create_user(
        ops.services, await ask("create_user"), NewUser(id="otto", roles=["operator"])
    )
    assert made.record.roles == ["operator"]
    await accounts_api.create_login_link(ops.services, await ask("create_login_link"), "otto")


async def test_in_a_hurry_a_token_is_enough_to_deactivate(ops: Operations) -> None:
    await _people(ops)

    async def changed(**fields: Any) -> bool:
        request = await through_token(ops, "root", "change_user", *NARROW)
        return (await accounts_api.change_user(ops.services, request, "bob", ChangeUser(**fields))).record.is_active

    assert await changed(display_name="Robert")
    assert not await changed(is_active=False)
    for back in ({"roles": ["viewer"]}, {"fewer_roles": ["reviewer"]}, {"is_active": True}):
        with pytest.raises(ReauthenticationNeeded):
            await changed(**back)


async def test_to_take_something_away_one_needs_not_have_it(ops: Operations) -> None:
    await _people(ops)
    local = as_caller(await local_caller(ops.services.stores), "change_user")

    async def changed(**fields: Any) -> list[str]:
        return (await accounts_api.change_user(ops.services, local, "bob", ChangeUser(**fields))).record.roles

    assert await changed(display_name="Robert") == ["reviewer"]
    await accounts_api.set_user_password(ops.services, local, "bob", SetPassword(remove=True))
    assert await changed(roles=["viewer"]) == ["viewer"]
    assert await changed(is_active=False) == ["viewer"]


async def test_an_admin_with_all_permissions_gives_them(ops: Operations) -> None:
    await _people(ops)
    root = await fresh(ops, "root", "create_user")
    await accounts_api.create_user(ops.services, root, NewUser(id="eve", roles=["admin"], password=PASSWORD))
    await accounts_api.create_login_link(ops.services, await fresh(ops, "root", "create_login_link"), "bob")
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
