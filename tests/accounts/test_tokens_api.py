"""Access tokens over the operations: shown once, never for more than one may give, and nobody else's business."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.accounts import api as accounts_api
from ade.accounts.api import ListTokens, NewOwnToken, NewToken
from ade.accounts.model import (
    FOR_PEOPLE,
    Caller,
    InvalidToken,
    NotAuthenticated,
    Permission,
    Role,
    Token,
    UnknownAccount,
    UnknownToken,
    User,
)
from ade.errors import NotPermitted
from tests.approvals.people import as_caller, by, fresh, person, through_token
from tests.domain import ReauthenticationNeeded, local_caller, to_wire, use_token
from tests.server.operations import LOCAL, Operations


async def test_a_secret_is_answered_once(ops: Operations) -> None:
    await person(ops, "root", "admin")
    agent = await ops.account("helper", Role.AGENT)
    root = await fresh(ops, "root", "create_token")
    form = NewToken(account="Helper", seconds=3_600.0, label="for tests")
    made = await accounts_api.create_token(ops.services, root, form)
    assert (made.account, made.label, made.expires_at - made.created_at) == ("helper", "for tests", 3_600_000)
    assert made.scopes == agent.permissions
    assert (await use_token(ops.services.stores, made.secret)).user.id == "helper"
    assert made.secret not in repr(made)
    assert msgspec.json.decode(msgspec.json.encode(to_wire(made)))["secret"] == made.secret

    listed = await accounts_api.list_tokens(ops.services, root, ListTokens())
    shown = await accounts_api.get_token(ops.services, root, made.id)
    assert [token.id for token in listed.items] == [made.id]
    assert made.secret not in msgspec.json.encode([to_wire(shown), to_wire(listed)]).decode()

    revoked = await accounts_api.revoke_token(ops.services, root, made.id)
    assert revoked.revoked_at is not None
    with pytest.raises(NotAuthenticated):
        await use_token(ops.services.stores, made.secret)


async def test_scopes_are_within_what_the_account_may_do(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await ops.account("helper", Role.AGENT)
    root = await fresh(ops, "root", "create_token")
    for beyond in (Permission.VOTE, Permission.OPERATE, Permission.ADMINISTER):
        form = NewToken(account="helper", scopes=frozenset({Permission.READ, beyond}))
        with pytest.raises(InvalidToken):
            await accounts_api.create_token(ops.services, root, form)
    with pytest.raises(InvalidToken):
        await accounts_api.create_token(ops.services, root, NewToken(account="helper", scopes=frozenset()))
    with pytest.raises(UnknownAccount):
        await accounts_api.create_token(ops.services, root, NewToken(account="no one"))
    assert (await accounts_api.list_tokens(ops.services, root, ListTokens())).items == []
    narrow = NewToken(account="helper", scopes=frozenset({Permission.READ}))
    assert (await accounts_api.create_token(ops.services, root, narrow)).scopes == {Permission.READ}


async def test_nobody_gets_a_vote_of_somebody_else(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await person(ops, "bob", "reviewer")
    root = await fresh(ops, "root", "create_token")
    assert (await accounts_api.create_token(ops.services, root, NewToken(account="bob"))).scopes == {Permission.READ}
    with pytest.raises(NotPermitted, match="permission vote"):
        await accounts_api.create_token(
            ops.services, root, NewToken(account="bob", scopes=frozenset({Permission.VOTE}))
        )
    # Whoever can open the store may do all, as ever.
    assert Permission.VOTE in (await accounts_api.create_token(ops.services, LOCAL, NewToken(account="bob"))).scopes


async def test_no_token_makes_another(ops: Operations) -> None:
    await person(ops, "root", "admin")
    for scopes in ((), (Permission.READ, Permission.ADMINISTER)):
        token = await through_token(ops, "root", "create_token", *scopes)
        for form in (NewToken(account="root"), NewToken(account="root", scopes=frozenset({Permission.READ}))):
            with pytest.raises(ReauthenticationNeeded, match="an access token is not enough"):
                await accounts_api.create_token(ops.services, token, form)


async def test_where_nobody_is_asked_who_he_is_there_is_no_vote_to_be_had(ops: Operations) -> None:
    request = as_caller(await local_caller(ops.services.stores), "create_token")
    made = await accounts_api.create_token(ops.services, request, NewToken(account="local"))
    assert not made.scopes & {Permission.VOTE, Permission.BREAK_GLASS}


async def test_a_person_makes_his_own_with_a_fresh_password(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    with pytest.raises(NotPermitted):
        await by(ops, "bob", "create_token")
    with pytest.raises(NotPermitted, match="token is not enough"):
        await through_token(ops, "bob", "create_own_token")
    with pytest.raises(ReauthenticationNeeded):
        await accounts_api.create_own_token(ops.services, await by(ops, "bob", "create_own_token"), NewOwnToken())
    bob = await fresh(ops, "bob", "create_own_token")
    made = await accounts_api.create_own_token(ops.services, bob, NewOwnToken(label="laptop"))
    assert (made.account, sorted(made.scopes)) == ("bob", [Permission.READ, Permission.VOTE])
    with pytest.raises(InvalidToken):
        await accounts_api.create_own_token(ops.services, bob, NewOwnToken(scopes=frozenset({Permission.OPERATE})))

    gone = await accounts_api.revoke_own_token(ops.services, await by(ops, "bob", "revoke_own_token"), made.id)
    assert gone.revoked_at is not None


async def test_foreign_tokens_do_not_exist(ops: Operations) -> None:
    for name in ("bob", "cy"):
        await person(ops, name, "reviewer")
    await ops.account("bot", Role.AGENT, owner="bob")
    own = [await accounts_api.create_token(ops.services, LOCAL, NewToken(account=name)) for name in ("bob", "bot")]
    foreign = await accounts_api.create_token(ops.services, LOCAL, NewToken(account="cy"))

    bob = await by(ops, "bob", "list_tokens")
    listed = await accounts_api.list_tokens(ops.services, bob, ListTokens())
    assert {token.id for token in listed.items} == {token.id for token in own}
    of_bot = await accounts_api.list_tokens(ops.services, bob, ListTokens(account="bot"))
    assert [token.account for token in of_bot.items] == ["bot"]
    with pytest.raises(UnknownAccount) as hidden:
        await accounts_api.list_tokens(ops.services, bob, ListTokens(account="cy"))
    assert "'cy'" in hidden.value.detail
    for wrong in (foreign.id, "a{b}", "x" * 900):
        with pytest.raises(UnknownToken):
            await accounts_api.get_token(ops.services, await by(ops, "bob", "get_token"), wrong)
        with pytest.raises(UnknownToken):
            await accounts_api.revoke_own_token(ops.services, await by(ops, "bob", "revoke_own_token"), wrong)
    assert (await accounts_api.get_token(ops.services, LOCAL, foreign.id)).revoked_at is None
    with pytest.raises(NotPermitted):
        await by(ops, "bob", "revoke_token")


SCOPES = st.frozensets(st.sampled_from(list(Permission)))
ROLES = st.frozensets(st.sampled_from([str(role) for role in Role]))


@given(of_caller=ROLES, scopes=SCOPES | st.none(), of_other=ROLES, is_self=st.booleans(), wanted=SCOPES | st.none())
def test_no_token_is_ever_made_for_more_than_its_maker_may_give(
    of_caller: frozenset[str],
    scopes: frozenset[Permission] | None,
    of_other: frozenset[str],
    is_self: bool,
    wanted: frozenset[Permission] | None,
) -> None:
    root = User(id="root", roles=of_caller)
    token = None if scopes is None else Token(id="t", account="root", scopes=scopes, created_at=0, expires_at=1)
    caller = Caller(user=root, token=token)
    user = root if is_self else User(id="bob", roles=of_other)
    try:
        made = accounts_api.requested_scopes(caller, user, wanted)
    except (NotPermitted, InvalidToken):
        return
    possible = made & user.permissions  # the use case refuses what the account itself has not
    assert possible <= (caller.permissions if is_self else user.permissions - FOR_PEOPLE)
    assert made == (wanted if wanted is not None else possible)


@given(of_account=ROLES, of_creator=ROLES, scopes=SCOPES)
def test_a_token_never_does_more_than_its_scopes_account_and_creator(
    of_account: frozenset[str], of_creator: frozenset[str], scopes: frozenset[Permission]
) -> None:
    user, creator = User(id="bob", roles=of_account), User(id="eve", roles=of_creator)
    token = Token(id="t", account="bob", scopes=scopes, created_at=0, expires_at=1, created_by="eve")

    granted = Caller(user=user, token=token, creator=creator).permissions

    assert granted == user.permissions & creator.permissions & scopes
    assert not Caller(user=user, token=token, creator=structs.replace(creator, is_active=False)).permissions
