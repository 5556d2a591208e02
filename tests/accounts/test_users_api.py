"""Accounts over the operations: who there is, and what admins change about it."""

import asyncio

import msgspec
import pytest

from ade.accounts import api as accounts_api
from ade.accounts import api_sessions
from ade.accounts.api import ChangeUser, ListUsers, NewUser, SetPassword, SignIn
from ade.accounts.model import AccountExists, InvalidAccount, LastAdmin, NotAuthenticated, UnknownAccount, WeakPassword
from ade.errors import NotPermitted, StaleWrite
from tests.approvals.people import PASSWORD, by, fresh, person
from tests.domain import RequestContext, RequestRefused, create_token, to_wire, use_session, use_token
from tests.server.operations import LOCAL, Operations

pytestmark = pytest.mark.usefixtures("cheap_passwords")

OUTSIDE = RequestContext(actor="http:192.0.2.1", address="192.0.2.1")


async def test_an_account_is_made_and_shown_without_its_password(ops: Operations) -> None:
    await person(ops, "root", "admin")
    root = await fresh(ops, "root", "create_user")
    form = NewUser(id="Ada", display_name="Ada L.", roles=["reviewer", "dba"], password=PASSWORD)
    assert "horse" not in repr(form)
    made = await accounts_api.create_user(ops.services, root, form)
    assert (made.record.id, made.record.roles, made.record.has_password) == ("ada", ["dba", "reviewer"], True)
    found = await accounts_api.get_user(ops.services, LOCAL, "ADA")
    assert found == made
    sent = msgspec.json.encode(to_wire(found.record)).decode()
    assert "scrypt" not in sent
    assert '"password"' not in sent
    with pytest.raises(AccountExists):
        await accounts_api.create_user(ops.services, root, NewUser(id="ada"))


