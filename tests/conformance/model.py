"""What a store should hold, as plain dictionaries. The core decides; what a store makes of it is told here."""

from dataclasses import dataclass, field

from msgspec import structs

from ade import Status, Task
from tests.domain import CLAIMABLE, FINAL, AfterFailure, Change, Definition


@dataclass
class Entry:
    """A task, its place in the order of creation, and what it still waits for."""

    task: Task
    order: int
    waits: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)


@dataclass
class Model:
    entries: dict[str, Entry] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], str] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    added: int = 0

    # people

    def add(self, task: Task) -> str:
        """The id of the task, or of the earlier one under its key."""
        key = (task.queue, task.name, task.idempotency_key or "")
        if task.idempotency_key is not None:
            if key in self.keys:
                return self.keys[key]
            self.keys[key] = task.id
        self.added += 1
        entry = self.entries[task.id] = Entry(task, self.added)
        for other in task.depends_on:
            self._wait_for(entry, other)
        return task.id

    def _wait_for(self, entry: Entry, other: str) -> None:
        status = self.entries[other].task.status
        tolerant = entry.task.after_failure is AfterFailure.RUN
        if status is Status.COMPLETED or (tolerant and status in FINAL):
            return
        entry.waits.add(other)
        if status in FINAL:
            entry.broken.add(other)

    def prune(self) -> set[str]:
        """Final tasks that nobody waits for are gone."""
        waited_for = {other for entry in self.entries.values() for other in entry.waits}
        gone = {task_id for task_id in self.with_status(*FINAL) if task_id not in waited_for}
        for task_id in gone:
            del self.entries[task_id]
        self.keys = {key: task_id for key, task_id in self.keys.items() if task_id not in gone}
        return gone

    # workers

    def claimable(self, count: int, queues: tuple[str, ...], now: int, can: frozenset[str] = frozenset()) -> list[str]:
        """The ids a claim must get, in this order."""
        chosen: list[Task] = []
        for entry in sorted(self.entries.values(), key=lambda entry: (entry.task.priority, entry.order)):
            is_met = can.issuperset(entry.task.needs)
            if is_met and self._is_ready(entry, queues, now) and self._is_within_limits(entry.task, chosen):
                chosen.append(entry.task)
        return [task.id for task in chosen[:count]]

    def _is_ready(self, entry: Entry, queues: tuple[str, ...], now: int) -> bool:
        task = entry.task
        served = task.queue not in self.paused and (not queues or task.queue in queues)
        return task.status in CLAIMABLE and served and not entry.waits and task.run_after <= now

    def _is_within_limits(self, task: Task, chosen: list[Task]) -> bool:
        definition = self.definitions.get(task.name, Definition(name=task.name))
        busy = [entry.task for entry in self.entries.values() if entry.task.status is Status.RUNNING] + chosen
        same_name = [other for other in busy if other.name == task.name]
        if definition.concurrency is not None and len(same_name) >= definition.concurrency:
            return False
        if task.concurrency_key is None or definition.concurrency_per_key is None:
            return True
        same_key = [other for other in same_name if other.concurrency_key == task.concurrency_key]
        return len(same_key) < definition.concurrency_per_key

    def take(self, claimed: Task) -> None:
        """A claim was answered with this task."""
        before = self.entries[claimed.id].task
        assert claimed == structs.replace(
            before,
            status=Status.RUNNING,
            version=before.version + 1,
            attempt=before.attempt + 1,
            run_id=claimed.run_id,
            worker_id=claimed.worker_id,
            lease_until=claimed.lease_until,
            started_at=claimed.started_at,
            updated_at=claimed.updated_at,
            waiting_on=0,
        )
        self.entries[claimed.id].task = claimed

    # whatever was decided

    def apply(self, change: Change) -> None:
        entry = self.entries[change.task_id]
        before, entry.task = entry.task, change.after
        if change.after.is_final:
            entry.waits.clear()
            entry.broken.clear()
        if change.after.is_final and before.status not in FINAL:
            self._tell_dependents(change.after)
        if before.status in FINAL and not change.after.is_final:
            self._revive(entry)

    def _revive(self, revived: Entry) -> None:
        """Who waits for it may hope again; and it waits again for what has not ended."""
        for other in self.entries.values():
            other.broken.discard(revived.task.id)
            if revived.task.id in other.waits:
                other.task = structs.replace(other.task, version=other.task.version + 1)
        known = (self.entries[task_id] for task_id in revived.task.depends_on if task_id in self.entries)
        revived.waits = {entry.task.id for entry in known if entry.task.status not in FINAL}

    def _tell_dependents(self, ended: Task) -> None:
        for entry in self.entries.values():
            if ended.id not in entry.waits:
                continue
            if ended.status is Status.COMPLETED or entry.task.after_failure is AfterFailure.RUN:
                entry.waits.discard(ended.id)
            else:
                entry.broken.add(ended.id)

    # who looks

    def with_status(self, *statuses: Status) -> list[str]:
        return [task_id for task_id, entry in self.entries.items() if entry.task.status in statuses]

    def broken(self) -> dict[str, set[str]]:
        return {
            task_id: entry.broken
            for task_id, entry in self.entries.items()
            if entry.broken and entry.task.status in CLAIMABLE
        }

    def shown(self, task_id: str) -> Task:
        """The task as the store should show it."""
        entry = self.entries[task_id]
        return structs.replace(entry.task, waiting_on=len(entry.waits))

    def tallies(self) -> dict[tuple[str, str, Status], int]:
        counts: dict[tuple[str, str, Status], int] = {}
        for entry in self.entries.values():
            lane = (entry.task.queue, entry.task.name, entry.task.status)
            counts[lane] = counts.get(lane, 0) + 1
        return counts
