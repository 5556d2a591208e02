"""The server as a worker reaches it: what passes by itself is waited for, everything else is told of."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ade.client.client import Client
from ade.client.remote import RemoteTransport
from ade.client.repeating import Patience, backoff_s
from ade.core.accounts.errors import TooManyRequests
from ade.core.errors import AdeError, ServerUnreachable, StoreError
from ade.core.web.raising import ServerProblem
from ade.logs import Log

if TYPE_CHECKING:
    from ade.worker.options import WorkerOptions

T = TypeVar("T")
_LONGEST_PAUSE_S = 3.0  # whoever comes back shall not find everybody asleep
_PASSING = frozenset({408, 429, 502, 503, 504})
_FIRST_FAULT = 500
_LEAST_CONNECTIONS = 100  # as many as any client may have
log = Log("ade.worker")


class Reach:
    """`client` is for the event loop. `beats` is for what keeps leases, on a thread of its own, and locks: it does not
    wait for long, so that one request that hangs does not cost them, nor for a connection behind all that runs ask."""

    def __init__(
        self,
        url: str,
        token: str | None,
        options: "WorkerOptions",
        dice: Callable[[], float] = random.random,
        *,
        allow_plain: bool = False,
    ) -> None:
        # Each run may wait for a lock, and whoever lets one go, or hands in what it has, must not wait behind them.
        most = _LEAST_CONNECTIONS + options.concurrency
        self.client = Client(
            RemoteTransport(url, token=token, dice=dice, allow_plain=allow_plain, most_connections=most)
        )
        patience = Patience(repeats=2, longest_pause_s=options.heartbeat_s)
        brief_s = max(options.lease_s / 4, 1.0)
        self.beats = Client(
            RemoteTransport(url, token=token, timeout_s=brief_s, patience=patience, dice=dice, allow_plain=allow_plain)
        )
        self._dice = dice

    async def persist(self, ask: Callable[[], Awaitable[T]], what: str, goes_on: Callable[[], bool], **about: Any) -> T:
        """Ask until there is an answer, or nobody needs it any more. Raises AdeError: the last one then."""
        times = 0
        while True:
            try:
                return await ask()
            except AdeError as error:
                if not is_passing(error) or not goes_on():
                    raise
                pause = self.pause(times)
                log.warning("server.asked_again", what=what, error=str(error), pause_s=round(pause, 2), **about)
            times += 1
            await asyncio.sleep(pause)

    def pause(self, times: int) -> float:
        """Longer from time to time, and never the same for all."""
        return min(backoff_s(times, self._dice()), _LONGEST_PAUSE_S * (0.5 + self._dice()))

    async def close(self) -> None:
        await self.client.close()
        await self.beats.close()
        await asyncio.to_thread(self.beats.close().wait)  # those of its thread


def is_passing(error: BaseException) -> bool:
    """Whether the same question may have an answer later: the server is away, starts, stops, or has much to do."""
    if isinstance(error, ServerProblem):
        return error.status in _PASSING
    return isinstance(error, ServerUnreachable | StoreError | TooManyRequests)


def is_fault(error: BaseException) -> bool:
    """Whether something is wrong on the server's side: what was asked may have been done all the same."""
    return isinstance(error, ServerProblem) and error.status is not None and error.status >= _FIRST_FAULT
