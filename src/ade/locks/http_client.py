"""Locks over HTTP: the lock client of programs that have a server instead of the store, and a lock for a block."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import structs

from ade.client.transport import backoff_s
from ade.errors import (
    DeadlockVictim,
    LockLost,
    LockRateLimited,
    LockTimeout,
    ServerUnreachable,
    StoreUnavailable,
    TooManyLocks,
)
from ade.locks.client import LockCancellation
from ade.locks.holder import Granted, HeldLock, Interruption, LockHolder
from ade.locks.model import (
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    LockItem,
    LockRequest,
    LockSpec,
    LockState,
    lock_specs_of,
)
from ade.locks.requests import NO_TTL, check_ttl, ttl_ms_of, wait_ms_of
from ade.server.problems import ServerProblem

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.locks.views import RequestView

TURN_S = 10.0  # of waiting for one answer; a place in the queue that is not asked for is given away after 15
_HEARTBEAT_S = 10.0
_RELEASE_S = 10.0
_FRESH = 3  # a lease of which at most this part may be over needs no renewal before it is used
_MOST_IDS = 100  # in one request
_BREAKS = 6  # in a row, about six seconds
_UNAVAILABLE = 503
_NOT_WAITING = (LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited)  # the server keeps nothing after these
T = TypeVar("T")


class Persist(Protocol):
    """Asks again when the answer was lost, or the server restarts: a place in the queue is kept for longer than that.

    `was_reached`: the server has answered about this request before.
    """

    async def __call__(
        self, ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
    ) -> T: ...


async def persist_briefly(
    ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
) -> T:
    """For some seconds. A server that was never reached fails at once."""
    for times in range(_BREAKS):
        try:
            return await ask()
        except ServerUnreachable as broken:
            if not (broken.was_sent or was_reached):
                raise
        except (StoreUnavailable, ServerProblem) as problem:
            if isinstance(problem, ServerProblem) and problem.status != _UNAVAILABLE:
                raise
        was_reached = True
        await asyncio.sleep(backoff_s(times, random.random()))
    return await ask()


class HttpLockClient:
    """A LockClient of a server. A wait is spent in turns, since a server answers each request after a while.

    `renewing` makes the renewals, where these have a connection of their own. Belongs to one event loop.
    """

    def __init__(
        self,
        client: "Client",
        *,
        renewing: "Client | None" = None,
        persist: Persist = persist_briefly,
        turn_s: float | None = None,
    ) -> None:
        self._client = client
        self._renewing = renewing or client
        self._persist = persist
        self._turn_s = TURN_S if turn_s is None else turn_s
        self._loop = asyncio.get_running_loop()
        self._leaving = LockCancellation(self._release)
        self.heartbeat_s = _HEARTBEAT_S
        self.account = ""  # of the token, if known: the server begins the ids of requests with it

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, goes_on: Callable[[], bool]) -> Granted:
        """See LockClient. The grant has another id than the request: the account comes first."""
        until = None if wait_ms is None else self._loop.time() + wait_ms / 1000
        persist = partial(self._persist, request=request, goes_on=goes_on)
        asked_at = self._loop.time()
        sent = structs.replace(request, id=f"{self.account}:{request.id}" if self.account else "")
        try:
            stay = wait_ms is None or wait_ms > self._turn_s * 1000
            standing = await persist(lambda: self._ask(request, self._turn(until), stay=stay), was_reached=False)
            sent = grant_of(standing)
            while standing.state is not LockState.GRANTED:
                if until is not None and self._loop.time() >= until:
                    await self._leaving.leave(sent)
                    raise LockTimeout(f"{', '.join(request.resources)} is locked by somebody else")
                asked_at = self._loop.time()
                standing = await persist(lambda: self._renew_one(sent, self._turn(until)), was_reached=True)
            if self._loop.time() - asked_at > standing.ttl_ms / 1000 / _FRESH:  # it was granted somewhen in that time
                asked_at = self._loop.time()
                standing = await persist(lambda: self._renew_one(sent, 0.0), was_reached=True)
        except _NOT_WAITING:
            raise
        except BaseException as error:
            await self._cancel(sent, at_once=not isinstance(error, asyncio.CancelledError))
            raise
        return grant_of(standing), asked_at

    async def _cancel(self, sent: LockRequest, *, at_once: bool) -> None:
        """A cancelled caller is not kept waiting, least of all for a server that does not answer."""
        if not sent.id:  # the server has not told, and lets it go when the connection ends
            return
        if at_once:
            await self._leaving.leave(sent)
        else:
            self._leaving.leave_later(sent)

    async def _ask(self, request: LockRequest, wait: float, *, stay: bool) -> "RequestView":
        return await self._client.acquire_locks(
            locks=[LockSpec(item.resource, item.mode) for item in request.items],
            id=request.id,  # asked for twice, it is the same request
            owner=request.owner or None,
            scope=request.scope or None,
            namespace=request.namespace,
            priority=request.priority,
            ttl=None if request.ttl_ms == NO_TTL else request.ttl_ms / 1000,
            purpose=request.purpose,
            wait=wait,
            stay=stay,
        )

    def _turn(self, until: float | None) -> float:
        """How long to wait for one answer."""
        left = self._turn_s if until is None else until - self._loop.time()
        return min(max(left, 0.0), self._turn_s)

    async def _renew_one(self, sent: LockRequest, wait: float) -> "RequestView":
        answer = await self._client.renew_locks(ids=[sent.id], namespace=sent.namespace, wait=wait)
        return answer.renewed[0]

    async def renew(
        self, namespace: str, request_ids: Sequence[str], *, within_s: float
    ) -> Sequence[LockRequest | None]:
        """See LockClient. A server that does not answer in time is asked again before that costs a lock."""
        standing = dict[str, LockRequest]()
        async with asyncio.timeout(within_s):
            for start in range(0, len(request_ids), _MOST_IDS):
                some = list(request_ids[start : start + _MOST_IDS])
                try:
                    answer = await self._renewing.renew_locks(ids=some, namespace=namespace)
                except LockLost:  # all of these
                    continue
                standing |= {view.id: grant_of(view) for view in answer.renewed}
        return [standing.get(each) for each in request_ids]

    async def release(self, request: LockRequest) -> None:
        await self._leaving.leave(request)

    async def _release(self, namespace: str, request_ids: Sequence[str]) -> None:
        async with asyncio.timeout(_RELEASE_S):
            await self._client.release_locks(ids=list(request_ids), namespace=namespace)

    async def refresh(self) -> None:
        """The settings of the server are the server's own."""

    async def close(self) -> None:
        await self._leaving.close()


