"""Login sessions over the operations: begun, confirmed, ended, and their secret in no answer."""

import msgspec
import pytest

from ade.accounts import api as accounts_api
from ade.accounts import api_sessions
from ade.accounts.api import ChangeOwnPassword, ConfirmSession, ListSessions, NewUser, SignIn, UseLoginLink
from ade.accounts.model import (
    NotAuthenticated,
    Permission,
    Role,
    TooManyRequests,
    UnknownAccount,
    UnknownSession,
    WeakPassword,
)
from ade.accounts.views import SignedIn
from ade.errors import NotPermitted
from tests.approvals.people import PASSWORD, as_caller, by, person, through_token
from tests.domain import ReauthenticationNeeded, RequestContext, from_wire, local_caller, to_wire, use_session
from tests.server.operations import LOCAL, Operations

pytestmark = pytest.mark.usefixtures("cheap_passwords")

NEW = "a much better horse"


def outside(address: str = "192.0.2.1") -> RequestContext:
    """Somebody whom nobody knows yet."""
    return RequestContext(actor=f"http:{address}", address=address, user_agent="test")


async def signed_in(ops: Operations, name: str = "bob") -> SignedIn:
    return await api_sessions.sign_in(ops.services, outside(), SignIn(name=name, password=PASSWORD))


async def within(ops: Operations, signed: SignedIn, operation: str) -> RequestContext:
    return as_caller(await use_session(ops.services.stores, signed.secret), operation)


async def test_the_secret_is_for_the_cookie_alone(ops: Operations) -> None:
    await person(ops, "bob", "reviewer", display_name="Bob")
    signed = await api_sessions.sign_in(ops.services, outside(), SignIn(name="BOB", password=PASSWORD))
    assert (signed.account, signed.roles) == ("bob", ["reviewer"])
    assert signed.permissions == [Permission.READ, Permission.VOTE]
    assert (signed.session.ip, signed.session.user_agent, signed.session.is_current) == ("192.0.2.1", "test", True)
    assert signed.session.expires_at - signed.session.created_at == 86_400_000
    assert signed.session.idle_ends_at - signed.session.created_at == 3_600_000
    assert (await use_session(ops.services.stores, signed.secret)).user.id == "bob"
    sent = msgspec.json.encode(to_wire(signed)).decode()
    assert signed.secret not in sent + repr(signed)
    assert from_wire(to_wire(signed), SignedIn).secret == ""


