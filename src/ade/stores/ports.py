"""Ports of a store: the protocols that every backend implements, and their request and result types.

Stores arbitrate between concurrent callers, write, and read; they never make decisions. Every method can raise
StoreUnavailable. Times are integer milliseconds. A store owns its clock, because a Redis store uses the time of its
server; decisions use `Stores.clock.now()`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw, Struct

from ade.errors import StaleWrite, StoreUnavailable
from ade.events.model import Event
from ade.stores.resource_ports import AgentStore, DocumentStore, InboxStore, LockStore
from ade.tasks.changes import Change
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Effect, OutputLine, Queue, Schedule, Task, Worker

if TYPE_CHECKING:
    from ade.tasks.read_access import ReadScope


class Clock(Protocol):
    """The clock of a store."""

    def now(self) -> int:
        """Wall time in ms UTC, for records, due times, and schedules."""

    def steady(self) -> int:
        """Time in ms that is the same for all users of the store, for leases and rate limits. It never jumps on SQLite;
        the clock of a Redis server can be set.
        """

    def judged(self, lease_ms: int) -> int:
        """The steady time by which leases of this length are judged: an earlier one while the clock is not verified."""


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """A claim by a worker. `names` are its task handlers; empty `queues` means every queue.

    A task that requires capabilities is claimed only by a worker that has all of them.
    """

    worker_id: str
    run_ids: Sequence[str]  # one new ID per requested task; their number is the limit
    names: frozenset[str]
    queues: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    lease_ms: int = 30_000
    may_be_repeated: bool = True  # False: the first attempt, so there is no earlier response to look up


class Renewal(Struct, frozen=True, kw_only=True):
    """The response to a heartbeat: the runs whose lease the caller has lost, with the status of their tasks."""

    gone: Mapping[str, Status | None]  # run ID -> current task status; None if the task was deleted
    error: Exception | None = None  # why some runs were not renewed, although others were
    unreached: Collection[str] = ()  # run IDs whose part of the store did not respond, while others did

    def complete(self) -> "Renewal":
        """Return this renewal. Raises StoreUnavailable if a part of the store did not respond."""
        if self.unreached:
            raise StoreUnavailable(f"a part of the store does not respond, so {len(self.unreached)} leases may expire")
        return self


class TaskQuery(Struct, frozen=True, kw_only=True):
    """Filters of a task list, newest first unless `oldest_first`. All must match. `after` is a cursor."""

    statuses: frozenset[Status] = frozenset()
    queue: str | None = None
    name: str | None = None
    tag: str | None = None
    resource: str | None = None  # that the task changes or locks
    parent_id: str | None = None
    author_id: str | None = None
    team: str | None = None
    ticket_ref: str | None = None
    worker_id: str | None = None
    text: str | None = None  # in the ID, name, description, or error message
    created_from: int | None = None
    created_before: int | None = None
    discarded: bool | None = None
    oldest_first: bool = False
    after: int | None = None
    limit: int = 50
    scope: "ReadScope | None" = None  # only tasks that this limited account reads; None: all
    budget: int | None = None  # most tasks to examine for filters without an index; the page is then partial


class TaskPage(Struct, frozen=True):
    """One page of a task list."""

    tasks: list[Task]
    next: int | None  # cursor of the next page, or None at the end
    is_partial: bool = False  # the budget was used up: there can be more matches, also if the page is not full
    examined: int = 0  # by a scan: with those that do not match


class StatusCount(Struct, frozen=True):
    """The number of tasks by queue, name, and status. Every commit updates it, so reading it is cheap."""

    queue: str
    name: str
    status: Status
    count: int


class TaskStore(Protocol):
    """Adds, claims, changes, and reads tasks."""

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        """Store new tasks, all or none, and send a WORK wake-up. A known idempotency key returns the earlier task.

        Raises IdempotencyConflict (same key, other arguments), UnknownDependency, DiskFull, and QueueFull. Tasks of
        the source SYSTEM count toward the queue depth but are never rejected with QueueFull.
        """

    async def claim(self, request: ClaimRequest) -> list[Task]:
        """Claim due tasks by priority, then age: they become running, with a lease. Never waits.

        No task goes to two callers. Paused queues and the limits by name and key are respected. An unreadable record
        is quarantined and never holds back the others.
        """

    async def commit(self, *changes: Change) -> None:
        """Write all changes or none. Raises StaleWrite (StaleLease for a write by a run) if a guard fails.

        The same write unblocks the dependents of tasks that become final, or marks them broken. If tasks become
        claimable, a WORK wake-up is sent.
        """

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        """Write every change whose guard holds in one write; returns an error or None for each.

        A run that repeats its own write gets no error.
        """

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        """Return the tasks in the given order; None for those that do not exist."""

    async def find(self, query: TaskQuery) -> TaskPage:
        """List tasks, page by page."""

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        """Store the latest progress of a run. Raises StaleLease if the run has lost the task."""


class DueTasks(Struct, frozen=True, kw_only=True):
    """Tasks that a sweep must decide on. Each list is at most as long as the requested limit."""

    expired: list[Task] = []  # running, and the lease has expired
    overdue: list[Task] = []  # pending or stalled, past the deadline
    broken: list[tuple[Task, tuple[str, ...]]] = []  # waiting, with the dependencies that did not complete
    handed_in: list[tuple[Task, bytes]] = []  # running, with the result reported by a worker that does not decide


class SweepStore(Protocol):
    """What the periodic sweep of tasks needs: due tasks, leases on jobs, and the deletion of old tasks."""

    async def due(self, limit: int) -> DueTasks:
        """Return the tasks that are due for a decision now."""

    async def next_due(self) -> int | None:
        """Return when the earliest delayed task becomes due, or None."""

    async def take_duty(self, duty: str, holder: str, ttl_ms: int) -> bool:
        """Acquire or renew the lease on a maintenance job for `ttl_ms`; only one process holds it."""

    async def jobs(self) -> Mapping[str, int]:
        """Return when the lease on each maintenance job expires, by the steady clock, including expired leases."""

    async def finished_before(
        self, moment: int, limit: int, *, dead_letters: int | None = None, governed: int | None = None
    ) -> list[Task]:
        """Return final tasks that finished before the moment, oldest first: candidates for archiving and pruning.

        Dead letters that were not discarded are listed only if they finished before the moment `dead_letters`, and
        governed tasks only if they finished before the moment `governed`. `is_past_retention` is the same rule.
        """

    async def prune(self, task_ids: Sequence[str]) -> int:
        """Delete final tasks and everything that belongs to them. Tasks that are no longer final stay."""

    async def expire_results(self, limit: int) -> int:
        """Delete results older than their result_ttl. The task records stay."""

    async def remove_orphans(self, older_than_ms: int, limit: int) -> int:
        """Remove blobs of this age whose task does not exist: the process that stored or pruned it crashed halfway.

        Returns how many, which can be slightly more than `limit`.
        """


class WorkerStore(Protocol):
    """Registers workers, renews their leases, and keeps their task definitions."""

    async def register(self, worker: Worker, definitions: Sequence[Definition], ttl_ms: int) -> None:
        """Register the worker and its task definitions. This is also the first heartbeat."""

    def renew(self, worker: Worker, runs: Mapping[str, str], *, lease_ms: int, claiming: Sequence[str] = ()) -> Renewal:
        """Renew the leases of these runs (run ID -> task ID) and of the worker in one write.

        Returns the runs that are lost. A run whose lease has expired but was not yet reclaimed is renewed. `claiming`
        are the run IDs of a claim in progress: those that hold a task by now are renewed, and none counts as lost.

        Blocking, on a separate connection: called from the lease thread of the worker, never from an event loop.
        """

    async def deregister(self, worker_id: str) -> None:
        """Remove a worker that has returned all its tasks."""

    async def list_workers(self) -> list[Worker]:
        """Return all registered workers, including lost ones."""

    async def forget_silent(self) -> list[str]:
        """Remove workers that have been lost for long and hold no running task; returns their IDs."""

    async def definitions(self) -> list[Definition]:
        """Return the task definitions that workers have registered, by name."""


class QueueStore(Protocol):
    """Queues: their configuration, and counts and positions of their tasks."""

    async def list_queues(self) -> list[Queue]:
        """Return every queue that was ever used or configured."""

    async def configure(self, queue: Queue, event: Event | None = None) -> None:
        """Create or update the pause state and limit of a queue, and write the event that records it."""

    async def tallies(self) -> list[StatusCount]:
        """Return the number of tasks by queue, name, and status, in one cheap read."""

    async def oldest_ready(self) -> Mapping[str, int]:
        """Return when the oldest ready task became due, for each queue with ready tasks."""

    async def count_delayed(self) -> int:
        """Return the number of tasks that cannot be claimed because they are not due yet."""

    async def running_by_key(self, name: str, key: str) -> list[str]:
        """Return the IDs of running tasks with this name and concurrency key."""

    async def rate_full_at(self, name: str) -> int:
        """Return the GCRA state of the rate limit of a name (microseconds of steady time); 0 if unused."""

    async def ahead_of(self, task_id: str) -> int:
        """Return how many ready tasks of the same queue would be claimed before this one (up to 10,000)."""


class EventLog(Protocol):
    """The ordered event log, with a cursor for each named reader."""

    async def read(self, after: int, limit: int, *, task_id: str | None = None) -> list[Event]:
        """Return events with a seq above `after`, in order; with `task_id`, only events of that task."""

    async def newest(self, limit: int) -> list[Event]:
        """Return the newest events, in order. Seqs can have gaps, so a caller cannot compute where these begin."""

    async def last_seq(self) -> int:
        """Return the newest seq; 0 if the log is empty."""

    async def advance(self, name: str, seq: int) -> None:
        """Store the cursor of a named reader. It never moves back."""

    async def cursors(self) -> Mapping[str, int]:
        """Return the cursor of each named reader, without readers that never advanced."""

    async def trim(self, before_ms: int, limit: int) -> int:
        """Remove events older than this whose task was deleted, never past any cursor. Returns how many."""


class EffectStore(Protocol):
    """The ledger of external effects that must happen only once."""

    async def begin(self, key: str, task_id: str, run_id: str) -> Effect:
        """Record the effect as begun by this run, or return the existing entry of the key.

        Raises StaleLease, and records nothing, if the run does not hold the task.
        """

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        """Record that the effect is done. Raises StaleLease if the entry belongs to another run."""

    async def forget(self, key: str) -> None:
        """Remove an entry, so that the effect can be performed again."""

    async def prune_effects(self, before_ms: int, limit: int) -> int:
        """Delete effects that were done before this moment and whose task no longer exists. Returns how many.

        Looks at no more than `limit` of them. Those whose task exists count as changed now, so that later calls reach
        the others. Unfinished effects stay.
        """

    async def is_live(self, task_id: str, run_id: str) -> bool:
        """Return whether this run holds the task."""


class OutputStore(Protocol):
    """Output lines of runs."""

    async def append(self, lines: Sequence[OutputLine]) -> None:
        """Store output lines of runs, up to a limit per run, where a visible mark replaces the rest."""

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        """Return lines with a seq above `after`, in order."""


class ScheduleStore(Protocol):
    """Cron schedules and their next firing."""

    async def put(self, schedule: Schedule, event: Event | None = None, *, seen: Schedule | None = None) -> bool:
        """Create or replace a schedule, and write the event that records it.

        With `seen`, only if next firing, pause state, and update time of the stored schedule are unchanged. Otherwise
        nothing is written and it returns False.
        """

    async def list_schedules(self, due_by: int | None = None) -> list[Schedule]:
        """Return all schedules by name. With `due_by`, only active ones that are due by then, earliest first."""

    async def remove(self, name: str, event: Event | None = None) -> bool:
        """Delete a schedule and write the event that records it. Returns False if it does not exist."""


class BlobStore(Protocol):
    """Large arguments and results, stored outside the task records."""

    async def put_blob(self, ref: str, content: bytes) -> None:
        """Store content durably under this name, before the record that refers to it is written."""

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of tasks that were deleted or never created."""

    async def get_blob(self, ref: str) -> bytes:
        """Return the content. Raises StoreCorrupt if it is missing or does not match its digest."""


