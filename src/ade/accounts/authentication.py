"""Who asks: found from a token or a session, and remembered for a moment so that a request costs no look at the store.

How it is used: one `CallerCache` for each event loop, and for each request
`caller = await authenticate(stores, credentials, cache)`. None means that nothing was sent; what was sent and is not
good raises. Without authentication (`http.auth = "off"`) the caller is `await local_caller(stores)`, once at the start.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from ade.accounts.authorization import access_refused, foreign_access_event, is_own
from ade.accounts.model import Caller, NotAuthenticated, Permission, Token, TooManyRequests
from ade.accounts.sessions import local_operator, use_session
from ade.accounts.tokens import use_token
from ade.accounts.users import fingerprint, load_directory
from ade.errors import AdeError
from ade.server.addresses import counted_address
from ade.server.credentials import Credentials
from ade.stores.ports import RULES, Stores
from ade.stores.repository import SingleFlight

# Objects of others: who may only act on his own is told that they do not exist, and the log tells of it.


_TOLD = (10, 60_000)  # how often the log tells of one account


async def require_own(
    stores: Stores, caller: Caller, author: str | None, missing: AdeError, *, operation: str, about: str
) -> None:
    """Raise `missing`, the very error of an object that does not exist, unless this one is the caller's to act on.

    `about` is where it is, for the log.
    """
    if author == caller.user.id or is_own(caller, author, await load_directory(stores)):
        return
    await log_foreign_access(stores, caller.user.id, operation, about)
    raise missing


async def log_foreign_access(stores: Stores, account: str, operation: str, about: str) -> None:
    """Sparingly: somebody who tries out all ids is told of ten times a minute."""
    if await stores.documents.take_rate(f"foreign-told:{account}", *_TOLD):
        return
    await stores.documents.write([], [foreign_access_event(account, operation, about, now=stores.clock.now())])


# Who was refused by a rate, and until when: nothing makes that time come earlier, so the store is not asked again
# before. Whoever goes on asking all the same costs it nothing.


_MOST_RATE_MEMORY = 10_000


class RateLimitCache:
    """For one event loop."""

    def __init__(self, stores: Stores) -> None:
        self._clock = stores.clock
        self._until: dict[str, int] = {}  # steady time

    def wait_ms(self, key: str) -> int:
        """How long it still takes; 0: ask the store."""
        until = self._until.get(key)
        return 0 if until is None else max(until - self._clock.steady(), 0)

    def note(self, key: str, wait_ms: int) -> None:
        """What the store has said; 0: it was let through."""
        if not wait_ms:
            self._until.pop(key, None)
            return
        if key not in self._until and len(self._until) >= _MOST_RATE_MEMORY:
            for oldest in list(self._until)[: _MOST_RATE_MEMORY // 2]:
                del self._until[oldest]
        self._until[key] = self._clock.steady() + wait_ms


REFUSALS = (30, 60_000)  # so many wrong tokens and sessions may come from one address, and then they are only counted
TOLD_OF_ONE, TOLD_OF_ALL = (1, 60_000), (60, 60_000)  # how often the log tells of it
WRONG = "the token or the session is not valid; sign in again, or use another token"
_OLDEST_S = 1.0  # a hint may be lost, so what is older is looked at again
_MOST = 10_000
_LOCKS = 64
_NOT_LOCAL = frozenset({Permission.VOTE, Permission.BREAK_GLASS})
_FOR_EVER = 1 << 53


class _CachedCaller(Struct, frozen=True):
    """`caller` is None for a secret that nobody has."""

    caller: Caller | None
    read_at: float
    wakeups: int  # how many had been heard


class CallerCache:
    """Whose secrets these are, for one event loop: not older than a second, and newer than any hint.

    A role that was taken away in this process, or a token that was revoked, counts from the next request on; in another
    process as soon as its hint is heard, and after a second in any case.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._known: dict[str, _CachedCaller] = {}
        self.refused = RateLimitCache(stores)  # addresses that wrong secrets come from
        self._reading = [SingleFlight() for _ in range(_LOCKS)]  # of many requests with one secret, one reads
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

    def _fresh(self, place: str) -> _CachedCaller | None:
        known = self._known.get(place)
        if known is None or known.wakeups != self._hints() or time.monotonic() - known.read_at >= _OLDEST_S:
            return None
        caller, now = known.caller, self._stores.clock.now()
        if caller is not None and caller.token is not None and not caller.token.is_good(now):
            return None
        if caller is not None and caller.session is not None and not caller.session.is_live(now):
            return None
        return known

    async def _read(self, place: str, credentials: Credentials) -> _CachedCaller:
        if self._unfollow is None:  # from the first time on somebody listens
            self._unfollow = self._stores.wakeups.follow(RULES, self._known.clear)
        # Both are taken before the store answers: what changes meanwhile is looked at again.
        wakeups, at = self._hints(), time.monotonic()
        found = _CachedCaller(await _looked_up(self._stores, credentials), at, wakeups)
        self._known.pop(place, None)
        while len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]  # the one that was read first
        self._known[place] = found
        return found

    def _hints(self) -> int:
        """Asked for each time: it grows when a hint is heard, and not when this loop comes to it."""
        return self._stores.wakeups.generation(RULES)


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
        await _count_refusal(stores, credentials, RateLimitCache(stores) if cache is None else cache.refused)
        raise NotAuthenticated(WRONG)
    return found


async def _count_refusal(stores: Stores, credentials: Credentials, refused: RateLimitCache) -> None:
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