async def test_nobody_learns_what_was_wrong(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    told = set()
    for name, password in (("bob", "wrong, all of it"), ("nobody", PASSWORD), ("a b", PASSWORD), ("bob", "")):
        with pytest.raises(NotAuthenticated) as refused:
            await api_sessions.sign_in(ops.services, outside(), SignIn(name=name, password=password))
        told.add(refused.value.detail)
    assert len(told) == 1
    assert (await api_sessions.list_sessions(ops.services, LOCAL, ListSessions())).items == []


async def test_tries_are_counted_by_account_and_by_address(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await person(ops, "cy", "reviewer")
    for number in range(10):  # many addresses, one account
        with pytest.raises(NotAuthenticated):
            await api_sessions.sign_in(ops.services, outside(f"198.51.100.{number}"), SignIn(name="bob", password="x"))
    with pytest.raises(TooManyRequests):
        await api_sessions.sign_in(ops.services, outside("198.51.100.99"), SignIn(name="bob", password=PASSWORD))

    for _ in range(10):  # one address, whatever it tries
        with pytest.raises(NotAuthenticated):
            await api_sessions.use_login_link(ops.services, outside("2001:db8::1"), UseLoginLink(secret="wrong"))
    with pytest.raises(TooManyRequests):
        await api_sessions.sign_in(ops.services, outside("2001:db8::2"), SignIn(name="cy", password=PASSWORD))
    await api_sessions.sign_in(ops.services, outside("203.0.113.1"), SignIn(name="cy", password=PASSWORD))


async def test_a_link_lets_in_once_and_gives_the_first_password(ops: Operations) -> None:
    await accounts_api.create_user(ops.services, LOCAL, NewUser(id="eve", roles=["admin"]))
    link = await accounts_api.create_login_link(ops.services, LOCAL, "Eve")
    assert link.secret not in repr(link)
    form = UseLoginLink(secret=link.secret)
    assert link.secret not in repr(form)
    signed = await api_sessions.use_login_link(ops.services, outside(), form)
    assert (signed.account, signed.has_password) == ("eve", False)
    with pytest.raises(NotAuthenticated):
        await api_sessions.use_login_link(ops.services, outside(), form)

    request = await within(ops, signed, "change_own_password")
    changed = await api_sessions.change_own_password(ops.services, request, ChangeOwnPassword(new=NEW))
    assert changed.has_password
    assert changed.secret != signed.secret
    with pytest.raises(NotAuthenticated):
        await use_session(ops.services.stores, signed.secret)
    assert (await use_session(ops.services.stores, changed.secret)).user.id == "eve"


async def test_a_password_is_changed_with_the_old_one(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    first, other = await signed_in(ops), await signed_in(ops)
    request = await within(ops, first, "change_own_password")
    for wrong, error in (
        (ChangeOwnPassword(new=NEW), NotAuthenticated),
        (ChangeOwnPassword(new=NEW, old="not this one"), NotAuthenticated),
        (ChangeOwnPassword(new="short", old=PASSWORD), WeakPassword),
    ):
        with pytest.raises(error):
            await api_sessions.change_own_password(ops.services, request, wrong)
    await api_sessions.change_own_password(ops.services, request, ChangeOwnPassword(new=NEW, old=PASSWORD))
    for gone in (first, other):
        with pytest.raises(NotAuthenticated):
            await use_session(ops.services.stores, gone.secret)
    with pytest.raises(NotAuthenticated):
        await signed_in(ops)


async def test_the_first_password_takes_a_fresh_link(ops: Operations) -> None:
    await accounts_api.create_user(ops.services, LOCAL, NewUser(id="eve", roles=["viewer"]))
    link = await accounts_api.create_login_link(ops.services, LOCAL, "eve")
    signed = await api_sessions.use_login_link(ops.services, outside(), UseLoginLink(secret=link.secret))
    ops.clock.advance(301)
    request = await within(ops, signed, "change_own_password")
    with pytest.raises(ReauthenticationNeeded):
        await api_sessions.change_own_password(ops.services, request, ChangeOwnPassword(new=NEW))


async def test_a_session_is_confirmed_with_the_password(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    signed = await signed_in(ops)
    ops.clock.advance(600)
    request = await within(ops, signed, "confirm_session")
    assert request.caller is not None
    assert request.caller.session is not None
    assert not request.caller.session.is_fresh(ops.clock.now())
    with pytest.raises(NotAuthenticated):
        await api_sessions.confirm_session(ops.services, request, ConfirmSession(password="wrong, all of it"))
    confirmed = await api_sessions.confirm_session(ops.services, request, ConfirmSession(password=PASSWORD))
    assert confirmed.confirmed_at == ops.clock.now()
    session = (await use_session(ops.services.stores, signed.secret)).session
    assert session is not None
    assert session.is_fresh(ops.clock.now())


async def test_who_guesses_from_outside_does_not_keep_out_who_is_in(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    signed = await signed_in(ops)
    for number in range(9):
        with pytest.raises(NotAuthenticated):
            await api_sessions.sign_in(ops.services, outside(f"198.51.100.{number}"), SignIn(name="bob", password="x"))
    with pytest.raises(TooManyRequests):
        await api_sessions.sign_in(ops.services, outside("198.51.100.99"), SignIn(name="bob", password=PASSWORD))

    confirming = await within(ops, signed, "confirm_session")
    await api_sessions.confirm_session(ops.services, confirming, ConfirmSession(password=PASSWORD))
    for _ in range(8):  # these are counted too, apart
        with pytest.raises(NotAuthenticated):
            await api_sessions.confirm_session(ops.services, confirming, ConfirmSession(password="wrong, all of it"))
    changing = await within(ops, signed, "change_own_password")
    changed = await api_sessions.change_own_password(ops.services, changing, ChangeOwnPassword(new=NEW, old=PASSWORD))
    confirming = await within(ops, changed, "confirm_session")
    with pytest.raises(TooManyRequests):
        await api_sessions.confirm_session(ops.services, confirming, ConfirmSession(password=NEW))


async def test_sessions_end_one_by_one_or_all_together(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    first, second, third = [await signed_in(ops) for _ in range(3)]
    await api_sessions.sign_out(ops.services, await within(ops, first, "sign_out"))
    with pytest.raises(NotAuthenticated):
        await use_session(ops.services.stores, first.secret)

    await api_sessions.end_session(ops.services, await within(ops, second, "end_session"), third.session.id)
    with pytest.raises(NotAuthenticated):
        await use_session(ops.services.stores, third.secret)
    fourth = await signed_in(ops)
    ended = await api_sessions.sign_out_everywhere(ops.services, await within(ops, fourth, "sign_out_everywhere"))
    assert ended.ended == 2
    assert (await api_sessions.list_sessions(ops.services, LOCAL, ListSessions())).items == []


async def test_foreign_sessions_do_not_exist(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await person(ops, "cy", "reviewer")
    await person(ops, "root", "admin")
    mine, foreign = await signed_in(ops), await signed_in(ops, "cy")
    bob = await within(ops, mine, "list_sessions")
    own = await api_sessions.list_sessions(ops.services, bob, ListSessions())
    assert [(each.account, each.is_current) for each in own.items] == [("bob", True)]
    with pytest.raises(UnknownAccount):
        await api_sessions.list_sessions(ops.services, bob, ListSessions(account="cy"))
    for wrong in (foreign.session.id, "", "a{b}", "x" * 900):
        with pytest.raises(UnknownSession):
            await api_sessions.end_session(ops.services, await within(ops, mine, "end_session"), wrong)
    await use_session(ops.services.stores, foreign.secret)

    root = await by(ops, "root", "list_sessions")
    everybodys = await api_sessions.list_sessions(ops.services, root, ListSessions())
    assert {each.account for each in everybodys.items} == {"bob", "cy"}
    sent = msgspec.json.encode(to_wire(everybodys)).decode()
    assert all(each.secret not in sent for each in (mine, foreign))


async def test_a_session_that_nobody_uses_is_not_listed(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await signed_in(ops)
    ops.clock.advance(3_601)
    assert (await api_sessions.list_sessions(ops.services, LOCAL, ListSessions())).items == []


async def test_who_one_is(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    signed = await signed_in(ops)
    me = await api_sessions.get_me(ops.services, await within(ops, signed, "get_me"))
    assert (me.user.id, me.permissions, me.token) == ("bob", [Permission.READ, Permission.VOTE], None)
    assert me.session is not None
    assert me.session.is_current

    narrow = await through_token(ops, "bob", "get_me", Permission.READ)
    through = await api_sessions.get_me(ops.services, narrow)
    assert (through.permissions, through.session) == ([Permission.READ], None)
    assert through.token is not None
    agent = await ops.account("helper", Role.AGENT)
    assert not (await api_sessions.get_me(ops.services, ops.request(agent, "get_me"))).user.is_human
    nobody_asked = await api_sessions.get_me(ops.services, as_caller(await local_caller(ops.services.stores), "get_me"))
    assert (nobody_asked.user.id, nobody_asked.token) == ("local", None)
    with pytest.raises(UnknownAccount):
        await api_sessions.get_me(ops.services, LOCAL)
    msgspec.json.encode(to_wire(me))


async def test_a_token_is_no_session(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    for operation in ("confirm_session", "sign_out", "sign_out_everywhere", "end_session", "change_own_password"):
        with pytest.raises(NotPermitted, match="a token is not enough"):
            await through_token(ops, "bob", operation)
    with pytest.raises(NotAuthenticated):
        await api_sessions.sign_out(ops.services, LOCAL)
