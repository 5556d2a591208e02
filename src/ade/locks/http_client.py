"""Locks over HTTP: the lock client of programs that use a server instead of the store, and a lock context manager."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import structs

from ade.client.transport import backoff_s
from ade.errors import (
    AdeError,
    DeadlockVictim,
    InvalidLock,
    LockLost,
    LockNotPermitted,
    LockRateLimited,
    LockTimeout,
    ServerUnreachable,
    StoreUnavailable,
    TooManyLocks,
)
from ade.locks.client import LockCancellation, place_lost
from ade.locks.holder import Granted, HeldLock, Interruption, LockHolder
from ade.locks.model import (
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    LockItem,
    LockRequest,
    LockSpec,
    LockState,
    PriorityName,
    by_namespace,
    lock_specs_of,
    read_priority,
)
from ade.locks.requests import NO_TTL, check_ttl, ttl_ms_of, wait_ms_of
from ade.server.problems import ServerProblem
from ade.worker.instrumentation import current_run

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.locks.views import LocksWatched, RequestView

TURN_S = 10.0  # of waiting for one response; the server drops a waiter that is not polled for 15 s
_HEARTBEAT_S = 10.0
_RELEASE_S = 10.0
_FRESH = 3  # a lease with at most 1/3 of its time elapsed needs no renewal before use
_BREAKS = 6  # consecutive failures, about six seconds
_UNAVAILABLE = 503
# As the answer to a new request:
_NOT_STORED = (LockTimeout, DeadlockVictim, TooManyLocks, LockRateLimited, LockNotPermitted)
T = TypeVar("T")


class Persist(Protocol):
    """Retries when a response was lost or the server restarts: a position in the wait queue survives longer than that.

    `was_reached`: the server has already responded about this request.
    """

    async def __call__(
        self, ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
    ) -> T: ...


async def persist_briefly(
    ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
) -> T:
    """Retry for some seconds. A server that was never reached fails immediately."""
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


_WATCH_AFTER_S = 1.0  # a lock that is held for less costs no request
_WATCH_S = 20.0


async def watch_over_http(
    client: "Client",
    ids: Callable[[], Mapping[str, Sequence[str]]],
    runs: Callable[[], Mapping[str, str]],
    changed: asyncio.Event,
    tell: Callable[["LocksWatched"], None],
) -> None:
    """Ask the server, for as long as this runs, to report immediately which locks or runs a forced release
    has ended.

    `ids` are held locks by namespace, `runs` are runs with their tasks; set `changed` when there are more.
    """

    async def ask(namespace: str, some: Sequence[str], of_tasks: Mapping[str, str]) -> None:
        answer = await client.watch_locks(ids=some, namespace=namespace, runs=of_tasks, wait=_WATCH_S)
        if answer.lost or answer.lost_runs:
            tell(answer)

    while True:
        await asyncio.sleep(_WATCH_AFTER_S)
        changed.clear()
        asking = [ask(space, some[:100], {}) for space, some in ids().items() if some]
        if of_tasks := dict(list(runs().items())[:100]):
            asking.append(ask(DEFAULT_NAMESPACE, (), of_tasks))
        jobs = [asyncio.ensure_future(each) for each in (*asking, changed.wait())]
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            ends = await asyncio.gather(*jobs, return_exceptions=True)
        if any(isinstance(end, AdeError) for end in ends):
            await asyncio.sleep(_WATCH_S)  # the server is unreachable, or too old for this; renewals continue


class HttpLockClient:
    """A LockClient of a server. It waits by long polling, since a server responds to each request after a while.

    `renewing` sends the renewals, if these use their own connection. Belongs to one event loop.
    """

    renews_at_once = 100

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
        self._acquired = asyncio.Event()
        self.heartbeat_s = _HEARTBEAT_S
        self.account = ""  # of the token, if known: the server prefixes request IDs with it

    async def acquire(self, request: LockRequest, *, wait_ms: int | None, goes_on: Callable[[], bool]) -> Granted:
        """See LockClient. The grant has a different ID than the request: the server prefixes the account."""
        until = None if wait_ms is None else self._loop.time() + wait_ms / 1000
        persist = partial(self._persist, request=request, goes_on=goes_on)
        asked_at = self._loop.time()
        sent = structs.replace(request, id=f"{self.account}:{request.id}" if self.account else "")
        is_stored = False
        try:
            stay = wait_ms is None or wait_ms > self._turn_s * 1000
            standing = await persist(lambda: self._ask(request, self._turn(until), stay=stay), was_reached=False)
            sent, is_stored = grant_of(standing), True
            while standing.state is not LockState.GRANTED:
                if until is not None and self._loop.time() >= until:
                    raise LockTimeout(f"{', '.join(request.resources)} is locked by another owner")
                asked_at = self._loop.time()
                try:
                    standing = await persist(lambda: self._renew_one(sent, self._turn(until)), was_reached=True)
                except LockLost:  # it was not granted yet
                    raise place_lost(sent) from None
            if self._loop.time() - asked_at > standing.ttl_ms / 1000 / _FRESH:  # granted some time ago, in that poll
                asked_at = self._loop.time()
                standing = await persist(lambda: self._renew_one(sent, 0.0), was_reached=True)
        except BaseException as error:
            if is_stored or not isinstance(error, _NOT_STORED):
                await self._cancel(sent, at_once=not isinstance(error, asyncio.CancelledError))
            raise
        self._acquired.set()
        return grant_of(standing), asked_at

    async def _cancel(self, sent: LockRequest, *, at_once: bool) -> None:
        """Release a request without making a cancelled caller wait for the server."""
        if not sent.id:  # no response yet; the server drops the request when the connection closes
            return
        if at_once:
            await self._leaving.leave(sent)
        else:
            self._leaving.leave_later(sent)

    async def _ask(self, request: LockRequest, wait: float, *, stay: bool) -> "RequestView":
        run = current_run.get()
        return await self._client.acquire_locks(
            locks=[LockSpec(item.resource, item.mode) for item in request.items],
            id=request.id,  # the ID makes the request idempotent
            owner=request.owner or None,
            scope=request.scope or None,
            namespace=request.namespace,
            priority=request.priority,
            ttl=None if request.ttl_ms == NO_TTL else request.ttl_ms / 1000,
            purpose=request.purpose,
            wait=wait,
            stay=stay,
            run=None if run is None else run.run_id,
            run_task=None if run is None else run.task_id,
        )

    def _turn(self, until: float | None) -> float:
        """Return how long to wait for one response."""
        left = self._turn_s if until is None else until - self._loop.time()
        return min(max(left, 0.0), self._turn_s)

    async def _renew_one(self, sent: LockRequest, wait: float) -> "RequestView":
        answer = await self._client.renew_locks(ids=[sent.id], namespace=sent.namespace, wait=wait)
        return answer.renewed[0]

    async def renew(
        self, namespace: str, request_ids: Sequence[str], *, within_s: float
    ) -> Sequence[LockRequest | None]:
        """See LockClient. A timeout leaves time to retry before a lock is lost."""
        try:
            async with asyncio.timeout(within_s):
                answer = await self._renewing.renew_locks(ids=list(request_ids), namespace=namespace)
        except LockLost:  # all of these are gone
            return [None] * len(request_ids)
        renewed = {view.id: grant_of(view) for view in answer.renewed}
        return [renewed.get(each) for each in request_ids]

    async def release(self, request: LockRequest) -> None:
        await self._leaving.leave(request)

    async def _release(self, namespace: str, request_ids: Sequence[str]) -> None:
        async with asyncio.timeout(_RELEASE_S):
            await self._client.release_locks(ids=list(request_ids), namespace=namespace)

    def watch_losses(self, tell: Callable[[], None], held: Callable[[], Iterable[LockRequest]]) -> Callable[[], object]:
        """See LockClient. One long request waits at the server while a lock is held for longer than a second."""
        watching = watch_over_http(
            self._client, lambda: by_namespace(held()), dict, self._acquired, lambda _lost: tell()
        )
        return self._loop.create_task(watching, name="ade-lock-losses").cancel

    async def watch_runs(
        self, runs: Callable[[], Mapping[str, str]], changed: asyncio.Event, tell: Callable[[Sequence[str]], None]
    ) -> None:
        """Report immediately which of these runs, named with their tasks, have lost the locks of their tasks."""
        await watch_over_http(self._client, dict, runs, changed, lambda lost: tell(lost.lost_runs))

    async def refresh(self) -> None:
        """Do nothing: the server reads its own settings."""

    async def close(self) -> None:
        await self._leaving.close()


def grant_of(view: "RequestView") -> LockRequest:
    """Convert the server's view to the request as its holder sees it."""
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
    """Acquired on entry, released on exit. The block ends with LockLost if the lock is lost."""

    _holder: LockHolder[HttpLockClient] | None = None
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
        priority: int | PriorityName = DEFAULT_PRIORITY,
        ttl: float | None = None,
        purpose: str | None = None,
    ) -> None:
        """`wait` is the longest time to wait, in seconds; None means no limit. It is split into polls of TURN_S.

        The other options are those of `acquire_locks`.
        """
        self._client = client
        self._wait_ms = wait_ms_of(wait)
        self._turn_s = turn_s
        ttl_ms = ttl_ms_of(ttl)
        if ttl_ms is not None:
            check_ttl(ttl_ms)
        self._request = LockRequest(  # the server validates names
            id="",  # a new one for each entry
            namespace=namespace,
            owner=owner or "",
            scope=scope or "",
            items=tuple(LockItem(spec.resource, spec.mode) for spec in lock_specs_of(wanted)),
            priority=read_priority(priority),
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
        if self._holder is not None:
            raise InvalidLock("this lock is entered already; make another one")
        self._interruption = Interruption(asyncio.current_task())
        self._holder = LockHolder(HttpLockClient(self._client, turn_s=self._turn_s))
        request = structs.replace(self._request, id=os.urandom(16).hex())
        try:
            self._held = await self._holder.acquire(request, wait_ms=self._wait_ms)
        except BaseException:
            holder, self._holder = self._holder, None
            await holder.close()
            raise
        self._held.when_lost(self._interruption)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interruption.leave()
        holder, self._holder = self._holder, None
        assert holder is not None
        try:
            await holder.release(self._held)
        finally:
            await holder.close()
        if self._interruption.was_cause(kind):
            self._held.check()
