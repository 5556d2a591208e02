"""HTTP operations on login sessions and on the caller's own account.

Responses never contain the secret of a session: the HTTP layer moves it from `SignedIn` to the cookie.
"""

from collections.abc import Mapping

from ade.accounts import sessions
from ade.accounts.api import ChangeOwnPassword, ConfirmSession, ListSessions, SignIn, UseLoginLink
from ade.accounts.authorization import RATES, Rate, RateClass
from ade.accounts.model import (
    Caller,
    LoginSession,
    NotAuthenticated,
    Permission,
    UnknownAccount,
    UnknownSession,
    User,
)
from ade.accounts.sessions import SignInConditions, check_password
from ade.accounts.users import get_user, take
from ade.accounts.views import CurrentAccount, EndedSessions, SessionView, SignedIn, view_me, view_session
from ade.common.gcra import read_rate
from ade.server.addresses import counted_address
from ade.server.context import RequestContext, Services, account_id, acting, check_own, cut
from ade.server.operation import AuthLevel, ReadRule, RouteAccess, TrafficClass, operation
from ade.server.pagination import Page

# Sign-in settings: how often a password or link can be tried, how long a session lasts, and when a
# caller last gave the password.


def login_rates(services: Services) -> Mapping[RateClass, Rate]:
    """Return the rate limits of sign-in. Attempts are always limited: without a setting, the default applies."""
    rate = read_rate(services.settings.http.login_rate) or RATES[RateClass.LOGIN]
    return {**RATES, RateClass.LOGIN: rate, RateClass.CONFIRM: rate}


async def count_address(services: Services, request: RequestContext) -> None:
    """Count one attempt from the address of the request, whatever the account. Raises TooManyRequests."""
    if request.address:
        place = f"address {counted_address(request.address)}"  # no account has a space in its name
        await take(services.stores, place, RateClass.LOGIN, login_rates(services))


def manner(services: Services, request: RequestContext) -> SignInConditions:
    """Return the conditions of a sign-in, from the request and the settings."""
    http = services.settings.http
    return SignInConditions(
        ip=request.address,
        user_agent=request.user_agent,
        idle_ms=round(http.session_idle_s * 1000),
        lasts_ms=round(http.session_lasts_s * 1000),
    )


async def confirmed_at(services: Services, request: RequestContext, password: str | None) -> int | None:
    """Return when the caller last gave the password: now if it is passed here, else in the session. None: not yet.

    A token identifies its account, but does not prove that the person is present. Raises NotAuthenticated and
    TooManyRequests.
    """
    if password is None:
        session = None if request.caller is None else request.caller.session
        return None if session is None else session.reauthenticated_at or None
    asking = RateClass.LOGIN if request.caller is None else RateClass.CONFIRM
    await check_password(services.stores, acting(request), password, login_rates(services), asking=asking)
    return services.stores.clock.now()


@operation("GET /me", reads=ReadRule.OWN, door=AuthLevel.SELF)
async def get_me(services: Services, request: RequestContext) -> CurrentAccount:
    """Who one is, and what one may do. With the current roles."""
    if request.caller is not None:
        return view_me(request.caller)
    return view_me(Caller(user=await get_user(services.stores, acting(request))))


@operation("GET /sessions", reads=ReadRule.OWN, permission=Permission.READ, others=Permission.ADMINISTER)
async def list_sessions(services: Services, request: RequestContext, query: ListSessions) -> Page[SessionView]:
    """Live login sessions. The oldest first. Admins see all sessions, others their own."""
    account = None if query.account is None else account_id(query.account)
    if request.access is RouteAccess.OWN:
        if account is not None:
            unknown = UnknownAccount(f"no account {account!r} exists", advice=UnknownAccount.usual_advice)
            await check_own(services, request, account, unknown)
        account = account or acting(request)
    current = None if request.caller is None else request.caller.session
    now = services.stores.clock.now()
    live = [each for each in await sessions.list_sessions(services.stores, account) if each.is_live(now)]
    return cut("sessions", query, [view_session(each, current) for each in live])


@operation("POST /sessions", door=AuthLevel.PUBLIC, traffic=TrafficClass.LOGIN, takes_key=False)
async def sign_in(services: Services, request: RequestContext, body: SignIn) -> SignedIn:
    """Sign in with name and password. Attempts are counted by account and by address. The response does not tell
    whether the name or the password was wrong."""
    await count_address(services, request)
    how, rates = manner(services, request), login_rates(services)
    secret, session = await sessions.sign_in(services.stores, body.name, body.password, how, rates)
    return await _signed_in(services, secret, session)


@operation("POST /sessions/login-link", door=AuthLevel.PUBLIC, traffic=TrafficClass.LOGIN, takes_key=False)
async def use_login_link(services: Services, request: RequestContext, body: UseLoginLink) -> SignedIn:
    """Sign in with the one-time link. The link is used up. An account without a password can set one with
    `change_own_password`."""
    await count_address(services, request)
    return await _signed_in(services, *await sessions.use_link(services.stores, body.secret, manner(services, request)))


async def _signed_in(services: Services, secret: str, session: LoginSession) -> SignedIn:
    user: User = await get_user(services.stores, session.account)
    return SignedIn(
        account=user.id,
        display_name=user.display_name,
        roles=sorted(user.roles),
        permissions=sorted(user.permissions),
        has_password=user.password is not None,
        session=view_session(session, session),
        must_change_password=user.must_change_password,
        secret=secret,
    )


@operation("POST /sessions/current/confirm", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN, takes_key=False)
async def confirm_session(services: Services, request: RequestContext, body: ConfirmSession) -> SessionView:
    """Give the password once more. High risks can be approved for five minutes."""
    session = _session(request)
    confirmed = await sessions.confirm(services.stores, session.id, body.password, login_rates(services))
    return view_session(confirmed, confirmed)


@operation("DELETE /sessions/current", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN)
async def sign_out(services: Services, request: RequestContext) -> None:
    """End this session."""
    await sessions.end(services.stores, _session(request).id)


@operation("DELETE /sessions/{session_id}", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN)
async def end_session(services: Services, request: RequestContext, session_id: str) -> None:
    """End another session of one's own. For example the session of a machine that was left signed in."""
    account = _session(request).account
    found = [each for each in await sessions.list_sessions(services.stores) if each.short_id == session_id]
    unknown = UnknownSession(f"no login session {session_id[:60]!r} of yours is active")
    if not found:
        raise unknown
    one = next((each for each in found if each.account == account), found[0])
    await check_own(services, request, one.account, unknown)
    await sessions.end(services.stores, one.id)


@operation("DELETE /sessions", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN)
async def sign_out_everywhere(services: Services, request: RequestContext) -> EndedSessions:
    """End all sessions of one's own."""
    account = _session(request).account
    return EndedSessions(account=account, ended=await sessions.end_all(services.stores, account, actor=account))


@operation("PUT /me/password", door=AuthLevel.SESSION, traffic=TrafficClass.LOGIN)
async def change_own_password(services: Services, request: RequestContext, body: ChangeOwnPassword) -> SignedIn:
    """Change one's own password. All sessions end, and this one continues under a new secret."""
    _session(request)
    assert request.caller is not None
    secret, session = await sessions.change_password_of(
        services.stores, request.caller, body.new, old=body.old, rates=login_rates(services)
    )
    return await _signed_in(services, secret, session)


def _session(request: RequestContext) -> LoginSession:
    session = None if request.caller is None else request.caller.session
    if session is None:
        raise NotAuthenticated("this requires a login session, and there is none")
    return session