class StoreHealth(Struct, frozen=True, kw_only=True):
    """The state of a store, as `ade doctor` prints it."""

    facts: dict[str, object]
    warnings: list[str]


class UpgradedStore(Struct, frozen=True, kw_only=True):
    """What an upgrade did: the schema versions before and after it, and the copy of the store as it was."""

    before: int
    after: int
    copy: str | None = None  # None if there was nothing to do


class MaintenanceStore(Protocol):
    """Care of the store itself: its health, files, backups, and invariants."""

    has_keys: bool  # whether other programs can replace single keys, so that these must be checked often

    async def check_invariants(self) -> list[str]:
        """Return a message for every broken invariant; empty if all hold."""

    async def health(self, *, thorough: bool = True) -> StoreHealth:
        """Return versions, sizes, effective settings, and warnings.

        Checks whose duration grows with the data, such as reading a whole file, run only if `thorough`.
        """

    async def checkpoint(self, *, only_keys: bool = False) -> None:
        """Run file maintenance; logs a warning if files exceed their limits. A store with keys repairs or reports those
        that another program has replaced, with `only_keys` nothing else.
        """

    async def check_writable(self) -> None:
        """Check that the store responds, and is still the one that was opened. A store in a file is also written to.

        Raises StoreReplaced, StoreTooNew, and other store errors.
        """

    def backup(self, target: str) -> AsyncIterator[tuple[int, int]]:
        """Copy the store in steps while it is in use. Yields (done, total)."""


