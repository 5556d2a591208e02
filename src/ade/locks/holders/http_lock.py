"""Locks that a server lends: asked for, waited for, and kept by renewing them until they are given back."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ade.client.transport import backoff_s
from ade.errors import AdeError, LockLost, LockTimeout, ServerUnreachable, StoreUnavailable
from ade.locks.api import LONGEST_WAIT_S
from ade.locks.held_lock import HeldLock
from ade.locks.model import DEFAULT_NAMESPACE, LockRequest, LockState
from ade.logs import Log
from ade.server.problems import ServerProblem

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.locks.modes import LockSpec
    from ade.locks.views import RequestView

_IN_ONE_LEASE = 3  # times that a lease is set anew in its length
_LONGEST_PAUSE_S = 10.0
_BREAKS = 6  # in a row, about six seconds
_UNAVAILABLE = 503
T = TypeVar("T")
log = Log("ade.locks")


class HttpLock:
    """Taken by entering it, let go by leaving it; use it once. The block ends with LockLost when the lock is lost."""

    _held: HeldLock
    _task: "asyncio.Task[Any]"
    _renewing: asyncio.Task[None]

    def __init__(
        self,
        client: "Client",
        wanted: "Sequence[str | LockSpec]",
        *,
        wait: float | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        turn_s: float = LONGEST_WAIT_S,
        **options: Any,
    ) -> None:
        """`wait` is the longest time in line, in seconds; None: as long as it takes. It is spent in turns: a server
        answers each request after a while. Options are as `acquire_locks` has them."""
        self._client = client
        self._wanted = list(wanted)
        self._wait = wait
        self._namespace = namespace
        self._turn_s = turn_s
        self._options = options
        self._is_left = False
        self._cancelling = 0
        self._was_interrupted = False

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
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._held = await self._taken()
        self._held.when_lost(self._interrupt)
        self._renewing = asyncio.create_task(self._renew(), name="ade-lent-lock")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        self._held.forget()
        await self._let_go(self._held.id)
        if self._was_interrupted and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            self._held.check()

    async def _taken(self) -> HeldLock:
        loop, own_id = asyncio.get_running_loop(), secrets.token_hex(16)
        until = None if self._wait is None else loop.time() + self._wait
        asked_at = loop.time()
        standing = await _persist(
            lambda: self._client.acquire_locks(
                locks=self._wanted,
                id=own_id,  # asked for twice, it is the same request
                namespace=self._namespace,
                wait=self._turn(until),
                stay=self._wait is None or self._wait > self._turn_s,
                **self._options,
            )
        )
        try:
            while standing.state is not LockState.GRANTED:
                self._check_patience(standing, until)
                asked_at = loop.time()
                standing = await _persist(partial(self._in_line, standing.id, until), was_reached=True)
            if _is_old(standing, loop.time() - asked_at):
                asked_at = loop.time()
                standing = await self._renewed(standing.id)
        except BaseException:
            await self._let_go(standing.id)
            raise
        return HeldLock(_grant(standing), asked_at, loop)

    def _check_patience(self, standing: "RequestView", until: float | None) -> None:
        if until is not None and asyncio.get_running_loop().time() >= until:
            raise LockTimeout(f"{', '.join(item.resource for item in standing.items)} is locked by somebody else")

    def _turn(self, until: float | None) -> float:
        """How long to wait for one answer."""
        left = self._turn_s if until is None else until - asyncio.get_running_loop().time()
        return min(max(left, 0.0), self._turn_s)

    async def _in_line(self, request_id: str, until: float | None) -> "RequestView":
        return await self._renewed(request_id, self._turn(until))

    async def _renewed(self, request_id: str, wait: float = 0.0) -> "RequestView":
        answer = await self._client.renew_locks(ids=[request_id], namespace=self._namespace, wait=wait)
        return answer.renewed[0]

    async def _renew(self) -> None:
        loop, held = asyncio.get_running_loop(), self._held
        pause = min(held.grant.ttl_ms / 1000 / _IN_ONE_LEASE, _LONGEST_PAUSE_S)
        while True:
            await asyncio.sleep(pause)
            asked_at = loop.time()
            try:
                async with asyncio.timeout(pause):
                    held.extend(_grant(await self._renewed(held.id)), asked_at)
            except LockLost:
                held.lose("it ran out or was taken away")
                return
            except (AdeError, TimeoutError) as error:  # it has an alarm of its own
                log.warning("lock.not_renewed", locks=1, error=str(error))

    async def _let_go(self, request_id: str) -> None:
        """As far as the server can be reached; else its lease runs out by itself."""
        try:
            async with asyncio.timeout(_LONGEST_PAUSE_S):
                await self._client.release_locks(ids=[request_id], namespace=self._namespace)
        except (AdeError, TimeoutError) as error:
            log.warning("lock.not_released", request_id=request_id, error=str(error))

    def _interrupt(self) -> None:
        if not self._is_left:
            self._was_interrupted = True
            self._task.cancel()


async def _persist(ask: Callable[[], Awaitable[T]], *, was_reached: bool = False) -> T:
    """Ask again when the answer was lost, or the server is started anew: a place in line is kept for longer than that.
    A server that was never reached is told of at once."""
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


def _is_old(standing: "RequestView", elapsed_s: float) -> bool:
    """Whether it may have been granted so long ago that it should be renewed before it is used."""
    return elapsed_s > standing.ttl_ms / 1000 / _IN_ONE_LEASE


def _grant(seen: "RequestView") -> LockRequest:
    return LockRequest(
        id=seen.id,
        namespace=seen.namespace,
        owner=seen.owner,
        scope="",
        items=seen.items,
        state=seen.state,
        ttl_ms=seen.ttl_ms,
    )
