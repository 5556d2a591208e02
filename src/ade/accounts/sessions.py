"""Login sessions, one-time login links, and password checks.

A session ends when it is idle for too long, after a day, or when it is ended explicitly.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, structs

from ade.accounts.authorization import RATES, Rate, RateClass
from ade.accounts.model import (
    FRESH_MS,
    IDLE_MS,
    LASTS_MS,
    LOCAL,
    LOGIN_LINK_CREATED,
    LOGIN_LINK_USED,
    MAX_SESSION_MS,
    SESSION_CONFIRMED,
    SESSION_OPENED,
    AccountExists,
    Caller,
    InvalidAccount,
    LoginLink,
    LoginSession,
    NotAuthenticated,
    Role,
    User,
    WeakPassword,
    normal_id,
)
from ade.accounts.passwords import USUAL, HashCost, matches
from ade.accounts.users import (
    LINKS,
    SESSIONS,
    USERS,
    add_user,
    find,
    fingerprint,
    list_users,
    new_secret,
    of_account,
    of_sessions,
    set_password,
    take,
    with_login,
)
from ade.approvals.errors import ReauthenticationNeeded
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.stores.repository import StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite

# Password checks: neither the result nor its timing reveals which accounts exist.


_NO_NAME = "?"  # invalid names share one rate limit


async def check_password(
    stores: Stores,
    name: str,
    password: str,
    rates: Mapping[RateClass, Rate] = RATES,
    *,
    asking: RateClass = RateClass.LOGIN,
) -> StoredRecord[User]:
    """Return the account, as it was when its password was compared. `asking` is the rate limit for the attempt.

    Raises NotAuthenticated and TooManyRequests.
    """
    try:
        account = normal_id(name)
    except InvalidAccount:
        account = _NO_NAME
    await take(stores, account, asking, rates)
    stored = await USERS.get(stores, account)
    known = None if stored is None or not stored.record.is_active else stored.record.password
    if not await matches(password, known) or stored is None:
        raise NotAuthenticated("the name or the password is wrong, or the account is deactivated")
    return stored


_LONGEST_IP, _LONGEST_AGENT = 100, 300


class SignInConditions(Struct, frozen=True, kw_only=True):
    """Where a sign-in comes from, and how long its session lasts."""

    ip: str = ""
    user_agent: str = ""
    idle_ms: int = IDLE_MS
    lasts_ms: int = MAX_SESSION_MS


_USUAL = SignInConditions()


class SessionWrite(NamedTuple):
    """Writes and events to store together."""

    writes: Sequence[DocumentWrite]
    events: Sequence[Event]


async def sign_in(
    stores: Stores,
    name: str,
    password: str,
    manner: SignInConditions = _USUAL,
    rates: Mapping[RateClass, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """Return the secret for the browser, and the new session. Raises NotAuthenticated and TooManyRequests."""
    first = await check_password(stores, name, password, rates)
    return await open_session(stores, first.record, manner)


async def open_session(stores: Stores, user: User, manner: SignInConditions) -> tuple[str, LoginSession]:
    """Open a session for an account whose password was just checked. Raises NotAuthenticated.

    The account is written unchanged with the session, so that a concurrent password change is detected.
    """
    now = stores.clock.now()
    secret, session = new_session(user.id, manner, now=now, reauthenticated_at=now)

    async def step() -> None:
        stored = await find(stores, user.id)
        if not stored.record.is_active or stored.record.password != user.password:
            raise NotAuthenticated("the password was changed, or the account deactivated, during the sign-in")
        opening = opened(session, stored)
        await stores.documents.write(opening.writes, opening.events)

    await decided(step)
    return secret, session


def new_session(
    account: str, manner: SignInConditions, *, now: int, reauthenticated_at: int, link_by: str = ""
) -> tuple[str, LoginSession]:
    """Return a secret, which only the browser stores, and the session that is found by it."""
    secret = new_secret()
    session = LoginSession(
        id=fingerprint(secret),
        account=account,
        created_at=now,
        last_active_at=now,
        reauthenticated_at=reauthenticated_at,
        idle_ms=manner.idle_ms,
        lasts_ms=manner.lasts_ms,
        ip=manner.ip[:_LONGEST_IP],
        user_agent=manner.user_agent[:_LONGEST_AGENT],
        link_by=link_by,
    )
    return secret, session


def opened(session: LoginSession, stored: StoredRecord[User]) -> SessionWrite:
    """Return the writes of a new session. The account is written unchanged, so that concurrent changes are detected."""
    unchanged = USERS.put(stored.record.id, stored.record, seen=stored.version)
    event = _event(SESSION_OPENED, session, session.created_at)
    return SessionWrite([unchanged, SESSIONS.put(session.id, session, seen=0)], [event])


async def use_session(stores: Stores, secret: str) -> Caller:
    """Authenticate by the secret of a session, with the current roles. Raises NotAuthenticated."""
    stored, user = await _live(stores, fingerprint(secret))
    session, now = stored.record, stores.clock.now()
    if session.is_behind(now):
        session = structs.replace(session, last_active_at=now)
        with suppress(StaleWrite):  # another request has updated it, or has just ended it
            put = SESSIONS.put(session.id, session, seen=stored.version)
            await stores.documents.write([structs.replace(put, is_quiet=True)])  # nothing depends on it, so no wake-up
    return Caller(user=user, session=session)


async def confirm(
    stores: Stores, session_id: str, password: str, rates: Mapping[RateClass, Rate] = RATES
) -> LoginSession:
    """Check the password again for a session that is already identified. Raises NotAuthenticated and
    TooManyRequests."""
    stored, _ = await _live(stores, session_id)
    await check_password(stores, stored.record.account, password, rates, asking=RateClass.CONFIRM)

    async def step() -> LoginSession:
        seen, _ = await _live(stores, session_id)
        now = stores.clock.now()
        session = structs.replace(seen.record, last_active_at=now, reauthenticated_at=now)
        put = SESSIONS.put(session.id, session, seen=seen.version)
        await stores.documents.write([put], [_event(SESSION_CONFIRMED, session, now)])
        return session

    return await decided(step)


async def list_sessions(stores: Stores, account: str | None = None) -> list[LoginSession]:
    """List live sessions, optionally of one account; oldest first."""
    sessions = [stored.record for stored in (await SESSIONS.all(stores)).values()]
    wanted = [session for session in sessions if account in (None, session.account)]
    return sorted(wanted, key=lambda session: session.created_at)


async def end(stores: Stores, session_id: str) -> None:
    """Sign out of a session that is already identified."""
    stored = await SESSIONS.get(stores, session_id)
    if stored is not None:
        account = stored.record.account
        ending = of_sessions([stored.record], account, "signed out", now=stores.clock.now(), actor=account)
        await stores.documents.write(ending.writes, ending.events)


async def end_all(stores: Stores, account: str, *, actor: str | None = None) -> int:
    """End every session of an account, and return how many. Raises UnknownAccount."""

    async def step() -> int:
        stored = await find(stores, account)
        ending = await of_account(stores, stored.record.id, "all sessions ended", actor=actor)
        if ending.writes:  # with the account, so that a concurrent sign-in is detected
            unchanged = USERS.put(stored.record.id, stored.record, seen=stored.version)
            await stores.documents.write([unchanged, *ending.writes], ending.events)
        return ending.sessions

    return await decided(step)


async def _live(stores: Stores, session_id: str) -> tuple[StoredRecord[LoginSession], User]:
    stored = await SESSIONS.get(stores, session_id)
    if stored is not None and stored.record.is_live(stores.clock.now()):
        user = await USERS.get(stores, stored.record.account)
        if user is not None and user.record.is_active:
            return stored, user.record
    raise NotAuthenticated("the session is over; sign in again")


def _event(kind: str, session: LoginSession, now: int) -> Event:
    payload: dict[str, object] = {"account": session.account, "session": session.short_id}
    if session.ip:
        payload["ip"] = session.ip
    if session.link_by:
        payload["link_by"] = session.link_by
    return Event(type=kind, at=now, actor=session.account, payload=payload)


# One-time login links: created on the console or by an admin, valid once and for 10 minutes.
#
# Your own link, or that of the server for the first admin, counts as a password check if the account has no password:
# there is no other way. A link that another account created proves nothing, because that account can use it. Its
# session cannot vote before the password is entered; without a password it can set one, which must be changed before
# it votes.


FIRST_ADMIN = "admin"


class CreatedLink(NamedTuple):
    """A new link. `secret` is not available later."""

    secret: str
    link: LoginLink


async def create_link(
    stores: Stores, account: str, *, actor: str | None = None, login: str = "", lasts_ms: int = LASTS_MS
) -> CreatedLink:
    """Create a login link for an active person. Earlier links of the account stay valid until they expire.

    The account is written unchanged with the link, so that a concurrent deactivation is detected. Raises UnknownAccount
    and InvalidAccount.
    """
    secret = new_secret()

    async def step() -> LoginLink:
        stored, now = await find(stores, account), stores.clock.now()
        user = stored.record
        if not user.is_human:
            raise InvalidAccount(f"{user.id} is a service account: it has tokens, and no one can sign in as it")
        if not user.is_active:
            raise InvalidAccount(f"{user.id} is deactivated, so a link would not work; activate it first")
        link = LoginLink(account=user.id, created_at=now, expires_at=now + lasts_ms, created_by=actor or "")
        payload: dict[str, object] = {"account": user.id, "expires_at": link.expires_at}
        event = Event(type=LOGIN_LINK_CREATED, at=now, actor=actor, payload=with_login(payload, login))
        writes = [USERS.put(user.id, user, seen=stored.version), LINKS.put(fingerprint(secret), link, seen=0)]
        await stores.documents.write(writes, [event])
        return link

    return CreatedLink(secret, await decided(step))


async def use_link(stores: Stores, secret: str, manner: SignInConditions) -> tuple[str, LoginSession]:
    """Return the secret for the browser, and the session. The link is deleted, so of two concurrent uses one is
    rejected.

    Raises NotAuthenticated.
    """
    place = fingerprint(secret)

    async def step() -> tuple[str, LoginSession]:
        link, user, now = await LINKS.get(stores, place), None, stores.clock.now()
        if link is not None and link.record.is_good(now):
            user = await USERS.get(stores, link.record.account)
        if link is None or user is None or not user.record.is_active:
            raise NotAuthenticated("the link is unknown, already used, or expired; request another one")
        link_by = "" if link.record.created_by == user.record.id else link.record.created_by
        fresh_at = now if user.record.password is None and not link_by else 0
        own, session = new_session(user.record.id, manner, now=now, reauthenticated_at=fresh_at, link_by=link_by)
        opening = opened(session, user)
        removal = structs.replace(LINKS.remove(place), seen=link.version)
        await stores.documents.write(
            [removal, *opening.writes], [_event(LOGIN_LINK_USED, session, now), *opening.events]
        )
        return own, session

    return await decided(step)


async def first_admin(stores: Stores) -> CreatedLink | None:
    """On the first start, create the account `admin` without a password, and a link for it. None if any account exists;
    then `ade users login-link NAME` creates a link."""
    if any(user.id != LOCAL for user in await list_users(stores)):
        return None
    with suppress(AccountExists):  # another server starts concurrently, and its console shows the link
        await add_user(stores, User(id=FIRST_ADMIN, roles=frozenset({Role.ADMIN})))
        return await create_link(stores, FIRST_ADMIN)
    return None


async def local_operator(stores: Stores) -> User:
    """Return the account of all callers if `http.auth` is off; it is created on first use.

    Raises InvalidAccount if an account of this name exists that is not an active admin.
    """
    known: StoredRecord[User] | None = await USERS.get(stores, LOCAL)
    if known is None:
        with suppress(AccountExists):
            about = "the user of this machine"
            return await add_user(stores, User(id=LOCAL, display_name=about, roles=frozenset({Role.ADMIN})))
        known = await find(stores, LOCAL)
    if not known.record.is_admin:
        raise InvalidAccount(
            f"http.auth is off, but the account {LOCAL} is not an active admin; make it one again, or set http.auth to"
            " required"
        )
    return known.record


# Changing one's own password: with the old one, or right after a login link if there is none yet.


async def change_password_of(
    stores: Stores,
    caller: Caller,
    new: str,
    *,
    old: str | None = None,
    cost: HashCost = USUAL,
    rates: Mapping[RateClass, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """Change the password of the caller. All sessions of the account end; return the secret and session that replace
    this one.

    An account without a password needs a session that is at most 5 minutes old, as from a login link. If another
    account made that link, the password must be changed once more before the account votes. Raises NotAuthenticated,
    TooManyRequests, ReauthenticationNeeded, and WeakPassword.
    """
    user, session = caller.user, caller.session
    if session is None:
        raise NotAuthenticated("this requires a login session; a token is not enough")
    link_by, now = "", stores.clock.now()
    if user.password is not None:
        await check_password(stores, user.id, old or "", rates, asking=RateClass.CONFIRM)
        if new == old:
            raise WeakPassword("the new password is the old one; choose another")
    elif session.is_fresh(now) or (session.link_by and now - session.created_at <= FRESH_MS):
        link_by = session.link_by
    else:
        raise ReauthenticationNeeded(
            "setting the first password requires a sign-in within the last five minutes: use a new login link",
            advice="`ade users login-link NAME` creates one",
        )
    changed = await set_password(stores, user.id, new, actor=user.id, link_by=link_by, cost=cost)
    manner = SignInConditions(
        ip=session.ip, user_agent=session.user_agent, idle_ms=session.idle_ms, lasts_ms=session.lasts_ms
    )
    return await open_session(stores, changed, manner)
