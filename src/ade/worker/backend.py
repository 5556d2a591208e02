"""Where a worker's tasks come from and where their outcomes go: the store itself, or a server over HTTP."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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


class LocksOfRuns(Protocol):
    """The locks that tasks name, and those that runs acquire."""

    async def take(self, run: Run) -> Deferred | None:
        """Everything the task of this run names, or how it waits for that."""

    def end(self, run: Run, then: Callable[[], None]) -> None:
        """The run is over: release its locks, then call this."""

    async def all_left(self) -> None:
        """Wait until the locks of runs that are over are released."""

    async def close(self) -> None: ...


class WorkerBackend(Protocol):
    """Four verbs carry the work: claim, renew, finish, ask. The rest is setup and shutdown.

    Everything above is the same for every backend: the poller, the executor, the completer, and the lease thread.
    """

    name: str  # of the worker, as the backend knows it
    waits: bool  # whether a claim waits for work by itself; otherwise the worker waits for hints and due times
    finishes_at_once: int  # 1: one call at a time, for all that ended meanwhile. More: a call for each outcome
    lease_check_s: float  # how often the event loop looks whether renewals hang
    state: "WorkerState"
    clock: Clock
    outputs: "OutputBuffer"
    payloads: "PayloadReader"
    locks: LocksOfRuns
    groups: "ProcessGroupRegistry | None"  # where child processes are noted that must not outlive the worker
    gates: "ApprovalChecker | None"  # None: the server checks approvals before it hands a task out
    capacity: "AgentCapacity | None"  # of the agent the worker works for, if it is counted here

    # the four verbs

    async def claim(self, request: ClaimRequest, *, is_last: bool = False) -> Sequence[Task]:
        """Claim a task for each of these run ids at most. Repeating a request returns the same tasks.

        The last claim of a worker only repeats: it returns nothing new. Raises AdeError.
        """

    def renew(self, held: Mapping[str, str]) -> Renewal:
        """Keep the leases of these runs (run id -> task id). Called by the lease thread. Raises AdeError."""

    async def finish(self, batch: Sequence[Ended]) -> list[str]:
        """Record these outcomes, and return when there is an answer for each. A lost reply is asked for again.

        Returns the ids of the tasks that were handed back.
        """

    async def ask(self, run: Run, request: Request) -> Any:
        """Answer a request that a handler makes through its context, apart from output. Raises AdeError."""

    # polling

    def follow(self, trigger: "ClaimTrigger") -> Callable[[], None]:
        """Notify the trigger about new work. Returns the function that unsubscribes."""

    def claim_pause_s(self, times: int) -> float:
        """How long to wait after a claim has failed this many times before."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether a claim that failed with this error certainly claimed nothing."""

    async def next_due_s(self) -> float:
        """Seconds until a task may be claimed that no notification announces."""

    # setup and shutdown

    async def register(self, stop: "asyncio.Event | None" = None) -> bool:
        """Register the worker. False if `stop` was set before that was possible. Raises AdeError."""

    async def open(self) -> None:
        """Before the first run. Raises AdeError."""

    def jobs(self, lease: "LeaseThread") -> dict[str, Coroutine[Any, Any, None]]:
        """Background jobs that run as long as the worker."""

    def guarded_at(self) -> float:
        """When the watchdog last renewed the leases in place of the lease thread, by the monotonic clock."""

    async def close(self) -> None:
        """Release everything else. No run is held and no handler runs."""

    async def deregister(self) -> None:
        """Remove the worker from the list. Never raises."""


# What a worker is told about itself, apart from the handlers it has.


class WorkerOptions(WorkerSettings, frozen=True, kw_only=True):
    """The `worker` section of the settings as it is, and what is not a setting.

    Times are seconds. The rules between them are checked where settings are read.
    """

    cancel_grace_s: float = 5.0  # how long a handler may take to end once it was told to
    guard_silence_s: float = 900.0  # the guardian keeps a silent worker's runs without a time-out for so long
    lock_limits: LockLimits = LockLimits()  # for what its runs lock
    deadlock_detection: bool = True

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def child_limit(self) -> int:
        """How many functions of mode `process` run at once."""
        return self.cpu_processes or os.cpu_count() or 1
