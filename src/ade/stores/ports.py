"""The seam. Stores choose under contention, write and read; they never decide.

Every method may raise StoreUnavailable. Times are integer milliseconds. A store owns its clock, because on a server
the server's time counts; decisions are made with `Stores.clock.now()`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Raw, Struct

from ade.errors import StaleWrite
from ade.events.model import Event
from ade.stores.resource_ports import AgentStore, DocumentStore, InboxStore, LockStore
from ade.tasks.changes import Change
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Effect, OutputLine, Queue, Schedule, Task, Worker


class Clock(Protocol):
    def now(self) -> int:
        """Wall time in ms UTC: for records, due times and schedules."""

    def steady(self) -> int:
        """Time in ms that never jumps, the same for all users of the store: for leases and rates."""


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """Who claims what. `names` are the handlers the worker has; `queues` empty means every queue.

    A task that asks for capabilities goes only to who has all of them.
    """

    worker_id: str
    run_ids: Sequence[str]  # one fresh id for each task wanted; their number is the limit
    names: frozenset[str]
    queues: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    lease_ms: int = 30_000
    may_be_repeated: bool = True  # False: asked for the first time, so nobody needs to look for an earlier answer


class Renewal(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: the runs that are no longer the caller's, and what became of their tasks."""

    gone: Mapping[str, Status | None]  # run id -> the task's status now; None when the task is gone altogether


class TaskQuery(Struct, frozen=True, kw_only=True):
    """Which tasks to list, newest first unless `oldest_first`. All conditions must hold. `after` is a cursor."""

    statuses: frozenset[Status] = frozenset()
    queue: str | None = None
    name: str | None = None
    tag: str | None = None
    resource: str | None = None  # that it names: what it changes or locks
    parent_id: str | None = None
    author_id: str | None = None
    worker_id: str | None = None
    text: str | None = None  # in the description, the name or the error's message
    created_from: int | None = None
    created_before: int | None = None
    discarded: bool | None = None
    oldest_first: bool = False
    after: int | None = None
    limit: int = 50


class TaskPage(Struct, frozen=True):
    tasks: list[Task]
    next: int | None  # cursor for the following page, or None at the end


class StatusCount(Struct, frozen=True):
    """How many tasks of a queue and name have a status. Kept up to date by every commit, read in one step."""

    queue: str
    name: str
    status: Status
    count: int


class TaskStore(Protocol):
    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        """Keep new tasks, all or none, and ring WORK. A known idempotency key changes nothing and returns the earlier
        task.

        Raises IdempotencyConflict (same key, other arguments), UnknownDependency, DiskFull, and QueueFull, but not for
        tasks of the source SYSTEM: they take room, and need none.
        """

    async def claim(self, request: ClaimRequest) -> list[Task]:
        """Hand over due tasks, by priority, then age, as running with a lease. Never waits.

        No task goes to two callers. Paused queues, limits by name and by key are respected. One unreadable record
        is set aside and never keeps the others back.
        """

    async def commit(self, *changes: Change) -> None:
        """Write all of these or none. Raises StaleWrite (StaleLease for a run's own write) if a guard fails.

        Dependents of tasks that become final are released or marked broken in the same write; when that puts tasks
        in line, WORK is rung.
        """

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        """Write each change whose guard holds, together; answer for each one. A repeated own write is no error."""

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        """The tasks in the order asked; None for those that do not exist."""

    async def find(self, query: TaskQuery) -> TaskPage:
        """List tasks, page by page."""

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        """Keep a run's newest progress. Raises StaleLease when the run no longer holds the task."""


class DueTasks(Struct, frozen=True, kw_only=True):
    """Tasks a sweep must decide on. Each list is bounded by the limit that was asked for."""

    expired: list[Task] = []  # running, lease ran out
    overdue: list[Task] = []  # pending or stalled, deadline passed
    broken: list[tuple[Task, tuple[str, ...]]] = []  # pending, with the dependencies that did not complete
    handed_in: list[tuple[Task, bytes]] = []  # running, with what a worker that decides nothing said of its end


