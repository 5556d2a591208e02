"""Login sessions: begun with a password or a link, confirmed, and ended. And who one is.

The secret of a session never stands in an answer: the HTTP layer takes it out of `SignedIn` for the cookie.
"""

from collections.abc import Mapping

from ade.accounts import sessions
from ade.accounts.api import ChangeOwnPassword, ConfirmSession, ListSessions, SignIn, UseLoginLink
from ade.accounts.model import (
    RATES,
    Caller,
    LoginSession,
    NotAuthenticated,
    Rate,
    RateClass,
    UnknownAccount,
    UnknownSession,
    User,
)
from ade.accounts.sessions import SignInConditions
from ade.accounts.users import get_user, take
from ade.accounts.views import CurrentAccount, EndedSessions, SessionView, SignedIn, view_me, view_session
from ade.common.rate_limit import read_rate
from ade.server.addresses import counted_address
from ade.server.operations import RequestContext, Services, account_id, acting, check_own, cut
from ade.server.pagination import Page, RawContent
from ade.server.routing import RouteAccess

# The page that a one-time link opens: it gives the secret behind the # to the server, and says who one is then.
#
# The secret is in no request line and no log, and a program that merely fetches the link, as chats and mail readers
# do, uses nothing up.


_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - ADE</title>
<script src="/login.js" type="module"></script>
</head>
<body>
<main>
<h1>ADE</h1>
<p id="said" role="status">Signing in&hellip;</p>
<p id="on" hidden>You may close this page, or look at <a href="/api/v1/me">who you are</a>.</p>
<noscript><p>This page needs JavaScript to keep the secret of the link out of every log.</p></noscript>
</main>
</body>
</html>
"""
_SCRIPT = """const said = document.getElementById("said");
const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);

async function signIn() {
  if (!secret) {
    said.textContent = "Open the whole link, with what stands behind the #.";
    return;
  }
  const answer = await fetch("/api/v1/sessions/login-link", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ secret }),
  });
  const told = await answer.json();
  said.textContent = answer.ok ? `You are signed in as ${told.account}.` : told.detail;
  document.getElementById("on").hidden = !answer.ok;
}

signIn().catch(() => {
  said.textContent = "The server does not answer. Reload the page to try again.";
});
"""


async def get_login_page(office: Services, asked: RequestContext) -> RawContent:
    return RawContent(media_type="text/html; charset=utf-8", body=_PAGE.encode(), policy=_POLICY)


async def get_login_script(office: Services, asked: RequestContext) -> RawContent:
    return RawContent(media_type="text/javascript; charset=utf-8", body=_SCRIPT.encode())


# How often somebody may try a password or a link, and how long a session is good for: as the settings say.


def login_rates(office: Services) -> Mapping[RateClass, Rate]:
    """Passwords are never tried without a limit: where the settings have none, the usual one holds."""
    rate = read_rate(office.settings.http.login_rate) or RATES[RateClass.LOGIN]
    return {**RATES, RateClass.LOGIN: rate, RateClass.CONFIRM: rate}


async def count_address(office: Services, asked: RequestContext) -> None:
    """One try from where the request comes from, whatever name it is for. Raises TooManyRequests."""
    if asked.address:
        place = f"address {counted_address(asked.address)}"  # no account has a space in its name
        await take(office.stores, place, RateClass.LOGIN, login_rates(office))


def manner(office: Services, asked: RequestContext) -> SignInConditions:
    http = office.settings.http
    return SignInConditions(
        ip=asked.address,
        user_agent=asked.user_agent,
        idle_ms=round(http.session_idle_s * 1000),
        lasts_ms=round(http.session_lasts_s * 1000),
    )


async def get_me(office: Services, asked: RequestContext) -> CurrentAccount:
    """With the roles of this moment."""
    if asked.caller is not None:
        return view_me(asked.caller)
    return view_me(Caller(user=await get_user(office.stores, acting(asked))))


async def list_sessions(office: Services, asked: RequestContext, query: ListSessions) -> Page[SessionView]:
    """The oldest first. Admins see those of all, others their own."""
    account = None if query.account is None else account_id(query.account)
    if asked.access is RouteAccess.OWN:
        if account is not None:
            unknown = UnknownAccount(f"no account {account!r} exists", advice=UnknownAccount.usual_advice)
            await check_own(office, asked, account, unknown)
        account = account or acting(asked)
    current = None if asked.caller is None else asked.caller.session
    now = office.stores.clock.now()
    live = [each for each in await sessions.list_sessions(office.stores, account) if each.is_live(now)]
    return cut("sessions", query, [view_session(each, current) for each in live])


async def sign_in(office: Services, asked: RequestContext, body: SignIn) -> SignedIn:
    """Tries are counted by the account and by the address. Nobody learns which of the two was wrong."""
    await count_address(office, asked)
    how = manner(office, asked)
    secret, session = await sessions.sign_in(
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


async def use_login_link(office: Services, asked: RequestContext, body: UseLoginLink) -> SignedIn:
    """It is gone with it. Who has no password yet gives himself one with `change_own_password`."""
    await count_address(office, asked)
    return await _signed_in(office, *await sessions.use_link(office.stores, body.secret, manner(office, asked)))


async def _signed_in(office: Services, secret: str, session: LoginSession) -> SignedIn:
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


async def confirm_session(office: Services, asked: RequestContext, body: ConfirmSession) -> SessionView:
    """The password once more: for five minutes high risks can be approved."""
    session = _session(asked)
    confirmed = await sessions.confirm(office.stores, session.id, body.password, login_rates(office))
    return view_session(confirmed, confirmed)


async def sign_out(office: Services, asked: RequestContext) -> None:
    await sessions.end(office.stores, _session(asked).id)


async def sign_out_everywhere(office: Services, asked: RequestContext) -> EndedSessions:
    account = _session(asked).account
    return EndedSessions(account=account, ended=await sessions.end_all(office.stores, account, actor=account))


async def end_session(office: Services, asked: RequestContext, session_id: str) -> None:
    """One of one's own, such as on a machine that one has left."""
    account = _session(asked).account
    found = [each for each in await sessions.list_sessions(office.stores) if each.short_id == session_id]
    unknown = UnknownSession(f"no login session {session_id[:60]!r} of yours is live")
    if not found:
        raise unknown
    one = next((each for each in found if each.account == account), found[0])
    await check_own(office, asked, one.account, unknown)
    await sessions.end(office.stores, one.id)


async def change_own_password(office: Services, asked: RequestContext, body: ChangeOwnPassword) -> SignedIn:
    """All sessions end, and this one goes on under a new secret."""
    _session(asked)
    assert asked.caller is not None
    secret, session = await sessions.change_password_of(
        office.stores, asked.caller, body.new, old=body.old, rates=login_rates(office)
    )
    return await _signed_in(office, secret, session)


def _session(asked: RequestContext) -> LoginSession:
    session = None if asked.caller is None else asked.caller.session
    if session is None:
        raise NotAuthenticated("this is about a login session, and there is none")
    return session
