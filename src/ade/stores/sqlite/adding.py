"""New tasks come in: all of a call or none of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from ade.core.errors import AdeError, IdempotencyConflict, QueueFull, UnknownDependency
from ade.core.lifecycle import FINAL, Status
from ade.core.records import AfterFailure, Task
from ade.core.task import creation_event
from ade.stores.sqlite.codec import detail_of, new_row, packed, read_task
from ade.stores.sqlite.statements import run, value
from ade.stores.sqlite.writer import Slot

Key = tuple[str, str, str]


@dataclass(slots=True)
class Add:
    """The tasks of one call. The answer is the list of stored tasks, earlier ones where the key was known."""

    tasks: Sequence[Task]
    now: Callable[[], int]
    slot: Slot = field(default_factory=lambda: Slot(lambda answer, refusal: None))

    @classmethod
    def run_group(cls, connection: apsw.Connection, group: Sequence["Add"]) -> None:
        batch = _Batch(connection, group[0].now())
        for add in group:
            try:
                add.slot.answer = batch.accept(add.tasks)
            except AdeError as refusal:
                add.slot.refusal = refusal
        batch.write()


class _Batch:
    """What a group of calls adds, checked call by call, then written at once."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._next_seq: int = value(connection, "next_seq")
        self._rooms: dict[str, list[int]] | None = None
        self._by_key: dict[Key, Task] = {}
        self._by_id: dict[str, tuple[int, Status]] = {}
        self._new: list[tuple[int, Task, int]] = []
        self._edges: list[tuple[int, int, bool, bool]] = []

    def accept(self, tasks: Sequence[Task]) -> list[Task]:
        earlier = self._earlier(tasks)
        fresh = [task for index, task in enumerate(tasks) if index not in earlier]
        self._check_room(fresh)
        seqs = {task.id: self._next_seq + offset for offset, task in enumerate(fresh)}
        edges = self._edges_of(fresh, seqs)
        self._next_seq += len(fresh)
        self._edges += edges
        blocked = Counter(task_seq for _, task_seq, _, _ in edges)
        for task in fresh:
            seq = seqs[task.id]
            self._new.append((seq, task, blocked[seq]))
            self._by_id[task.id] = (seq, task.status)
            if task.idempotency_key is not None:
                self._by_key[task.queue, task.name, task.idempotency_key] = task
        return [earlier.get(index, task) for index, task in enumerate(tasks)]

    def write(self) -> None:
        if not self._new:
            return
        connection = self._connection
        rows = [new_row(task, seq, now=self._now, waiting=waiting) for seq, task, waiting in self._new]
        run(connection, "insert_task", rows=packed(rows))
        run(connection, "insert_detail", rows=packed([(seq, detail_of(task)) for seq, task, _ in self._new]))
        run(connection, "insert_event", rows=packed([_creation_row(seq, task) for seq, task, _ in self._new]))
        moves = Counter((task.queue, task.name, task.status) for _, task, _ in self._new)
        run(connection, "move_tally", rows=packed([(*lane, count) for lane, count in moves.items()]))
        if self._edges:
            run(connection, "insert_dependency", rows=packed(self._edges))

    def _earlier(self, tasks: Sequence[Task]) -> dict[int, Task]:
        """Tasks of this call that exist already: by their id (a repeated call) or by their idempotency key."""
        keys = [
            (task.queue, task.name, task.idempotency_key)
            for task in tasks
            if task.idempotency_key is not None and (task.queue, task.name, task.idempotency_key) not in self._by_key
        ]
        known = dict(self._by_key)
        if keys:
            for queue, name, key, _, json in run(self._connection, "known_keys", rows=packed(keys)):
                known[queue, name, key] = read_task(json)
        earlier: dict[int, Task] = {}
        for index, task in enumerate(tasks):
            if task.idempotency_key is None:
                continue
            key = (task.queue, task.name, task.idempotency_key)
            if key in known:
                _check_same_request(known[key], task)
                earlier[index] = known[key]
            known.setdefault(key, task)
        earlier.update(self._repeated([(i, task) for i, task in enumerate(tasks) if i not in earlier]))
        return earlier

    def _repeated(self, tasks: list[tuple[int, Task]]) -> dict[int, Task]:
        """Ids are random, so one that exists means that this very call was carried out before."""
        found = self._look_up([task.id for _, task in tasks])
        return {index: task for index, task in tasks if task.id in found}

    def _look_up(self, ids: Sequence[str]) -> dict[str, tuple[int, Status]]:
        rows = run(self._connection, "known_ids", ids=packed(ids))
        found = {task_id: (seq, Status(status)) for task_id, seq, status in rows}
        found.update({task_id: self._by_id[task_id] for task_id in ids if task_id in self._by_id})
        return found

    def _check_room(self, tasks: Sequence[Task]) -> None:
        """Admission limits, counted with what this group has taken in already."""
        if self._rooms is None:
            self._rooms = {name: [limit, depth] for name, limit, depth in run(self._connection, "queue_room")}
        if not self._rooms:
            return
        wanted = Counter(task.queue for task in tasks)
        for queue, count in wanted.items():
            limit, depth = self._rooms.get(queue, (None, 0))
            if limit is not None and depth + count > limit:
                raise self._full(queue, count, depth, limit)
        for queue, count in wanted.items():
            if queue in self._rooms:
                self._rooms[queue][1] += count

    def _full(self, queue: str, count: int, depth: int, limit: int) -> QueueFull:
        """Say when to come back: as long as the excess takes at the pace of the last minute."""
        finished = value(self._connection, "finished_since", since=self._now - 60_000, queue=queue)
        excess = depth + count - limit
        retry_after = min(max(excess * 60 / finished, 1.0), 300.0) if finished else 30.0
        return QueueFull(
            f"queue {queue!r} holds {depth} unfinished tasks and takes at most {limit}; {count} more do not fit."
            f" Try again in {retry_after:.0f} s",
            retry_after=retry_after,
        )

    def _edges_of(self, tasks: Sequence[Task], seqs: dict[str, int]) -> list[tuple[int, int, bool, bool]]:
        """Rows for what these tasks wait for; what has completed already is not waited for."""
        wanted = {task_id for task in tasks for task_id in task.depends_on}
        if not wanted:
            return []
        known = self._look_up(sorted(wanted - seqs.keys()))
        known.update({task.id: (seqs[task.id], task.status) for task in tasks})
        edges = []
        for task in tasks:
            tolerant = task.after_failure is AfterFailure.RUN
            for task_id in dict.fromkeys(task.depends_on):
                if task_id not in known:
                    raise UnknownDependency(f"task {task_id!r} named in `after` does not exist; nothing was stored")
                on_seq, status = known[task_id]
                if status is Status.COMPLETED or (tolerant and status in FINAL):
                    continue
                edges.append((on_seq, seqs[task.id], tolerant, status in FINAL))
        return edges


def _check_same_request(earlier: Task, task: Task) -> None:
    if earlier.args_digest != task.args_digest:
        raise IdempotencyConflict(
            f"idempotency key {task.idempotency_key!r} of {task.name!r} was used for task {earlier.id} with other"
            " arguments; nothing was stored"
        )


def _creation_row(seq: int, task: Task) -> tuple[Any, ...]:
    event = creation_event(task)
    return (event.type, event.at, seq, task.id, event.actor, event.payload)