async def test_a_list_is_filtered_and_cut(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await person(ops, "ada", "operator")
    await accounts_api.create_user(ops.services, LOCAL, NewUser(id="bot", roles=["agent"], is_human=False, owner="ada"))
    await accounts_api.change_user(ops.services, LOCAL, "bob", ChangeUser(is_active=False))

    async def names(**filters: object) -> list[str]:
        found = await accounts_api.list_users(ops.services, LOCAL, ListUsers(**filters))  # type: ignore[arg-type]
        return [user.id for user in found.items]

    assert await names() == ["ada", "bob", "bot"]
    assert await names(is_human=False) == ["bot"]
    assert await names(is_active=True, is_human=True) == ["ada"]
    assert await names(role="Operator") == ["ada"]
    first = await accounts_api.list_users(ops.services, LOCAL, ListUsers(limit=2))
    rest = await accounts_api.list_users(ops.services, LOCAL, ListUsers(limit=2, cursor=first.next))
    assert [user.id for user in rest.items] == ["bot"]


async def test_a_change_names_the_version_it_is_for(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await person(ops, "bob", "reviewer")
    seen = await accounts_api.get_user(ops.services, LOCAL, "bob")

    async def change(if_match: str | None, **fields: object) -> list[str]:
        request = await fresh(ops, "root", "change_user", if_match=if_match, tag_required=True)
        form = ChangeUser(**fields)  # type: ignore[arg-type]
        return (await accounts_api.change_user(ops.services, request, "Bob", form)).record.roles

    with pytest.raises(RequestRefused) as unsaid:
        await change(None, roles=["viewer"])
    assert unsaid.value.problem.status == 428
    assert await change(f'"{seen.version}"', more_roles=["dba"], fewer_roles=["Reviewer"]) == ["dba"]
    with pytest.raises(RequestRefused) as stale:
        await change(f'"{seen.version}"', roles=["viewer"])
    assert stale.value.problem.status == 412
    assert await change("*", roles=[]) == []
    after = await accounts_api.get_user(ops.services, LOCAL, "bob")
    assert after.version > seen.version


async def test_of_two_changes_of_one_version_at_once_one_counts(ops: Operations) -> None:
    await person(ops, "root", "admin")
    await person(ops, "bob", "reviewer")
    version = (await accounts_api.get_user(ops.services, LOCAL, "bob")).version
    root = await by(ops, "root", "change_user", if_match=f'"{version}"', tag_required=True)
    changes = [
        accounts_api.change_user(ops.services, root, "bob", ChangeUser(display_name=f"Bob {n}")) for n in range(5)
    ]
    done = await asyncio.gather(*changes, return_exceptions=True)
    refused = [each for each in done if isinstance(each, BaseException)]
    assert len(refused) == 4
    assert {type(each) for each in refused} <= {StaleWrite, RequestRefused}
    [kept] = [each for each in done if not isinstance(each, BaseException)]
    assert (await accounts_api.get_user(ops.services, LOCAL, "bob")).record == kept.record


async def test_what_is_not_said_stays(ops: Operations) -> None:
    await person(ops, "ada", "operator")
    await person(ops, "bob", "reviewer", person="ada", display_name="Bob")
    named = await accounts_api.change_user(ops.services, LOCAL, "bob", ChangeUser(display_name="Robert"))
    assert (named.record.display_name, named.record.person, named.record.roles) == ("Robert", "ada", ["reviewer"])
    alone = await accounts_api.change_user(ops.services, LOCAL, "bob", ChangeUser(person=""))
    assert (alone.record.display_name, alone.record.person) == ("Robert", None)


async def test_the_last_admin_stays(ops: Operations) -> None:
    await person(ops, "root", "admin")
    for change in (ChangeUser(is_active=False), ChangeUser(roles=["viewer"]), ChangeUser(fewer_roles=["admin"])):
        with pytest.raises(LastAdmin):
            await accounts_api.change_user(ops.services, await fresh(ops, "root", "change_user"), "root", change)


async def test_whoever_is_switched_off_is_out_at_once(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    signed = await api_sessions.sign_in(ops.services, OUTSIDE, SignIn(name="bob", password=PASSWORD))
    token, _ = await create_token(ops.services.stores, "bob")
    off = await accounts_api.change_user(ops.services, LOCAL, "bob", ChangeUser(is_active=False))
    assert (off.record.is_active, off.record.permissions) == (False, [])
    with pytest.raises(NotAuthenticated):
        await use_session(ops.services.stores, signed.secret)
    with pytest.raises(NotAuthenticated):
        await use_token(ops.services.stores, token)
    with pytest.raises(NotAuthenticated):
        await api_sessions.sign_in(ops.services, OUTSIDE, SignIn(name="bob", password=PASSWORD))


async def test_a_new_password_ends_all_sessions(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    signed = await api_sessions.sign_in(ops.services, OUTSIDE, SignIn(name="bob", password=PASSWORD))
    for unclear in (SetPassword(), SetPassword(password="another one, long", remove=True)):
        with pytest.raises(InvalidAccount):
            await accounts_api.set_user_password(ops.services, LOCAL, "bob", unclear)
    with pytest.raises(WeakPassword):
        await accounts_api.set_user_password(ops.services, LOCAL, "bob", SetPassword(password="short"))
    await use_session(ops.services.stores, signed.secret)
    changed = await accounts_api.set_user_password(
        ops.services, LOCAL, "bob", SetPassword(password="another one, long")
    )
    assert changed.has_password
    with pytest.raises(NotAuthenticated):
        await use_session(ops.services.stores, signed.secret)
    assert not (await accounts_api.set_user_password(ops.services, LOCAL, "bob", SetPassword(remove=True))).has_password


async def test_an_admin_ends_all_sessions_of_somebody(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await person(ops, "root", "admin")
    for _ in range(2):
        await api_sessions.sign_in(ops.services, OUTSIDE, SignIn(name="bob", password=PASSWORD))
    root = await by(ops, "root", "end_user_sessions")
    ended = await accounts_api.end_user_sessions(ops.services, root, "BOB")
    assert (ended.account, ended.ended) == ("bob", 2)


async def test_only_admins_change_accounts(ops: Operations) -> None:
    await person(ops, "bob", "reviewer", "operator")
    for operation in ("create_user", "change_user", "set_user_password", "end_user_sessions", "create_login_link"):
        with pytest.raises(NotPermitted):
            await by(ops, "bob", operation)


async def test_bad_names_are_refused_and_unknown_ones_not_found(ops: Operations) -> None:
    for wrong in ("a b", "a{b}", "a:b", "x" * 150, "a\nb"):
        with pytest.raises(InvalidAccount):
            await accounts_api.create_user(ops.services, LOCAL, NewUser(id=wrong))
        with pytest.raises(UnknownAccount):
            await accounts_api.get_user(ops.services, LOCAL, wrong)
        with pytest.raises(UnknownAccount):
            await accounts_api.change_user(ops.services, LOCAL, wrong, ChangeUser(is_active=False))
    with pytest.raises(InvalidAccount):
        await accounts_api.create_user(ops.services, LOCAL, NewUser(id="bot", is_human=False))
    assert (await accounts_api.list_users(ops.services, LOCAL, ListUsers())).items == []
