"""One's own password, changed by oneself: with the old one, or fresh from a login link where there is none yet."""

from collections.abc import Mapping

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import NotAuthenticated
from ade.core.accounts.rates import RATES, Asking, Rate
from ade.core.accounts.sessions import LoginSession
from ade.core.approvals.refusals import ReauthenticationNeeded
from ade.governance.directory.login import check_password
from ade.governance.directory.passwords import USUAL, Cost
from ade.governance.directory.sessions import Manner, open_session, use_session
from ade.governance.directory.users import set_password
from ade.ports import Stores


async def change_own_password(
    stores: Stores,
    secret: str,
    new: str,
    *,
    old: str | None = None,
    cost: Cost = USUAL,
    rates: Mapping[Asking, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """All sessions of the account end, and this one goes on under a new secret: the answer.

    An account without a password takes a session that is not older than five minutes, as a login link gives.
    Raises NotAuthenticated, TooManyRequests, ReauthenticationNeeded and WeakPassword.
    """
    return await change_password_of(stores, await use_session(stores, secret), new, old=old, cost=cost, rates=rates)


async def change_password_of(
    stores: Stores,
    caller: Caller,
    new: str,
    *,
    old: str | None = None,
    cost: Cost = USUAL,
    rates: Mapping[Asking, Rate] = RATES,
) -> tuple[str, LoginSession]:
    """The same for somebody who was recognised before."""
    user, session = caller.user, caller.session
    if session is None:
        raise NotAuthenticated("this takes a login session; a token is not enough")
    if user.password is not None:
        await check_password(stores, user.id, old or "", rates, asking=Asking.CONFIRM)
    elif not session.is_fresh(stores.clock.now()):
        raise ReauthenticationNeeded(
            "the first password takes a login within the last five minutes: come through a new login link",
            advice="`ade users login-link NAME` makes one",
        )
    changed = await set_password(stores, user.id, new, actor=user.id, cost=cost)
    manner = Manner(ip=session.ip, user_agent=session.user_agent, idle_ms=session.idle_ms, lasts_ms=session.lasts_ms)
    return await open_session(stores, changed, manner)
