"""The connection of a worker to its server: retries temporary failures, reports others, and sends output lines."""

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
_LONGEST_PAUSE_S = 3.0  # so that workers notice soon when the server is back
_PASSING = frozenset({408, 429, 502, 503, 504})
_FIRST_FAULT = 500
_LEAST_CONNECTIONS = 100  # the limit of any client
log = Log("ade.worker")


class ServerConnection:
    """Two HTTP clients of a server.

    `client` is for the event loop. `beats` renews leases, from its own thread, and locks. Its timeouts are short, so
    that one hanging request does not cost a lease, and it does not share a connection pool with the requests of runs.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        options: "WorkerOptions",
        randomness: Callable[[], float] = random.random,
        *,
        allow_plain: bool = False,
    ) -> None:
        # Every run can wait for a lock, and releases and reports must not queue behind these requests.
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
        """Return the lock client of runs: it retries as long as a run needs the lock, and renews like leases."""

        async def persist(
            ask: Callable[[], Awaitable[T]], *, request: LockRequest, goes_on: Callable[[], bool], was_reached: bool
        ) -> T:
            return await self.persist(ask, "lock", goes_on, task_id=request.task_id)

        return HttpLockClient(self.client, renewing=self.beats, persist=persist)

    async def persist(self, ask: Callable[[], Awaitable[T]], what: str, goes_on: Callable[[], bool], **about: Any) -> T:
        """Retry until there is a response or `goes_on` returns false. Raises the last AdeError."""
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
        """Return an increasing delay with jitter."""
        return min(backoff_s(times, self._dice()), _LONGEST_PAUSE_S * (0.5 + self._dice()))

    async def close(self) -> None:
        await self.client.close()
        await self.beats.close()
        await asyncio.to_thread(self.beats.close().wait)  # the connections of its thread


def is_passing(error: BaseException) -> bool:
    """Whether a retry may succeed: the server is unreachable, starting, stopping, or overloaded."""
    if isinstance(error, ServerProblem):
        return error.status in _PASSING
    return isinstance(error, ServerUnreachable | StoreError | TooManyRequests)


def is_fault(error: BaseException) -> bool:
    """Whether this is a server error: the request may have been executed anyway."""
    return isinstance(error, ServerProblem) and error.status is not None and error.status >= _FIRST_FAULT


# Output lines of runs, sent to the server.


_MOST, _MOST_TEXT = 1_000, 1 << 20  # lines and characters per request
_LONGEST = 65_536  # of a line, as limited by the server


class HttpOutputStore:
    """The store of the worker's OutputBuffer: sends lines to the server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sent: set[int] = set()  # lines of a call that failed halfway: the buffer passes them again

    async def append(self, lines: Sequence[OutputLine]) -> None:
        """Send lines. Raises StoreUnavailable while the server is unreachable."""
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
            return  # the run has lost its task, so its output is discarded
        except AdeError as error:
            # A token can also become valid again.
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
    """The local clock, for values that stay in this process; the server sets the time of lines."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def judged(self, lease_ms: int) -> int:
        return self.steady()
