"""TaskStore on SQLite: inserts, claims, and commits through the single writer. Many inserts share one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Raw

from ade.accounts.model import SYSTEM
from ade.errors import AdeError, StaleLease, StaleWrite
from ade.stores.ports import WORK, ClaimRequest, Clock, Wakeups
from ade.stores.sqlite.claims import ClaimOperation
from ade.stores.sqlite.codec import detail_of, labels_in, new_row, packed, read_records, unpacked
from ade.stores.sqlite.commits import CommitOperation
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.task_reader import SqliteTaskReader
from ade.stores.sqlite.writer import WriteChecks, WriteOperation, Writer
from ade.tasks.admission import (
    birth_events,
    check_no_cycle_of_known,
    key_conflict,
    queue_full,
    unknown_dependency,
    with_known_dependencies,
)
from ade.tasks.changes import Change
from ade.tasks.lifecycle import FINAL, Status
from ade.tasks.model import AfterFailure, Task, as_text

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers

Key = tuple[str, str, str]
Edge = tuple[int, int, bool, bool]  # on_seq, task_seq, tolerant, broken


class SqliteBlockingInserts:
    """BlockingInserts: adds tasks from a thread without an event loop."""

    def __init__(self, tasks: "SqliteTasks") -> None:
        self._tasks = tasks

    def add(self, tasks: Sequence[Task]) -> list[Task]:
        return self._tasks.add_blocking(tasks)


class SqliteTasks(SqliteTaskReader):
    """TaskStore: adds, claims, and commits tasks, and stores their progress."""

    def __init__(
        self,
        writer: Writer,
        readers: "Readers",
        clock: Clock,
        wakeups: Wakeups,
        guard: WriteChecks,
        usual_depth: int | None,
    ) -> None:
        self._writer = writer
        super().__init__(readers)
        self._clock = clock
        self._wakeups = wakeups
        self._guard = guard
        self._usual_depth = usual_depth  # queue limit of queues without their own

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = await self._writer.do(self._add(tasks))
        return stored

    def add_blocking(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = self._writer.do_blocking(self._add(tasks))
        return stored

    def _add(self, tasks: Sequence[Task]) -> "InsertOperation":
        self._guard.before_admission()
        return InsertOperation(tasks, self._clock.now, self._usual_depth, self._notify_workers)

    def _notify_workers(self) -> None:
        self._wakeups.notify(WORK)

    async def claim(self, request: ClaimRequest) -> list[Task]:
        claimed: list[Task] = await self._writer.do(ClaimOperation(request, self._clock.now, self._clock.steady))
        return claimed

    async def commit(self, *changes: Change) -> None:
        await self._do_commit(CommitOperation(changes, True, self._clock.now))

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        answers: list[StaleWrite | None] = await self._do_commit(CommitOperation(changes, False, self._clock.now))
        return answers

    async def _do_commit(self, commit: CommitOperation) -> Any:
        answer = await self._writer.do(commit)
        if commit.frees_work:
            self._notify_workers()
        return answer

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        text = bytes(progress).decode()

        def write(connection: apsw.Connection) -> bool:
            return bool(run(connection, "tasks.report_progress", id=task_id, run_id=run_id, progress=text))

        if not await self._writer.call(write):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}; its progress was not stored")


class InsertOperation(WriteOperation):
    """The tasks of one call. Its answer is the list of stored tasks; for a known idempotency key, the earlier task."""

    __slots__ = ("now", "tasks", "usual_depth")
    may_use_reserve = False

    def __init__(
        self, tasks: Sequence[Task], now: Callable[[], int], usual_depth: int | None, afterwards: Callable[[], None]
    ) -> None:
        super().__init__(afterwards)
        self.tasks = tasks
        self.now = now
        self.usual_depth = usual_depth

    @property
    def weight(self) -> int:
        return len(self.tasks)

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence["InsertOperation"]) -> None:
        tasks = [task for add in group for task in add.tasks]
        batch = _InsertBatch(connection, tasks, group[0].now(), group[0].usual_depth)
        for add in group:
            try:
                add.answer = batch.accept(add.tasks)
            except AdeError as refusal:
                add.refusal = refusal
        batch.write()


class _InsertBatch:
    """The tasks of a group of calls: one lookup for all, a check per call, and one write for all."""

    def __init__(self, connection: apsw.Connection, tasks: Sequence[Task], now: int, usual_depth: int | None) -> None:
        self._connection = connection
        self._now = now
        self._by_key = _known_by_key(connection, tasks)
        ids = _ids_in([*tasks, *self._by_key.values()])
        queues = packed(sorted({task.queue for task in tasks}))
        outlook = value(connection, "tasks.enqueue_state", queues=queues, usual=usual_depth, ids=packed(sorted(ids)))
        next_seq, rooms, known = unpacked(outlook)
        self._next_seq: int = next_seq
        self._rooms = {name: [limit, depth] for name, limit, depth in rooms}
        self._by_id = {task_id: (seq, Status(status)) for task_id, seq, status in known}
        self._new: dict[str, tuple[int, Task, int]] = {}
        self._edges: list[Edge] = []

    def accept(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks of one call as they are or will be stored. Raises if one of them is rejected."""
        earlier = self._earlier(tasks)
        ids = {task_id: task.id for task_id, task in earlier.items()}
        fresh = [with_known_dependencies(task, ids) for task in _distinct(tasks) if task.id not in earlier]
        if earlier:
            check_no_cycle_of_known(fresh)
        self._check_room(fresh)
        seqs = {task.id: self._next_seq + offset for offset, task in enumerate(fresh)}
        edges = self._edges_of(fresh, seqs)
        self._next_seq += len(fresh)
        self._edges += edges
        waiting = Counter(task_seq for _, task_seq, _, _ in edges)
        for task in fresh:
            seq = seqs[task.id]
            self._new[task.id] = (seq, task, waiting[seq])
            self._by_id[task.id] = (seq, task.status)
            if task.idempotency_key is not None:
                self._by_key[task.queue, task.name, task.idempotency_key] = task
        for queue, count in Counter(task.queue for task in fresh).items():
            if queue in self._rooms:
                self._rooms[queue][1] += count
        by_id = {task.id: task for task in fresh} | earlier
        return [by_id[task.id] for task in tasks]

    def write(self) -> None:
        if not self._new:
            return
        connection = self._connection
        new = self._new.values()
        rows = [new_row(task, seq, now=self._now, waiting=waiting) for seq, task, waiting in new]
        run(connection, "tasks.insert", rows=packed(rows))
        if asking := [(seq, as_text(task.needs)) for seq, task, _ in new if task.needs]:
            run(connection, "tasks.set_needs", rows=packed(asking))
        if labels := [(label, seq) for seq, task, _ in new for label in labels_in(task)]:
            run(connection, "tasks.insert_labels", rows=packed(labels))
        run(connection, "tasks.insert_detail", rows=packed([(seq, detail_of(task)) for seq, task, _ in new]))
        run(connection, "events.insert", rows=packed([row for seq, task, _ in new for row in _event_rows(seq, task)]))
        moves = Counter((task.queue, task.name, task.status) for _, task, _ in new)
        run(connection, "queues.update_status_counts", rows=packed([(*lane, count) for lane, count in moves.items()]))
        if self._edges:
            run(connection, "dependencies.insert", rows=packed(self._edges))

    def _earlier(self, tasks: Sequence[Task]) -> dict[str, Task]:
        """Return the tasks of this call that already exist, by ID: a known idempotency key, or a repeated call."""
        earlier = self._repeated(tasks)
        within: dict[Key, Task] = {}
        for task in tasks:
            if task.id not in earlier and task.idempotency_key is not None:
                key = (task.queue, task.name, task.idempotency_key)
                first = self._by_key.get(key) or within.setdefault(key, task)
                if first.args_digest != task.args_digest:
                    raise key_conflict(task, first.id)
                if first is not task:
                    earlier[task.id] = first
        return earlier

    def _repeated(self, tasks: Sequence[Task]) -> dict[str, Task]:
        """Return tasks whose ID exists. IDs are random, so this same call was already written before."""
        known = [task.id for task in tasks if task.id in self._by_id]
        in_this_group = {task_id: self._new[task_id][1] for task_id in known if task_id in self._new}
        stored = [task_id for task_id in known if task_id not in self._new]
        if not stored:
            return in_this_group
        found = read_records(self._connection, "tasks.get_by_id", ids=packed(stored))
        return in_this_group | {task.id: task for task in found}

    def _check_room(self, tasks: Sequence[Task]) -> None:
        """Check queue limits, including the tasks that this group already added. Tasks of source SYSTEM are exempt."""
        if not self._rooms:
            return
        for queue, count in Counter(task.queue for task in tasks if task.source != SYSTEM).items():
            limit, depth = self._rooms.get(queue, (None, 0))
            if limit is not None and depth + count > limit:
                finished = value(self._connection, "tasks.count_finished_since", since=self._now - 60_000, queue=queue)
                raise queue_full(queue, count=count, depth=depth, limit=limit, finished=finished)

    def _edges_of(self, tasks: Sequence[Task], seqs: dict[str, int]) -> list[Edge]:
        """Return the dependency rows of these tasks, without dependencies that are already met."""
        edges = []
        for task in tasks:
            tolerant = task.after_failure is AfterFailure.RUN
            for task_id in dict.fromkeys(task.depends_on):
                if task_id in seqs:
                    edges.append((seqs[task_id], seqs[task.id], tolerant, False))
                    continue
                if task_id not in self._by_id:
                    raise unknown_dependency(task_id)
                on_seq, status = self._by_id[task_id]
                if status is not Status.COMPLETED and not (tolerant and status in FINAL):
                    edges.append((on_seq, seqs[task.id], tolerant, status in FINAL))
        return edges


def _known_by_key(connection: apsw.Connection, tasks: Sequence[Task]) -> dict[Key, Task]:
    keys = [(task.queue, task.name, task.idempotency_key) for task in tasks if task.idempotency_key is not None]
    if not keys:
        return {}
    known = read_records(connection, "tasks.existing_keys", rows=packed(keys))
    return {(task.queue, task.name, str(task.idempotency_key)): task for task in known}


def _ids_in(tasks: Sequence[Task]) -> set[str]:
    """Return the IDs of these tasks and of their dependencies."""
    return {task.id for task in tasks}.union(*(task.depends_on for task in tasks if task.depends_on))


def _distinct(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks without duplicates within the call."""
    return list({task.id: task for task in tasks}.values())


def _event_rows(seq: int, task: Task) -> list[tuple[Any, ...]]:
    return [(event.type, event.at, seq, task.id, event.actor, event.payload) for event in birth_events(task)]
