"""The records of the task store: tasks, definitions, queues, workers, schedules, effects, and output lines.

Records are plain values. Their rules and transitions are in `lifecycle`, `admission`, and `decisions`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from ade.approvals.model import Review
from ade.errors import AdeError
from ade.failures import Backoff, TaskError
from ade.locks.model import DEFAULT_PRIORITY, LockSpec
from ade.tasks.lifecycle import FINAL, Status

# Unparsed JSON, or None. msgspec cannot decode a union with Raw, but it leaves an absent field at None.
if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw

DEFAULT_QUEUE = "default"


class AfterFailure(StrEnum):
    """What becomes of a task when one it waits for does not complete."""

    CANCEL = auto()
    FAIL = auto()
    RUN = auto()


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of work. Times are milliseconds UTC, over HTTP text; `args` and `result` are JSON as it was given."""

    # identity
    id: str
    name: str
    queue: str = DEFAULT_QUEUE
    args: Raw = Raw(b"{}")
    description: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = DEFAULT_PRIORITY
    idempotency_key: str | None = None
    args_digest: str | None = None  # distinguishes a repeated request from a reuse of its key
    parent_id: str | None = None
    depends_on: tuple[str, ...] = ()
    after_failure: AfterFailure = AfterFailure.CANCEL
    source: str = "user"
    author_id: str | None = None
    author_name: str | None = None
    team: str | None = None
    ticket_ref: str | None = None
    trace: str | None = None
    # timing
    run_after: int = 0
    deadline: int | None = None
    timeout_ms: int | None = None
    max_attempts: int = 3
    backoff: Backoff = Backoff()
    result_ttl_ms: int | None = None
    concurrency_key: str | None = None
    locks: tuple[LockSpec, ...] = ()  # a run holds all of them, or does not start
    needs: tuple[str, ...] = ()  # sorted: capabilities that its worker must have, all of them
    # governance
    resources: tuple[str, ...] = ()  # what it changes, by the names that locks have too
    rollback: str | None = None
    digest: str | None = None
    risk: dict[str, Any] | None = None
    preview: MaybeRaw = None
    review: Review | None = None
    # state
    status: Status = Status.PENDING
    version: int = 1
    generation: int = 1
    attempt: int = 0
    run_id: str | None = None  # of the current or the last run
    worker_id: str | None = None
    lease_until: int | None = None
    waiting_on: int = 0  # dependencies not yet final
    timeouts: int = 0
    throttles: int = 0
    reschedules: int = 0  # of a task with locks: its lock requests from before no longer count
    discarded: bool = False
    progress: MaybeRaw = None
    # times
    created_at: int = 0
    updated_at: int = 0
    submitted_at: int | None = None
    approved_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    # outcome
    result: MaybeRaw = None
    result_expired: bool = False
    error: TaskError | None = None
    reason: str | None = None  # why it was cancelled, rejected or discarded
    exit_code: int | None = None
    output_ref: str | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def arguments(self) -> dict[str, Any]:
        """Return the decoded arguments. Large arguments are a blob reference here; see `Payloads.load`."""
        decoded: dict[str, Any] = msgspec.json.decode(self.args)
        return decoded


