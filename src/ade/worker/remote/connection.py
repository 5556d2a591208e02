"""The server as a worker reaches it: what passes by itself is waited for, everything else is told of."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ade.accounts.model import NotAuthenticated, TooManyRequests
from ade.client.client import Client
from ade.client.http_transport import HttpTransport
from ade.client.transport import RetryLimits, backoff_s
from ade.errors import AdeError, NeedsStore, NotPermitted, ServerUnreachable, StaleLease, StoreError, StoreUnavailable
from ade.locks.http_client import HttpLockClient
from ade.locks.model import LockRequest
from ade.logs import Log
from ade.server.problems import ServerProblem
from ade.tasks.model import OutputLine
from ade.worker.api.requests import OutputText

if TYPE_CHECKING:
    from ade.worker.backend import WorkerOptions


T = TypeVar("T")
_LONGEST_PAUSE_S = 3.0  # whoever comes back shall not find everybody asleep
_PASSING = frozenset({408, 429, 502, 503, 504})
_FIRST_FAULT = 500
_LEAST_CONNECTIONS = 100  # as many as any client may have
log = Log("ade.worker")


class ServerConnection:
    """`client` is for the event loop. `beats` is for what keeps leases, on a thread of its own, and locks: it does not
    wait for long, so that one request that hangs does not cost them, nor for a connection behind all that runs ask."""

    def __init__(
        self,
        url: str,
        token: str | None,
        options: "WorkerOptions",
        randomness: Callable[[], float] = random.random,
        *,
        allow_plain: bool = False,
    ) -> None:
        # Each run may wait for a lock, and whoever lets one go, or hands in what it has, must not wait behind them.
        most = _LEAST_CONNECTIONS + options.concurrency
        self.client = Client(
            HttpTransport(url, token=token, randomness=randomness, allow_plain=allow_plain, most_connections=most)
        )
        patience = RetryLimits(repeats=2, longest_pause_s=options.heartbeat_s)
        brief_s = max(options.lease_s / 4, 1.0)
        self.beats = Client(
            HttpTransport(
                url, token=token, timeout_s=brief_s, patience=patience, randomness=randomness, allow_plain=allow_plain
            )
        )
        self._dice = randomness

    def lock_client(self) -> HttpLockClient:
        """For the locks of runs: it asks for as long as a run needs them, and renews them as leases are renewed."""

        async def persist(
            ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
        ) -> T:
            return await self.persist(ask, "lock", goes_on, task_id=request.task_id)

        return HttpLockClient(self.client, renewing=self.beats, persist=persist)

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


# Lines that runs write, on their way to the server.


_MOST, _MOST_TEXT = 1_000, 1 << 20  # lines and characters in one request
_LONGEST = 65_536  # of a line, as the server takes it


class HttpOutputStore:
    """Where the worker's OutputBuffer stores its lines."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sent: set[int] = set()  # lines of a call that failed half-way: the buffer brings them again

    async def append(self, lines: Sequence[OutputLine]) -> None:
        """Raises StoreUnavailable while the server is away."""
        by_run: dict[tuple[str, str], list[OutputLine]] = {}
        for line in lines:
            if id(line) not in self._sent:
                by_run.setdefault((line.run_id, line.task_id), []).append(line)
        for (run_id, task_id), own in by_run.items():
            for part in _parts(own):
                await self._send(run_id, task_id, part)
                self._sent.update(map(id, part))
        self._sent.difference_update(map(id, lines))

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        raise NeedsStore("a worker behind HTTP writes lines and reads none")

    async def _send(self, run_id: str, task_id: str, lines: Sequence[OutputLine]) -> None:
        texts = [OutputText(text=line.text[:_LONGEST], stream=line.stream) for line in lines]
        try:
            await self._client.append_output(run_id, task_id=task_id, lines=texts)
        except StaleLease:
            return  # nobody wants to read them under a run that is not its own any more
        except AdeError as error:
            # A token, too, may be good again later.
            if is_passing(error) or isinstance(error, NotAuthenticated | NotPermitted):
                raise StoreUnavailable(error.detail) from error
            raise


def _parts(lines: Sequence[OutputLine]) -> Iterator[list[OutputLine]]:
    part: list[OutputLine] = []
    size = 0
    for line in lines:
        length = min(len(line.text), _LONGEST)
        if part and (len(part) == _MOST or size + length > _MOST_TEXT):
            yield part
            part, size = [], 0
        part.append(line)
        size += length
    yield part


class LocalClock:
    """The server gives lines their time; this is for what is only kept here."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000
