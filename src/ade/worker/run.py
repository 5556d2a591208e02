"""One run of a task in this worker: what it holds, and why it is being ended early, if it is."""

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

    TIMED_OUT = auto()  # fails, and may be tried again
    LOCK_LOST = auto()  # what it does is not protected any more: fails, and may be tried again
    SHUTDOWN = auto()  # is handed back
    CANCELLED = auto()  # the task was cancelled; nothing is written
    LOST = auto()  # the lease is gone; nothing is written


_NO_LOCKS: "dict[str, HeldLock]" = {}  # of a run that has none; never written to
MUTE = frozenset({StopReason.CANCELLED, StopReason.LOST})


class Killable(Protocol):
    """A process that runs the handler."""

    def kill(self) -> None: ...


class RunOwner(Protocol):
    """What executes a run: it ends it early, and detaches it if it does not end."""

    def stop(self, run: "Run", why: StopReason) -> None: ...


class Run:
    """A claimed task on its way. Lives on the event loop; `stop` is also read by the handler's thread."""

    __slots__ = (
        "alarm",
        "began",
        "child",
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
        "stop",
        "task",
        "until_ms",
        "withheld",
    )

    def __init__(self, task: Task, handler: Handler | None, owner: RunOwner | None = None) -> None:
        self.task = task
        self.owner = owner  # None: nothing executes it
        self.id = task.run_id or ""
        self.handler = handler  # None: this worker does not know the name
        self.mode = HandlerMode.ASYNC if handler is None else handler.mode
        self.stop: StopReason | None = None
        self.began = False  # its job has taken the first step
        self.finishing = False  # performed; its outcome waits to be committed
        self.detached = False  # did not end when told to; whatever it still does is ignored
        self.job: asyncio.Task[None] | None = None
        self.alarm: TimerEntry | None = None
        self.entry = b""  # its line on the slate, once it is held
        self.until_ms = 0  # monotonic: beyond it the run is hung for certain; 0 without a time-out
        self.owes_locks = bool(task.locks)  # what its task names must be let go of: it is held, or may be
        self.locks: dict[str, HeldLock] = _NO_LOCKS
        self.withheld: Withheld | None = None  # it met a gate, so that is how it ends
        self.child: Killable | None = None  # while it runs there: killed instead of its job being cancelled
        self.in_thread = False  # where it can only be told to end: its context says so

    @property
    def uses_locks(self) -> bool:
        """Whether there is something to let go of when it is over."""
        return bool(self.locks or self.owes_locks)

    @property
    def is_ending(self) -> bool:
        """Told to end, or performed."""
        return self.stop is not None or self.finishing

    @property
    def is_over(self) -> bool:
        """Nothing that it asks for from now on is its own."""
        return self.finishing or self.detached or self.stop in MUTE

    def abort(self, why: StopReason) -> None:
        """Have the owner end this run early."""
        if self.owner is not None:
            self.owner.stop(self, why)

    def end(self, why: StopReason) -> bool:
        """By its owner. A reason that forbids writing replaces one that does not; True if it is news."""
        if self.finishing or (self.stop is not None and (self.stop in MUTE or why not in MUTE)):
            return False
        self.stop = why
        if self.child is not None:
            self.child.kill()
        elif self.job is not None and not self.in_thread:
            self.job.cancel()
        return True


def lose_lock(run: Run) -> None:
    """End a run that nothing protects any more."""
    run.abort(StopReason.LOCK_LOST)
