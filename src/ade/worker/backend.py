"""The backend interface of a worker (the store, or a server over HTTP), and the worker's options."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ade.locks.model import LockLimits
from ade.settings.sections import WorkerSettings
from ade.stores.ports import ClaimRequest, Clock, Renewal
from ade.tasks.model import Task
from ade.tasks.outcomes import Deferred, Outcome
from ade.worker.messages import Request
from ade.worker.run import Run

if TYPE_CHECKING:
    import asyncio

    from ade.worker.approval_check import ApprovalChecker
    from ade.worker.capacity import AgentCapacity
    from ade.worker.child_pool import ProcessGroupRegistry
    from ade.worker.handler_call import PayloadReader
    from ade.worker.lease import LeaseThread
    from ade.worker.output_buffer import OutputBuffer
    from ade.worker.state import ClaimTrigger, WorkerState


Ended = tuple[Run, Outcome]


class Finished(NamedTuple):
    """What became of ended runs: the IDs of tasks that were returned to the queue, and outcomes that must be sent again
    later, because their part of the store does not respond.
    """

    released: Sequence[str]
    unanswered: Sequence[Ended] = ()


class LocksOfRuns(Protocol):
    """The locks that tasks declare, and those that runs acquire."""

    async def take(self, run: Run) -> Deferred | None:
        """Acquire all locks of the run's task, or return how the task waits for them."""

    def end(self, run: Run, then: Callable[[], None]) -> None:
        """Release the locks of a finished run, then call `then`."""

    async def all_left(self) -> None:
        """Wait until the locks of finished runs are released."""

    async def close(self) -> None: ...


class WorkerBackend(Protocol):
    """Where tasks come from and outcomes go: claim, renew, finish, and ask. The rest is setup and shutdown.

    Everything above is the same for every backend: the poller, the executor, the completer, and the lease thread.
    """

    name: str  # of the worker, in the backend
    waits: bool  # whether a claim waits for work; otherwise the worker waits for notifications and due times
    finishes_at_once: int  # 1: one call at a time, with all ended runs. More: concurrent calls
    finishes_together: int  # ended runs in one of several concurrent calls
    lease_check_s: float  # how often the event loop checks whether renewals hang
    state: "WorkerState"
    clock: Clock
    outputs: "OutputBuffer"
    payloads: "PayloadReader"
    locks: LocksOfRuns
    groups: "ProcessGroupRegistry | None"  # registry of child processes that must not outlive the worker
    gates: "ApprovalChecker | None"  # None: the server checks approvals before it hands a task out
    capacity: "AgentCapacity | None"  # of the worker's agent, if it is counted here

    # Running tasks

    async def claim(self, request: ClaimRequest, *, is_last: bool = False) -> Sequence[Task]:
        """Claim at most one task for each of these run IDs. Repeating a request returns the same tasks.

        The last claim of a worker only repeats: it returns nothing new. Raises AdeError.
        """

    def renew(self, held: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal:
        """Renew the leases of these runs (run ID -> task ID), and those of a claim in progress. Called by the lease
        thread. Raises AdeError.
        """

    async def finish(self, batch: Sequence[Ended]) -> Finished:
        """Record these outcomes, and return once each is answered. A lost response is requested again.

        If a part of the store does not respond while others do, its outcomes are returned to be sent again.
        """

    async def ask(self, run: Run, request: Request) -> Any:
        """Serve a request that a handler makes through its context, except output. Raises AdeError."""

    # Polling

    def follow(self, trigger: "ClaimTrigger") -> Callable[[], None]:
        """Notify the trigger about new work. Returns the function that unsubscribes."""

    def claim_pause_s(self, times: int) -> float:
        """Return the delay after this many failed claims in a row."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether a claim that failed with this error certainly claimed nothing."""

    async def next_due_s(self) -> float:
        """Return the seconds until a task can be claimed that no notification announces."""

    # Setup and shutdown

    async def register(self, stop: "asyncio.Event | None" = None) -> bool:
        """Register the worker. False if `stop` was set before that was possible. Raises AdeError."""

    async def open(self) -> None:
        """Prepare for the first run. Raises AdeError."""

    def jobs(self, lease: "LeaseThread") -> dict[str, Coroutine[Any, Any, None]]:
        """Return background jobs that run as long as the worker."""

    def guarded_at(self) -> float:
        """Return when the watchdog last renewed the leases instead of the lease thread, on the monotonic clock."""

    async def close(self) -> None:
        """Release everything else. No run is held and no handler runs."""

    async def deregister(self) -> None:
        """Remove the worker from the list. Never raises."""


# The options of a worker, apart from its handlers.


class WorkerOptions(WorkerSettings, frozen=True, kw_only=True):
    """The `worker` section of the settings, and options that are not settings.

    Times are seconds. Constraints between them are checked where settings are read.
    """

    cancel_grace_s: float = 5.0  # how long a handler has to end after it was told to
    # How long the watchdog renews runs without a timeout for a worker without heartbeats.
    guard_silence_s: float = 900.0
    lock_limits: LockLimits = LockLimits()  # for the locks of its runs
    deadlock_detection: bool = True

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def child_limit(self) -> int:
        """How many functions of mode `process` run concurrently."""
        return self.cpu_processes or os.cpu_count() or 1
