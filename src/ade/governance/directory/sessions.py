"""Login sessions: opened by password or link, over when unused for long, after a day, or when somebody says so."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, structs

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import NotAuthenticated
from ade.core.accounts.rates import RATES, Asking, Rate
from ade.core.accounts.sessions import IDLE_MS, LONGEST_MS, SESSION_CONFIRMED, SESSION_OPENED, LoginSession
from ade.core.accounts.users import User
from ade.core.documents import DocumentWrite
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


class Manner(Struct, frozen=True, kw_only=True):
    """How somebody signs in: from where, and for how long that is to count."""

    ip: str = ""
    user_agent: str = ""
    idle_ms: int = IDLE_MS
    lasts_ms: int = LONGEST_MS


class Opening(NamedTuple):
    """To be written together."""

    writes: Sequence[DocumentWrite]
    events: Sequence[Event]


async def sign_in(
    stores: Stores,
    name: str,
    password: str,
    *,
    ip: str = "",
    user_agent: str = "",
    idle_ms: int = IDLE_MS,
    lasts_ms: int = LONGEST_MS,
    rates: Mapping[Asking, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """The secret for the browser, and the session. Raises NotAuthenticated and TooManyRequests."""
    first = await check_password(stores, name, password, rates)
    manner = Manner(ip=ip, user_agent=user_agent, idle_ms=idle_ms, lasts_ms=lasts_ms)
    return await open_session(stores, first.record, manner)


async def open_session(stores: Stores, user: User, manner: Manner) -> tuple[str, LoginSession]:
    """For an account that has just shown its password, as it was then. Raises NotAuthenticated.

    The account is written unchanged with the session: a password that is changed meanwhile opens nothing any more.
    """
    now = stores.clock.now()
    secret, session = new_session(user.id, manner, now=now, reauthenticated_at=now)

    async def step() -> None:
        kept = await find(stores, user.id)
        if not kept.record.is_active or kept.record.password != user.password:
            raise NotAuthenticated("the password was changed, or the account deactivated, at this moment")
        opening = opened(session, kept)
        await stores.documents.write(opening.writes, opening.events)

    await decided(step)
    return secret, session


def new_session(account: str, manner: Manner, *, now: int, reauthenticated_at: int) -> tuple[str, LoginSession]:
    """The secret, which only the browser keeps, and the session that is found by it."""
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
    )
    return secret, session


def opened(session: LoginSession, kept: Kept[User]) -> Opening:
    """What to write when a session begins: it, and its account unchanged, so that nothing happens to that unseen."""
    unchanged = USERS.put(kept.record.id, kept.record, seen=kept.version)
    event = _event(SESSION_OPENED, session, session.created_at)
    return Opening([unchanged, SESSIONS.put(session.id, session, seen=0)], [event])


async def use_session(stores: Stores, secret: str) -> Caller:
    """Who this is, with the roles of this moment. Raises NotAuthenticated."""
    kept, user = await _live(stores, fingerprint(secret))
    session, now = kept.record, stores.clock.now()
    if session.is_behind(now):
        session = structs.replace(session, last_active_at=now)
        with suppress(StaleWrite):  # somebody else has noted it, or has just ended it
            put = SESSIONS.put(session.id, session, seen=kept.version)
            await stores.documents.write([structs.replace(put, is_quiet=True)])  # it changes nothing for anybody
    return Caller(user=user, session=session)


async def reauthenticate(
    stores: Stores, secret: str, password: str, rates: Mapping[Asking, Rate] = RATES
) -> LoginSession:
    """The password once more, for what needs a fresh one. Raises NotAuthenticated and TooManyRequests."""
    return await confirm(stores, fingerprint(secret), password, rates)


async def confirm(stores: Stores, session_id: str, password: str, rates: Mapping[Asking, Rate] = RATES) -> LoginSession:
    """The same for a session that was recognised before."""
    kept, _ = await _live(stores, session_id)
    await check_password(stores, kept.record.account, password, rates, asking=Asking.CONFIRM)

    async def step() -> LoginSession:
        seen, _ = await _live(stores, session_id)
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
    await end(stores, fingerprint(secret))


async def end(stores: Stores, session_id: str) -> None:
    """The same for a session that was recognised before."""
    kept = await SESSIONS.get(stores, session_id)
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
        return ending.sessions

    return await decided(step)


async def _live(stores: Stores, session_id: str) -> tuple[Kept[LoginSession], User]:
    kept = await SESSIONS.get(stores, session_id)
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