class SweepStore(Protocol):
    async def due(self, limit: int) -> DueTasks:
        """What is due for a decision now."""

    async def next_due(self) -> int | None:
        """When the earliest delayed task becomes due, or None."""

    async def take_duty(self, duty: str, holder: str, ttl_ms: int) -> bool:
        """Become (or stay) the one process that performs a duty for the next `ttl_ms`."""

    async def jobs(self) -> Mapping[str, int]:
        """Until when each duty is taken, by the steady clock; those that nobody performs any more too."""

    async def finished_before(self, moment: int, limit: int, *, dead_letters: int | None = None) -> list[Task]:
        """Final tasks that ended before the moment, oldest first: candidates for archive and pruning.

        Dead letters nobody has dealt with are listed only if they ended before the moment `dead_letters`.
        """

    async def prune(self, task_ids: Sequence[str]) -> int:
        """Remove final tasks and all that belongs to them. Tasks that are no longer final stay."""

    async def expire_results(self, limit: int) -> int:
        """Forget results older than their result_ttl; the records stay."""

    async def remove_orphans(self, older_than_ms: int, limit: int) -> int:
        """Remove blobs of this age whose task does not exist: whoever put or pruned it has died half-way.

        Answers how many, `limit` at most or a little more.
        """


class WorkerStore(Protocol):
    async def register(self, worker: Worker, definitions: Sequence[Definition], ttl_ms: int) -> None:
        """Make the worker and its task definitions known; also the first heartbeat."""

    def renew(self, worker: Worker, runs: Mapping[str, str], *, lease_ms: int) -> Renewal:
        """Extend the leases of these runs (run id -> task id) and the worker's own in one write.

        Answers which of the runs are gone. A run whose lease ran out but was not yet taken away is renewed.

        Blocking, on a connection of its own: called from the worker's lease thread, never from an event loop.
        """

    async def deregister(self, worker_id: str) -> None:
        """Forget a worker that has handed back everything."""

    async def list_workers(self) -> list[Worker]:
        """All known workers, the silent ones too."""

    async def forget_silent(self) -> list[str]:
        """Remove workers that have been silent for long and hold no running task; answer their ids."""

    async def definitions(self) -> list[Definition]:
        """What workers have registered so far, by name."""


class QueueStore(Protocol):
    async def list_queues(self) -> list[Queue]:
        """Every queue that was ever used or configured."""

    async def configure(self, queue: Queue, event: Event | None = None) -> None:
        """Create or change a queue's switch and limits, and enter the event that tells of it."""

    async def tallies(self) -> list[StatusCount]:
        """The number of tasks by queue, name and status, in one short step."""

    async def oldest_ready(self) -> Mapping[str, int]:
        """For each queue with ready tasks: when the oldest of them became due."""

    async def count_delayed(self) -> int:
        """How many tasks are in no line because they are not due yet."""

    async def running_by_key(self, name: str, key: str) -> list[str]:
        """Ids of the running tasks of this name that share a concurrency key."""

    async def rate_full_at(self, name: str) -> int:
        """The stored GCRA state of a name's rate limit (microseconds of steady time), 0 when untouched."""

    async def ahead_of(self, task_id: str) -> int:
        """How many ready tasks of the same queue would be claimed before this one (counted up to 10,000)."""


class EventLog(Protocol):
    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        """Events with a seq above `after`, in order; those of one task if asked."""

    async def newest(self, limit: int) -> list[Event]:
        """The newest events, in order. Seqs may have gaps, so only the log itself can tell where these begin."""

    async def last_seq(self) -> int:
        """The newest seq, 0 when the log is empty."""

    async def advance(self, name: str, seq: int) -> None:
        """Remember how far a named reader has come. Never moves back."""

    async def cursors(self) -> Mapping[str, int]:
        """How far each named reader has come. A reader that never advanced is not in it."""

    async def trim(self, before_ms: int, limit: int) -> int:
        """Remove events older than this of tasks that are gone, never past any cursor. Answers how many."""


class EffectStore(Protocol):
    async def begin(self, key: str, run_id: str) -> Effect:
        """Enter the effect as begun by this run, or return what the ledger already has under the key."""

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        """Record that the effect is done. Raises StaleLease if the ledger names another run."""

    async def forget(self, key: str) -> None:
        """Remove an entry, so that the effect may be performed again."""

    async def prune_effects(self, before_ms: int, limit: int) -> int:
        """Forget effects done before this moment; those of unknown end stay. Answers how many."""

    async def is_live(self, run_id: str) -> bool:
        """Whether some task is running under this run id."""


