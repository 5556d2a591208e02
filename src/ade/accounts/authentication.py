"""Authentication of requests by token or session, cached briefly so that most requests do not read the store.

Usage: one `CallerCache` for each event loop, and for each request `caller = await authenticate(stores, credentials,
cache)`. None means that no credentials were sent; invalid credentials raise. Without authentication (`http.auth =
"off"`) the caller is `await local_caller(stores)`, once at startup.
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
from ade.stores.wakeups import SingleFlight

# Objects of others: a caller limited to its own objects gets "not found", and the attempt is logged.


_TOLD = (10, 60_000)  # events per account, and period in milliseconds


async def require_own(
    stores: Stores, caller: Caller, author: str | None, missing: AdeError, *, operation: str, about: str
) -> None:
    """Raise `missing`, the same error as for an object that does not exist, unless this one belongs to the caller.

    `about` is the location of the object, for the log.
    """
    if author == caller.user.id or is_own(caller, author, await load_directory(stores)):
        return
    await log_foreign_access(stores, caller.user.id, operation, about)
    raise missing


async def log_foreign_access(stores: Stores, account: str, operation: str, about: str) -> None:
    """Log an attempt as an event, at most 10 times per minute and account: a caller might try out all IDs."""
    if await stores.documents.take_rate(f"foreign-told:{account}", *_TOLD):
        return
    await stores.documents.write([], [foreign_access_event(account, operation, about, now=stores.clock.now())])


# Exceeded rate limits, and until when. That time never becomes earlier, so the store is not asked before it, and
# further requests cost it nothing.


_MOST_RATE_MEMORY = 10_000


class RateLimitCache:
    """A cache of exceeded rate limits, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        self._clock = stores.clock
        self._until: dict[str, int] = {}  # monotonic time

    def wait_ms(self, key: str) -> int:
        """Return the remaining wait; 0: ask the store."""
        until = self._until.get(key)
        return 0 if until is None else max(until - self._clock.steady(), 0)

    def note(self, key: str, wait_ms: int) -> None:
        """Remember the wait that the store returned; 0: the request was allowed."""
        if not wait_ms:
            self._until.pop(key, None)
            return
        if key not in self._until and len(self._until) >= _MOST_RATE_MEMORY:
            for oldest in list(self._until)[: _MOST_RATE_MEMORY // 2]:
                del self._until[oldest]
        self._until[key] = self._clock.steady() + wait_ms


REFUSALS = (30, 60_000)  # invalid credentials per address; more raise TooManyRequests and are not logged
TOLD_OF_ONE, TOLD_OF_ALL = (1, 60_000), (60, 60_000)  # events per address, and in total
WRONG = "the token or the session is not valid; sign in again, or use another token"
_OLDEST_S = 1.0  # a wake-up can be lost, so older entries are read again
_MOST = 10_000
_LOCKS = 64
_NOT_LOCAL = frozenset({Permission.VOTE, Permission.BREAK_GLASS})
_FOR_EVER = 1 << 53


class _CachedCaller(Struct, frozen=True):
    """A cached lookup; `caller` is None for an unknown secret."""

    caller: Caller | None
    read_at: float
    wakeups: int  # the generation of wake-ups before the read


class CallerCache:
    """Callers by secret, for one event loop: at most one second old, and newer than any wake-up.

    A role or token that was revoked in this process is rejected from the next request on; in another process when its
    wake-up arrives, and after one second at the latest.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._entries: dict[str, _CachedCaller] = {}
        self.refused = RateLimitCache(stores)  # addresses that sent invalid credentials
        self._reading = [SingleFlight() for _ in range(_LOCKS)]  # of concurrent requests with one secret, one reads
        self._unfollow: Callable[[], None] | None = None

    async def find(self, credentials: Credentials) -> Caller | None:
        """Return the caller, or None for an unknown secret. Raises StoreUnavailable instead of using a stale entry."""
        token, session = credentials.token, credentials.session
        key = f"t{fingerprint(token)}" if token is not None else f"s{fingerprint(session or '')}"
        entry = self._fresh(key)
        if entry is None:
            async with self._reading[hash(key) % _LOCKS]:
                entry = self._fresh(key) or await self._read(key, credentials)
        return entry.caller

    def close(self) -> None:
        """Stop following wake-ups."""
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _fresh(self, key: str) -> _CachedCaller | None:
        entry = self._entries.get(key)
        if entry is None or entry.wakeups != self._generation() or time.monotonic() - entry.read_at >= _OLDEST_S:
            return None
        caller, now = entry.caller, self._stores.clock.now()
        if caller is not None and caller.token is not None and not caller.token.is_good(now):
            return None
        if caller is not None and caller.session is not None and not caller.session.is_live(now):
            return None
        return entry

    async def _read(self, key: str, credentials: Credentials) -> _CachedCaller:
        if self._unfollow is None:  # subscribe on first use
            self._unfollow = self._stores.wakeups.follow(RULES, self._entries.clear)
        # Taken before the read, so that a concurrent change invalidates the entry.
        wakeups, at = self._generation(), time.monotonic()
        found = _CachedCaller(await _looked_up(self._stores, credentials), at, wakeups)
        self._entries.pop(key, None)
        while len(self._entries) >= _MOST:
            del self._entries[next(iter(self._entries))]  # the oldest entry
        self._entries[key] = found
        return found

    def _generation(self) -> int:
        """Read each time: it grows when a wake-up arrives, not when this loop processes it."""
        return self._stores.wakeups.generation(RULES)


async def _looked_up(stores: Stores, credentials: Credentials) -> Caller | None:
    try:
        if credentials.token is not None:
            return await use_token(stores, credentials.token)
        return await use_session(stores, credentials.session or "")
    except NotAuthenticated:
        return None


async def authenticate(stores: Stores, credentials: Credentials, cache: CallerCache | None = None) -> Caller | None:
    """Return the caller; None if no credentials were sent. Raises TooManyRequests, and NotAuthenticated with the same
    message whatever is wrong.

    A valid secret is accepted however many invalid ones came from the same address: secrets are too long to guess, and
    a client must not lock out others behind the same proxy. The limit protects the log and the store from floods.
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
    """Count invalid credentials. Raises TooManyRequests. Logs one event per minute and address, and 60 per minute in
    total."""
    address = counted_address(credentials.address)
    wait_ms = refused.wait_ms(address)
    if not wait_ms:
        wait_ms = await stores.documents.take_rate(f"refused:{address}", *REFUSALS)
        refused.note(address, wait_ms)
    if wait_ms:
        raise TooManyRequests("too many invalid tokens and sessions from this address", retry_after=wait_ms / 1000)
    if await stores.documents.take_rate(f"refusal-told:{address}", *TOLD_OF_ONE):
        return
    if await stores.documents.take_rate("refusals-told", *TOLD_OF_ALL):
        return
    by = "session" if credentials.token is None else "token"
    await stores.documents.write([], [access_refused(credentials.address, by, now=stores.clock.now())])


async def local_caller(stores: Stores) -> Caller:
    """Return the caller without authentication: all permissions of an admin, except voting and break-glass.

    It acts as through a token without these scopes, so operations that need a login session are not available.
    """
    user = await local_operator(stores)
    now = stores.clock.now()
    scopes = user.permissions - _NOT_LOCAL
    token = Token(id="", account=user.id, scopes=scopes, created_at=now, expires_at=_FOR_EVER, label="http.auth is off")
    return Caller(user=user, token=token)
