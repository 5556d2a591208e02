"""Login sessions: opened with a password, over when unused for long, after a day, or when somebody says so."""

from collections.abc import Mapping
from contextlib import suppress

from msgspec import structs

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import NotAuthenticated
from ade.core.accounts.rates import RATES, Asking, Rate
from ade.core.accounts.sessions import IDLE_MS, SESSION_CONFIRMED, SESSION_OPENED, LoginSession
from ade.core.accounts.users import User
from ade.core.errors import StaleWrite
from ade.core.events import Event
from ade.governance.directory.access import of_account, of_sessions
from ade.governance.directory.login import check_password
from ade.governance.directory.secrets import fingerprint, new_secret
from ade.governance.directory.shelves import SESSIONS, USERS
from ade.governance.directory.users import find
from ade.governance.kept import Kept, decided
from ade.ports import Stores

_LONGEST_IP, _LONGEST_AGENT = 100, 300


async def sign_in(
    stores: Stores,
    name: str,
    password: str,
    *,
    idle_ms: int = IDLE_MS,
    ip: str = "",
    user_agent: str = "",
    rates: Mapping[Asking, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """The secret for the browser, and the session. Raises NotAuthenticated and TooManyRequests.

    The account is written unchanged with the session: a password that is changed meanwhile opens nothing any more.
    """
    first = await check_password(stores, name, password, rates)
    secret, now = new_secret(), stores.clock.now()
    session = LoginSession(
        id=fingerprint(secret),
        account=first.record.id,
        created_at=now,
        last_active_at=now,
        reauthenticated_at=now,
        idle_ms=idle_ms,
        ip=ip[:_LONGEST_IP],
        user_agent=user_agent[:_LONGEST_AGENT],
    )

    async def step() -> None:
        kept = await find(stores, first.record.id)
        if not kept.record.is_active or kept.record.password != first.record.password:
            raise NotAuthenticated("the password was changed, or the account deactivated, at this moment")
        opened = SESSIONS.put(session.id, session, seen=0)
        unchanged = USERS.put(kept.record.id, kept.record, seen=kept.version)
        await stores.documents.write([unchanged, opened], [_event(SESSION_OPENED, session, now)])

    await decided(step)
    return secret, session


async def use_session(stores: Stores, secret: str) -> Caller:
    """Who this is, with the roles of this moment. Raises NotAuthenticated."""
    kept, user = await _live(stores, secret)
    session, now = kept.record, stores.clock.now()
    if session.is_behind(now):
        session = structs.replace(session, last_active_at=now)
        with suppress(StaleWrite):  # somebody else has noted it, or has just ended it
            await stores.documents.write([SESSIONS.put(session.id, session, seen=kept.version)])
    return Caller(user=user, session=session)


async def reauthenticate(
    stores: Stores, secret: str, password: str, rates: Mapping[Asking, Rate] = RATES
) -> LoginSession:
    """The password once more, for what needs a fresh one. Raises NotAuthenticated and TooManyRequests."""
    kept, _ = await _live(stores, secret)
    await check_password(stores, kept.record.account, password, rates)

    async def step() -> LoginSession:
        seen, _ = await _live(stores, secret)
        now = stores.clock.now()
        session = structs.replace(seen.record, last_active_at=now, reauthenticated_at=now)
        put = SESSIONS.put(session.id, session, seen=seen.version)
        await stores.documents.write([put], [_event(SESSION_CONFIRMED, session, now)])
        return session

    return await decided(step)


async def list_sessions(stores: Stores, account: str | None = None) -> list[LoginSession]:
    """Those that are live, of one account if asked; the oldest first."""
    sessions = [kept.record for kept in (await SESSIONS.all(stores)).values()]
    wanted = [session for session in sessions if account in (None, session.account)]
    return sorted(wanted, key=lambda session: session.created_at)


async def end_session(stores: Stores, secret: str) -> None:
    """Sign out. A session that is over already stays so."""
    kept = await SESSIONS.get(stores, fingerprint(secret))
    if kept is not None:
        account = kept.record.account
        ending = of_sessions([kept.record], account, "signed out", now=stores.clock.now(), actor=account)
        await stores.documents.write(ending.writes, ending.events)


async def end_all(stores: Stores, account: str, *, actor: str | None = None) -> int:
    """End every session of an account; answers how many. Raises UnknownAccount."""

    async def step() -> int:
        kept = await find(stores, account)
        ending = await of_account(stores, kept.record.id, "all sessions ended", actor=actor)
        if ending.writes:  # with the account, so that none is opened at the same time unseen
            unchanged = USERS.put(kept.record.id, kept.record, seen=kept.version)
            await stores.documents.write([unchanged, *ending.writes], ending.events)
        return len(ending.writes)

    return await decided(step)


async def _live(stores: Stores, secret: str) -> tuple[Kept[LoginSession], User]:
    kept = await SESSIONS.get(stores, fingerprint(secret))
    if kept is not None and kept.record.is_live(stores.clock.now()):
        user = await USERS.get(stores, kept.record.account)
        if user is not None and user.record.is_active:
            return kept, user.record
    raise NotAuthenticated("the session is over; sign in again")


def _event(kind: str, session: LoginSession, now: int) -> Event:
    payload: dict[str, object] = {"account": session.account, "session": session.short_id}
    if session.ip:
        payload["ip"] = session.ip
    return Event(type=kind, at=now, actor=session.account, payload=payload)