class OutputStore(Protocol):
    async def append(self, lines: Sequence[OutputLine]) -> None:
        """Keep lines a run wrote, up to a bound per run; what is beyond is cut with a visible mark."""

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        """Lines with a seq above `after`, in order."""


class ScheduleStore(Protocol):
    async def put(self, schedule: Schedule, event: Event | None = None, *, seen: Schedule | None = None) -> bool:
        """Create or replace a schedule, and enter the event that records it.

        With `seen`, only if the stored schedule still has its next firing, pause and time of change. Returns False
        otherwise, with nothing written.
        """

    async def list_schedules(self, due_by: int | None = None) -> list[Schedule]:
        """All schedules by name. With `due_by`, those that are not paused and due by then, the earliest first."""

    async def remove(self, name: str, event: Event | None = None) -> bool:
        """Delete a schedule, and enter the event that tells of it; False when there is none."""


class BlobStore(Protocol):
    async def put_blob(self, ref: str, content: bytes) -> None:
        """Keep content durably under this name before the record that names it is written."""

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of tasks that are gone or never came to be."""

    async def get_blob(self, ref: str) -> bytes:
        """The content. Raises StoreCorrupt when it is missing or does not match its digest."""


class StoreHealth(Struct, frozen=True, kw_only=True):
    """What `doctor` shows of a store."""

    facts: dict[str, object]
    warnings: list[str]


class MaintenanceStore(Protocol):
    async def check_invariants(self) -> list[str]:
        """Every broken invariant in a sentence; empty when all hold."""

    async def health(self, *, thorough: bool = True) -> StoreHealth:
        """Versions, sizes, settings in force, and what deserves attention. What takes longer the more there is, such as
        reading a whole file, is left out unless `thorough`."""

    async def checkpoint(self) -> None:
        """Housekeeping of the files; logs an alarm when they grow past their bounds."""

    def backup(self, target: str) -> AsyncIterator[tuple[int, int]]:
        """Copy the store in steps while it is in use; yields (done, total)."""


class Wakeups(Protocol):
    """Wake-ups. A hint may be lost or come for nothing; whoever waits also looks by itself now and then."""

    def ring(self, topic: str) -> None:
        """Tell all processes that something of this topic happened: work, stop or done."""

    def generation(self, topic: str) -> int:
        """A number that has grown if the topic was rung. Read it before looking, wait with it afterwards."""

    def lag_s(self, topic: str) -> float:
        """Every ring that is older than this many seconds is counted by `generation`; for any thread.

        The first call subscribes. Infinite while rings may be lost: then the caller has to look by itself.
        """

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        """Return when the topic was rung after `seen` was read, or after the time-out (seconds)."""

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the running loop whenever the topic is rung, until what this answers is called.

        Without `wait`, nobody looks by himself: the caller does that too.
        """

    async def listen(self) -> None:
        """Listen on the running loop until cancelled, where that wakes those who wait on it sooner.

        For a loop that is there to wait, as a worker's is; otherwise hints are heard beside all loops.
        """


class BlockingInserts(Protocol):
    """Storing new tasks without an event loop, by the thread that calls."""

    def add(self, tasks: Sequence[Task]) -> list[Task] | None:
        """The same as TaskStore.add, and rings for work.

        None when it must be done on an event loop: then give `TaskStore.add` the very same tasks, because they may be
        stored already.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Everything one store offers, as opened by the composition root."""

    tasks: TaskStore
    sweeps: SweepStore
    workers: WorkerStore
    queues: QueueStore
    events: EventLog
    effects: EffectStore
    outputs: OutputStore
    schedules: ScheduleStore
    blobs: BlobStore
    locks: LockStore
    agents: AgentStore
    documents: DocumentStore
    inboxes: InboxStore
    maintenance: MaintenanceStore
    wakeups: Wakeups
    clock: Clock
    blocking: BlockingInserts | None = None  # where the store can do without an event loop

    async def close(self) -> None:
        """Finish what is being written and release the store."""
        await self.closer()

    closer: "Closer"


class Closer(Protocol):
    async def __call__(self) -> None: ...


# Topics of hints.
WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX = "work", "stop", "done", "lock", "agent", "rules", "inbox"