class Wakeups(Protocol):
    """Wake-ups between processes. They can be lost or spurious, so every waiter also polls now and then."""

    # How long a cached value can be used while the part of the store that has it does not respond; 0: not at all.
    tolerance_s: float
    announced: dict[str, int]  # wake-ups that arrived, by topic; `generation` also counts possibly missed ones

    def notify(self, topic: str) -> None:
        """Send a wake-up for a topic to all processes."""

    def generation(self, topic: str) -> int:
        """Return a counter that increases with every wake-up. Read it before you poll, then pass it to `wait`."""

    def lag_s(self, topic: str) -> float:
        """Return the delay: `generation` counts every wake-up older than this many seconds. For any thread.

        The first call subscribes. Infinite while changes might be missed: then the caller must poll.
        """

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        """Return after a wake-up newer than `seen`, or after the timeout (seconds)."""

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the running loop at every wake-up of the topic. Returns a function that unsubscribes.

        There is no polling as in `wait`: the caller must poll as well.
        """

    async def listen(self) -> None:
        """Receive wake-ups on the running loop until cancelled, where that reaches its waiters sooner.

        For a loop that mostly waits, such as that of a worker. Otherwise a separate thread receives wake-ups.
        """


class BlockingInserts(Protocol):
    """Stores new tasks in the calling thread, without an event loop."""

    def add(self, tasks: Sequence[Task]) -> list[Task] | None:
        """The same as TaskStore.add, including the WORK wake-up.

        Returns None if it must run on an event loop: then pass the same tasks to `TaskStore.add`, because they might
        already be stored.
        """


class Stores(Struct, frozen=True, kw_only=True):
    """All parts of one open store, as assembled by `ade.composition`."""

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
    blocking: BlockingInserts | None = None  # None if the store needs an event loop
    id: str = ""  # tells a store from another one at the same location; "" if unknown

    async def close(self) -> None:
        """Finish pending writes and close the store."""
        await self.closer()

    closer: Callable[[], Awaitable[None]]


# Topics of wake-ups.
WORK, STOP, DONE, LOCK, AGENT, RULES, INBOX = "work", "stop", "done", "lock", "agent", "rules", "inbox"
LOST = "lost"  # a lock was released by force: its holder must find out now
