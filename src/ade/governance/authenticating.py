"""Who asks: found from a token or a session, and remembered for a moment so that a request costs no look at the store.

How it is used: one `CallerCache` for each event loop, and for each request
`caller = await authenticate(stores, credentials, cache)`. None means that nothing was sent; what was sent and is not
good raises. Without authentication (`http.auth = "off"`) the caller is `await local_caller(stores)`, once at the start.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from ade.core.accounts.callers import Caller
from ade.core.accounts.errors import NotAuthenticated, TooManyRequests
from ade.core.accounts.permissions import Permission
from ade.core.accounts.refused import access_refused
from ade.core.accounts.tokens import Token
from ade.core.web.addresses import counted_address
from ade.core.web.credentials import Credentials
from ade.governance.directory.login_links import local_operator
from ade.governance.directory.secrets import fingerprint
from ade.governance.directory.sessions import use_session
from ade.governance.directory.tokens import use_token
from ade.governance.rate_memory import RateMemory
from ade.ports import RULES, Stores
from ade.queue.turn import Turn

REFUSALS = (30, 60_000)  # so many wrong tokens and sessions may come from one address, and then they are only counted
TOLD_OF_ONE, TOLD_OF_ALL = (1, 60_000), (60, 60_000)  # how often the log tells of it
WRONG = "the token or the session is not valid; sign in again, or use another token"
_OLDEST_S = 1.0  # a hint may be lost, so what is older is looked at again
_MOST = 10_000
_LOCKS = 64
_NOT_LOCAL = frozenset({Permission.VOTE, Permission.BREAK_GLASS})
_FOR_EVER = 1 << 53


class _Known(Struct, frozen=True):
    """`caller` is None for a secret that nobody has."""

    caller: Caller | None
    read_at: float
    hints: int  # how many had been heard


class CallerCache:
    """Whose secrets these are, for one event loop: not older than a second, and newer than any hint.

    A role that was taken away in this process, or a token that was revoked, counts from the next request on; in another
    process as soon as its hint is heard, and after a second in any case.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._known: dict[str, _Known] = {}
        self.refused = RateMemory(stores)  # addresses that wrong secrets come from
        self._reading = [Turn() for _ in range(_LOCKS)]  # of many requests with one secret, one reads
        self._unfollow: Callable[[], None] | None = None

    async def find(self, credentials: Credentials) -> Caller | None:
        """None for a secret that nobody has. Raises StoreUnavailable rather than answer from old memory."""
        token, session = credentials.token, credentials.session
        place = f"t{fingerprint(token)}" if token is not None else f"s{fingerprint(session or '')}"
        known = self._fresh(place)
        if known is None:
            async with self._reading[hash(place) % _LOCKS]:
                known = self._fresh(place) or await self._read(place, credentials)
        return known.caller

    def close(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _fresh(self, place: str) -> _Known | None:
        known = self._known.get(place)
        if known is None or known.hints != self._hints() or time.monotonic() - known.read_at >= _OLDEST_S:
            return None
        caller, now = known.caller, self._stores.clock.now()
        if caller is not None and caller.token is not None and not caller.token.is_good(now):
            return None
        if caller is not None and caller.session is not None and not caller.session.is_live(now):
            return None
        return known

    async def _read(self, place: str, credentials: Credentials) -> _Known:
        if self._unfollow is None:  # from the first time on somebody listens
            self._unfollow = self._stores.hints.follow(RULES, self._known.clear)
        # Both are taken before the store answers: what changes meanwhile is looked at again.
        hints, at = self._hints(), time.monotonic()
        found = _Known(await _looked_up(self._stores, credentials), at, hints)
        self._known.pop(place, None)
        while len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]  # the one that was read first
        self._known[place] = found
        return found

    def _hints(self) -> int:
        """Asked for each time: it grows when a hint is heard, and not when this loop comes to it."""
        return self._stores.hints.generation(RULES)


async def _looked_up(stores: Stores, credentials: Credentials) -> Caller | None:
    try:
        if credentials.token is not None:
            return await use_token(stores, credentials.token)
        return await use_session(stores, credentials.session or "")
    except NotAuthenticated:
        return None


async def authenticate(stores: Stores, credentials: Credentials, cache: CallerCache | None = None) -> Caller | None:
    """None if nothing was sent. Raises NotAuthenticated, in the same words whatever is wrong, and TooManyRequests.

    A good secret is let in however many wrong ones came from the same address: they are too long to be guessed, and
    nobody shall lock out whoever shares a proxy with him. The limit keeps the log and the store from being flooded.
    """
    if credentials.token is None and credentials.session is None:
        return None
    if credentials.token is not None and credentials.session is not None:
        raise NotAuthenticated("send a token or a session, not both")
    found = await (_looked_up(stores, credentials) if cache is None else cache.find(credentials))
    if found is None:
        await _count_refusal(stores, credentials, RateMemory(stores) if cache is None else cache.refused)
        raise NotAuthenticated(WRONG)
    return found


async def _count_refusal(stores: Stores, credentials: Credentials, refused: RateMemory) -> None:
    """Raises TooManyRequests. The log tells of one a minute for each address, and of sixty for all of them."""
    address = counted_address(credentials.address)
    wait_ms = refused.wait_ms(address)
    if not wait_ms:
        wait_ms = await stores.documents.take_rate(f"refused:{address}", *REFUSALS)
        refused.note(address, wait_ms)
    if wait_ms:
        raise TooManyRequests("too many wrong tokens and sessions from this address", retry_after=wait_ms / 1000)
    if await stores.documents.take_rate(f"refusal-told:{address}", *TOLD_OF_ONE):
        return
    if await stores.documents.take_rate("refusals-told", *TOLD_OF_ALL):
        return
    by = "session" if credentials.token is None else "token"
    await stores.documents.write([], [access_refused(credentials.address, by, now=stores.clock.now())])


async def local_caller(stores: Stores) -> Caller:
    """Whoever asks where nobody is asked who he is: all that an admin may, but no vote and no broken glass.

    It is as if through a token without these scopes, so that nothing which takes a login session is open to it.
    """
    user = await local_operator(stores)
    now = stores.clock.now()
    scopes = user.permissions - _NOT_LOCAL
    token = Token(id="", account=user.id, scopes=scopes, created_at=now, expires_at=_FOR_EVER, label="http.auth is off")
    return Caller(user=user, token=token)
