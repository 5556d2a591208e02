"""Accounts of people and programs: made, changed and switched off by admins, never removed."""

from msgspec import UNSET, structs

from ade.core.accounts.errors import InvalidAccount
from ade.core.accounts.giving import check_giving, check_owner, is_giving
from ade.core.accounts.users import User, normal_roles
from ade.core.web.forms.accounts import ChangeUser, ListUsers, NewUser, SetPassword
from ade.governance.directory import login_links, sessions
from ade.governance.directory import users as use_cases
from ade.insight.accounts import CreatedLoginLink, EndedSessions, UserView, view_user
from ade.operations.acting import account_id, acting
from ade.operations.kit import Asked, Office, Page, Tagged
from ade.operations.paging import cut
from ade.operations.versions import meant


async def list_users(office: Office, asked: Asked, query: ListUsers) -> Page[UserView]:
    """By name, the deactivated ones too."""
    known = [user for user in await use_cases.list_users(office.stores) if _is_meant(user, query)]
    return cut("users", query, [view_user(user) for user in sorted(known, key=lambda user: user.id)])


def _is_meant(user: User, query: ListUsers) -> bool:
    return (
        query.is_active in (None, user.is_active)
        and query.is_human in (None, user.is_human)
        and (query.role is None or query.role.casefold() in user.roles)
    )


async def get_user(office: Office, asked: Asked, account: str) -> Tagged[UserView]:
    """Its version also changes when it signs in or gets a token: whoever is then told 412 reads it again."""
    kept = await use_cases.find(office.stores, account_id(account))
    return Tagged(view_user(kept.record), kept.version)


async def create_user(office: Office, asked: Asked, body: NewUser) -> Tagged[UserView]:
    """Its name is for good: it can be deactivated, and never belongs to anybody else.

    It takes no Idempotency-Key, as what is kept of a request would be a quick hash of the password; a second request is
    refused, as the name is taken.
    """
    user = User(
        id=body.id,
        display_name=body.display_name,
        roles=normal_roles(body.roles),
        person=body.person,
        is_human=body.is_human,
        owner=body.owner,
    )
    if asked.caller is not None:
        check_giving(asked.caller, user)
    made = await use_cases.add_user(office.stores, user, password=body.password, actor=acting(asked))
    return await get_user(office, asked, made.id)


async def change_user(office: Office, asked: Asked, account: str, body: ChangeUser) -> Tagged[UserView]:
    """It holds from the next thing the account does. Whoever is deactivated loses all sessions and tokens."""
    kept = await use_cases.find(office.stores, account_id(account))
    seen = meant(asked, kept.version)
    said = {name: value for name, value in structs.asdict(body).items() if value is not None}
    sets = {name: frozenset(said.pop(name)) for name in ("roles", "more_roles", "fewer_roles") if name in said}
    changes = structs.replace(use_cases.UserChanges(roles=UNSET), **said, **sets)
    after = use_cases.changed(kept.record, changes)
    if asked.caller is not None and is_giving(kept.record, after):
        check_owner(asked.caller, kept.record, after)
        check_giving(asked.caller, after)
    await use_cases.change_user(office.stores, kept.record.id, changes, actor=acting(asked), seen=seen)
    return await get_user(office, asked, kept.record.id)


async def set_user_password(office: Office, asked: Asked, account: str, body: SetPassword) -> UserView:
    """All its login sessions end; its tokens stay."""
    if (body.password is None) == (not body.remove):
        raise InvalidAccount("give a new password, or say with `remove` that there shall be none")
    user = (await use_cases.find(office.stores, account_id(account))).record
    if asked.caller is not None and body.password is not None:
        check_giving(asked.caller, user)
    changed = await use_cases.set_password(office.stores, user.id, body.password, actor=acting(asked))
    return view_user(changed)


async def end_user_sessions(office: Office, asked: Asked, account: str) -> EndedSessions:
    user = (await use_cases.find(office.stores, account_id(account))).record
    ended = await sessions.end_all(office.stores, user.id, actor=acting(asked))
    return EndedSessions(account=user.id, ended=ended)


async def create_login_link(office: Office, asked: Asked, account: str) -> CreatedLoginLink:
    """For a person who has no password or has lost it: good once, for ten minutes."""
    user = (await use_cases.find(office.stores, account_id(account))).record
    if asked.caller is not None:
        check_giving(asked.caller, user)
    made = await login_links.create_link(office.stores, user.id, actor=acting(asked))
    return CreatedLoginLink(account=made.link.account, secret=made.secret, expires_at=made.link.expires_at)