def is_past_retention(task: Task, moment: int, dead_letters: int, governed: int) -> bool:
    """Whether a task ended before the moment that counts for it: the earliest of those that apply."""
    is_dead_letter = task.status is Status.FAILED and not task.discarded
    is_governed = task.review is not None and task.review.is_governed
    last = min(moment, dead_letters if is_dead_letter else moment, governed if is_governed else moment)
    return task.finished_at is not None and task.finished_at < last


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker has registered about a task name: where it runs, its limits, its argument schema."""

    name: str
    queue: str = DEFAULT_QUEUE
    concurrency: int | None = None  # running at once over all workers
    concurrency_per_key: int | None = None
    rate_count: int | None = None  # starts per rate_period_ms
    rate_period_ms: int | None = None
    schema: dict[str, Any] | None = None
    # Defaults for tasks of this name. None falls back to the settings of the enqueuing process, and
    # 0 milliseconds mean no limit.
    priority: int = DEFAULT_PRIORITY
    timeout_ms: int | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    result_ttl_ms: int | None = None
    needs: tuple[str, ...] = ()  # capabilities that their workers must have
    # What every task of this name changes, and its tags, in addition to what the author of a task declares: the guard,
    # the risk, and the choice of policies rely on these.
    resources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    has_preview: bool = False  # its tasks are previewed and approved before they run
    has_rollback: bool = False
    version: str = ""  # of its code: declared, or a hash of its source; empty if its worker reports none


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue's switch and its admission limits."""

    name: str
    paused: bool = False
    max_depth: int | None = None  # unfinished tasks accepted at most; those of the source SYSTEM always are


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live worker process as it described itself, and when it was last heard of."""

    id: str
    hostname: str
    pid: int
    started_at: int
    version: str
    queues: tuple[str, ...] = ()  # empty: all
    names: tuple[str, ...] = ()
    concurrency: int = 1
    running: int = 0
    progress_at: int = 0  # when its consume loop last went round
    heartbeat_until: int = 0  # considered lost after this time
    draining: bool = False
    agent: str | None = None  # whose capacity its runs use up
    capabilities: tuple[str, ...] = ()  # sorted: its own and those of its agent
    versions: dict[str, str] = {}  # of the code behind its names, as far as it reports any


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that is enqueued again and again by a cron line."""

    name: str
    cron: str
    task_name: str
    timezone: str = "UTC"
    queue: str = DEFAULT_QUEUE
    args: Raw = Raw(b"{}")
    priority: int = DEFAULT_PRIORITY
    paused: bool = False
    next_at: int = 0
    last_at: int | None = None
    last_task_id: str | None = None
    updated_at: int = 0
    author: str | None = None  # who wrote it as it is, and so every task it makes
    writers: tuple[str, ...] = ()  # who wrote it before: they cannot approve its tasks either


class Effect(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A side effect in the ledger of `ctx.once`: started by one run, and done once its result is stored.

    `at` is the time of its last change, or the last time at which it was retained because its task still exists.
    """

    key: str
    run_id: str
    task_id: str = ""  # of that run; empty in entries of older versions
    done: bool = False
    answer: MaybeRaw = None
    at: int = 0


MOST_OUTPUT_LINES = 10_000  # of one run; the rest is replaced by OUTPUT_CUT
OUTPUT_CUT = f"[output cut after {MOST_OUTPUT_LINES} lines]"


class OutputLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line a run wrote. `run_id` keeps the attempts apart."""

    task_id: str
    run_id: str
    attempt: int
    at: int
    text: str
    stream: str = "log"
    seq: int = 0


def lines_by_run(lines: Sequence[OutputLine]) -> dict[tuple[str, str], list[OutputLine]]:
    """Group lines by task and run, in their original order."""
    by_run: dict[tuple[str, str], list[OutputLine]] = {}
    for line in lines:
        by_run.setdefault((line.task_id, line.run_id), []).append(line)
    return by_run


# Labels: the fields by which both stores index tasks for lists.


LABELED_FIELDS = frozenset({"author_id", "tags", "resources", "locks"})


def labels_of(task: Task) -> list[str]:
    """Return the labels of a task, each once: its author, its tags, and the resources that it changes or locks."""
    labels = [] if task.author_id is None else [f"author:{task.author_id}"]
    if task.tags:
        labels += (f"tag:{tag}" for tag in dict.fromkeys(task.tags))
    if task.resources or task.locks:
        resources = (*task.resources, *(spec.resource for spec in task.locks))
        labels += (f"resource:{resource}" for resource in dict.fromkeys(resources))
    return labels


# Capabilities: words a worker declares. Only a worker that has every word in a task's `needs` can claim it.


MOST_CAPABILITIES = 32
_CAPABILITY = re.compile(r"[a-z0-9][a-z0-9._-]{0,49}")


def capabilities_of(words: Iterable[str], what: str, error: Callable[[str], AdeError]) -> tuple[str, ...]:
    """Return the words sorted and without duplicates. Raises `error`, with `what` as the message prefix."""
    known = sorted(set(words))
    for word in known:
        if not _CAPABILITY.fullmatch(word):
            raise error(
                f"{what}: {word[:60]!r} is not a valid capability; begin with a small letter or a digit, then small"
                " letters, digits, '.', '_' and '-', at most 50"
            )
    if len(known) > MOST_CAPABILITIES:
        raise error(f"{what}: {len(known)} capabilities are too many; {MOST_CAPABILITIES} are the most")
    return tuple(known)


def as_text(needs: Collection[str]) -> str:
    """Return the needs as one string, equal for tasks that share a wait queue; empty for no needs."""
    return ",".join(needs)


def are_met(needs: str, capabilities: Collection[str]) -> bool:
    """Whether a worker with these capabilities can claim a task with these needs (as `as_text` writes them)."""
    return not needs or all(need in capabilities for need in needs.split(","))
