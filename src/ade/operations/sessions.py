"""Login sessions: begun with a password or a link, confirmed, and ended. And who one is.

The secret of a session never stands in an answer: the HTTP layer takes it out of `SignedIn` for the cookie.
"""

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import NotAuthenticated, UnknownAccount, UnknownSession
from ade.core.accounts.sessions import LoginSession
from ade.core.accounts.users import User
from ade.core.web.access import Access
from ade.core.web.forms.accounts import ChangeOwnPassword, ConfirmSession, ListSessions, SignIn, UseLoginLink
from ade.governance.directory import login_links, own_password
from ade.governance.directory import sessions as use_cases
from ade.governance.directory.users import get_user
from ade.insight.accounts import EndedSessions, Me, SessionView, SignedIn, view_me, view_session
from ade.operations.acting import account_id, acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.owning import check_own
from ade.operations.paging import cut
from ade.operations.signing_in import count_address, login_rates, manner


async def get_me(office: Office, asked: Asked) -> Me:
    """With the roles of this moment."""
    if asked.caller is not None:
        return view_me(asked.caller)
    return view_me(Caller(user=await get_user(office.stores, acting(asked))))


async def list_sessions(office: Office, asked: Asked, query: ListSessions) -> Page[SessionView]:
    """The oldest first. Admins see those of all, others their own."""
    account = None if query.account is None else account_id(query.account)
    if asked.access is Access.OWN:
        if account is not None:
            unknown = UnknownAccount(f"no account {account!r} exists", advice=UnknownAccount.usual_advice)
            await check_own(office, asked, account, unknown)
        account = account or acting(asked)
    current = None if asked.caller is None else asked.caller.session
    now = office.stores.clock.now()
    live = [each for each in await use_cases.list_sessions(office.stores, account) if each.is_live(now)]
    return cut("sessions", query, [view_session(each, current) for each in live])


async def sign_in(office: Office, asked: Asked, body: SignIn) -> SignedIn:
    """Tries are counted by the account and by the address. Nobody learns which of the two was wrong."""
    await count_address(office, asked)
    how = manner(office, asked)
    secret, session = await use_cases.sign_in(
        office.stores,
        body.name,
        body.password,
        ip=how.ip,
        user_agent=how.user_agent,
        idle_ms=how.idle_ms,
        lasts_ms=how.lasts_ms,
        rates=login_rates(office),
    )
    return await _signed_in(office, secret, session)


async def use_login_link(office: Office, asked: Asked, body: UseLoginLink) -> SignedIn:
    """It is gone with it. Who has no password yet gives himself one with `change_own_password`."""
    await count_address(office, asked)
    return await _signed_in(office, *await login_links.use_link(office.stores, body.secret, manner(office, asked)))


async def _signed_in(office: Office, secret: str, session: LoginSession) -> SignedIn:
    user: User = await get_user(office.stores, session.account)
    return SignedIn(
        account=user.id,
        display_name=user.display_name,
        roles=sorted(user.roles),
        permissions=sorted(user.permissions),
        has_password=user.password is not None,
        session=view_session(session, session),
        secret=secret,
    )


async def confirm_session(office: Office, asked: Asked, body: ConfirmSession) -> SessionView:
    """The password once more: for five minutes high risks can be approved."""
    session = _session(asked)
    confirmed = await use_cases.confirm(office.stores, session.id, body.password, login_rates(office))
    return view_session(confirmed, confirmed)


async def sign_out(office: Office, asked: Asked) -> None:
    await use_cases.end(office.stores, _session(asked).id)


async def sign_out_everywhere(office: Office, asked: Asked) -> EndedSessions:
    account = _session(asked).account
    return EndedSessions(account=account, ended=await use_cases.end_all(office.stores, account, actor=account))


async def end_session(office: Office, asked: Asked, session_id: str) -> None:
    """One of one's own, such as on a machine that one has left."""
    account = _session(asked).account
    found = [each for each in await use_cases.list_sessions(office.stores) if each.short_id == session_id]
    unknown = UnknownSession(f"no login session {session_id[:60]!r} of yours is live")
    if not found:
        raise unknown
    one = next((each for each in found if each.account == account), found[0])
    await check_own(office, asked, one.account, unknown)
    await use_cases.end(office.stores, one.id)


async def change_own_password(office: Office, asked: Asked, body: ChangeOwnPassword) -> SignedIn:
    """All sessions end, and this one goes on under a new secret."""
    _session(asked)
    assert asked.caller is not None
    secret, session = await own_password.change_password_of(
        office.stores, asked.caller, body.new, old=body.old, rates=login_rates(office)
    )
    return await _signed_in(office, secret, session)


def _session(asked: Asked) -> LoginSession:
    session = None if asked.caller is None else asked.caller.session
    if session is None:
        raise NotAuthenticated("this is about a login session, and there is none")
    return session