def grant_of(view: "RequestView") -> LockRequest:
    """The request as its holder knows it."""
    return LockRequest(
        id=view.id,
        namespace=view.namespace,
        owner=view.owner,
        scope=view.id,
        items=view.items,
        ttl_ms=view.ttl_ms,
        state=view.state,
    )


class HttpLock:
    """Acquired by entering it, released by leaving it; use it once. The block ends with LockLost when it is lost."""

    _holder: LockHolder[HttpLockClient]
    _held: HeldLock
    _interruption: Interruption

    def __init__(
        self,
        client: "Client",
        wanted: Sequence[str | LockSpec],
        *,
        wait: float | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        turn_s: float | None = None,
        owner: str | None = None,
        scope: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        ttl: float | None = None,
        purpose: str | None = None,
    ) -> None:
        """`wait` is the longest time to wait, in seconds; None: as long as it takes. It is spent in turns (TURN_S).
        The other options are those of `acquire_locks`."""
        self._client = client
        self._wait_ms = wait_ms_of(wait)
        self._turn_s = turn_s
        ttl_ms = ttl_ms_of(ttl)
        if ttl_ms is not None:
            check_ttl(ttl_ms)
        self._request = LockRequest(  # names are for the server to judge
            id=os.urandom(16).hex(),
            namespace=namespace,
            owner=owner or "",
            scope=scope or "",
            items=tuple(LockItem(spec.resource, spec.mode) for spec in lock_specs_of(wanted)),
            priority=priority,
            ttl_ms=ttl_ms or NO_TTL,
            purpose=purpose,
        )

    @property
    def id(self) -> str:
        return self._held.id

    @property
    def resources(self) -> tuple[str, ...]:
        return self._held.grant.resources

    def token(self, resource: str | None = None) -> int:
        """The fencing token; needs the name only where several are locked. Raises LockLost."""
        return self._held.token(resource)

    async def __aenter__(self) -> "HttpLock":
        """Raises LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock."""
        self._interruption = Interruption(asyncio.current_task())
        self._holder = LockHolder(HttpLockClient(self._client, turn_s=self._turn_s))
        try:
            self._held = await self._holder.acquire(self._request, wait_ms=self._wait_ms)
        except BaseException:
            await self._holder.close()
            raise
        self._held.when_lost(self._interruption)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interruption.leave()
        try:
            await self._holder.release(self._held)
        finally:
            await self._holder.close()
        if self._interruption.was_cause(kind):
            self._held.check()
