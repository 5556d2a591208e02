"""One-time login links: made by the console or an admin, good for ten minutes, and used once.

Whoever comes through a link has a session like any other. Whether that counts as having just shown who he is depends on
the account: one without a password has no other way, so it counts, and he can give himself a password with it; one
with a password must give that first, because whoever may make links could otherwise approve in the name of others.
"""

from contextlib import suppress
from typing import NamedTuple

from msgspec import structs

from ade.core.accounts.errors import AccountExists, InvalidAccount, NotAuthenticated
from ade.core.accounts.login_links import LASTS_MS, LOGIN_LINK_CREATED, LOGIN_LINK_USED, LoginLink
from ade.core.accounts.permissions import Role
from ade.core.accounts.sessions import LoginSession
from ade.core.accounts.users import LOCAL, User
from ade.core.events import Event
from ade.governance.directory.secrets import fingerprint, new_secret
from ade.governance.directory.sessions import Manner, new_session, opened
from ade.governance.directory.shelves import LINKS, USERS
from ade.governance.directory.users import add_user, find, list_users
from ade.governance.kept import Kept, decided
from ade.ports import Stores

FIRST_ADMIN = "admin"


class MadeLink(NamedTuple):
    """`secret` is seen this once."""

    secret: str
    link: LoginLink


async def create_link(stores: Stores, account: str, *, actor: str | None = None, lasts_ms: int = LASTS_MS) -> MadeLink:
    """For an active person. Earlier links of the account stay good until they end.

    The account is written unchanged with it, so that none is made while the account is deactivated.
    Raises UnknownAccount and InvalidAccount.
    """
    secret = new_secret()

    async def step() -> LoginLink:
        kept, now = await find(stores, account), stores.clock.now()
        user = kept.record
        if not user.is_human:
            raise InvalidAccount(f"{user.id} is a program: it has tokens, and nobody signs in as it")
        if not user.is_active:
            raise InvalidAccount(f"{user.id} is deactivated, so no link would let anybody in; activate it first")
        link = LoginLink(account=user.id, created_at=now, expires_at=now + lasts_ms)
        payload: dict[str, object] = {"account": user.id, "expires_at": link.expires_at}
        event = Event(type=LOGIN_LINK_CREATED, at=now, actor=actor, payload=payload)
        writes = [USERS.put(user.id, user, seen=kept.version), LINKS.put(fingerprint(secret), link, seen=0)]
        await stores.documents.write(writes, [event])
        return link

    return MadeLink(secret, await decided(step))


async def use_link(stores: Stores, secret: str, manner: Manner) -> tuple[str, LoginSession]:
    """The secret for the browser, and the session. The link is gone with it: of two uses at once one is refused.

    Raises NotAuthenticated.
    """
    place = fingerprint(secret)

    async def step() -> tuple[str, LoginSession]:
        link, user, now = await LINKS.get(stores, place), None, stores.clock.now()
        if link is not None and link.record.is_good(now):
            user = await USERS.get(stores, link.record.account)
        if link is None or user is None or not user.record.is_active:
            raise NotAuthenticated("the link is unknown, was used already, or is too old; ask for another one")
        fresh_at = now if user.record.password is None else 0
        own, session = new_session(user.record.id, manner, now=now, reauthenticated_at=fresh_at)
        opening = opened(session, user)
        removal = structs.replace(LINKS.remove(place), seen=link.version)
        await stores.documents.write([removal, *opening.writes], [_used(session, now), *opening.events])
        return own, session

    return await decided(step)


def _used(session: LoginSession, now: int) -> Event:
    payload: dict[str, object] = {"account": session.account, "session": session.short_id}
    if session.ip:
        payload["ip"] = session.ip
    return Event(type=LOGIN_LINK_USED, at=now, actor=session.account, payload=payload)


async def first_admin(stores: Stores) -> MadeLink | None:
    """On the first start: the account `admin`, without a password, and a link for it. None once there is any account;
    then `ade users login-link NAME` makes a link."""
    if any(user.id != LOCAL for user in await list_users(stores)):
        return None
    with suppress(AccountExists):  # another server starts at the same time, and its console shows the link
        await add_user(stores, User(id=FIRST_ADMIN, roles=frozenset({Role.ADMIN})))
        return await create_link(stores, FIRST_ADMIN)
    return None


async def local_operator(stores: Stores) -> User:
    """The account of whoever asks where `http.auth` is off, made when first needed.

    Raises InvalidAccount if somebody else has this name, or if it was switched off.
    """
    known: Kept[User] | None = await USERS.get(stores, LOCAL)
    if known is None:
        with suppress(AccountExists):
            about = "whoever uses this machine"
            return await add_user(stores, User(id=LOCAL, display_name=about, roles=frozenset({Role.ADMIN})))
        known = await find(stores, LOCAL)
    if not known.record.is_admin:
        raise InvalidAccount(
            f"http.auth is off, but the account {LOCAL} is no active admin; make it one again, or set http.auth to"
            " required"
        )
    return known.record
