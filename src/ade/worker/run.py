"""One run of a task in this worker: its state, and why it is ended early."""

import asyncio
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Protocol

from ade.tasks.handlers import Handler, HandlerMode
from ade.tasks.model import Task
from ade.tasks.outcomes import Withheld
from ade.worker.timer import TimerEntry

if TYPE_CHECKING:
    from ade.locks.holder import HeldLock


class StopReason(StrEnum):
    """Why a run is told to end before it is done."""

    TIMED_OUT = auto()  # fails, and can be retried
    LOCK_LOST = auto()  # its work is no longer protected: fails, and can be retried
    SHUTDOWN = auto()  # is returned to the queue
    UNREACHABLE = auto()  # the store did not renew the lease in time: is returned to the queue once the store responds
    CANCELLED = auto()  # the task was cancelled; nothing is written
    LOST = auto()  # the lease is gone; nothing is written


_NO_LOCKS: "dict[str, HeldLock]" = {}  # of a run without locks; never written to
MUTE = frozenset({StopReason.CANCELLED, StopReason.LOST})


class Killable(Protocol):
    """A process that runs the handler."""

    def kill(self) -> None: ...


class RunOwner(Protocol):
    """The executor of a run: ends it early, and detaches it if it does not end."""

    def stop(self, run: "Run", why: StopReason) -> None: ...


class Run:
    """A claimed task in progress. Lives on the event loop; `stop` is also read by the handler's thread."""

    __slots__ = (
        "alarm",
        "began",
        "child",
        "claimed_ms",
        "detached",
        "entry",
        "finishing",
        "handler",
        "id",
        "in_thread",
        "job",
        "locks",
        "mode",
        "owes_locks",
        "owner",
        "place",
        "stop",
        "task",
        "until_ms",
        "withheld",
    )

    def __init__(self, task: Task, handler: Handler | None, owner: RunOwner | None = None) -> None:
        self.task = task
        self.owner = owner  # None: nothing executes it
        self.id = task.run_id or ""
        self.handler = handler  # None: this worker has no such task
        self.mode = HandlerMode.ASYNC if handler is None else handler.mode
        self.stop: StopReason | None = None
        self.began = False  # its job has started
        self.finishing = False  # the handler is done; its outcome waits to be committed
        self.detached = False  # did not end when told to; anything it still does is ignored
        self.job: asyncio.Task[None] | None = None
        self.alarm: TimerEntry | None = None
        self.entry = b""  # its entry on the shared lease page, once it is held
        self.place = 0  # of that entry
        self.claimed_ms = 0  # monotonic: when its claim was sent
        self.until_ms = 0  # monotonic: after this time the run certainly hangs; 0 without a timeout
        self.owes_locks = bool(task.locks)  # its task's locks must be released: they are held, or may be
        self.locks: dict[str, HeldLock] = _NO_LOCKS
        self.withheld: Withheld | None = None  # set when the run must wait for approval: that is its outcome
        self.child: Killable | None = None  # while it runs there: the process is killed instead of cancelling the job
        self.in_thread = False  # cannot be cancelled there: its context tells it to end

    @property
    def uses_locks(self) -> bool:
        """Whether there are locks to release at its end."""
        return bool(self.locks or self.owes_locks)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, or is done."""
        return self.stop is not None or self.finishing

    @property
    def is_over(self) -> bool:
        """Whether it no longer holds its task, so that its requests must be rejected."""
        return self.finishing or self.detached or self.stop in MUTE

    def abort(self, why: StopReason) -> None:
        """Have the owner end this run early."""
        if self.owner is not None:
            self.owner.stop(self, why)

    def end(self, why: StopReason) -> bool:
        """End the run; called by its owner. A reason that forbids writing replaces one that allows it. True if it
        changed.
        """
        if self.finishing or (self.stop is not None and (self.stop in MUTE or why not in MUTE)):
            return False
        self.stop = why
        if self.child is not None:
            self.child.kill()
        elif self.job is not None and not self.in_thread:
            self.job.cancel()
        return True


def lose_lock(run: Run) -> None:
    """End a run whose work is no longer protected by a lock."""
    run.abort(StopReason.LOCK_LOST)
