"""A store, a clock, and what the people in a story do with them: enqueue, claim, finish, sweep, look."""

import os
from collections.abc import Iterable

from msgspec import Raw

from ade import Task
from ade.failures import Backoff, FailureKind, TaskError
from ade.tasks.decisions import break_chain, cancel, lose_lease, miss_deadline, replay, settle
from ade.testing import TestClock
from tests.domain import Change, ClaimRequest, Definition, Failed, Released, Stores, Succeeded, Worker, admit, uuid7

NAMES = frozenset({"send", "build", "report"})
LEASE_MS = 30_000
MIDDLE = 0.5  # the dice that add no jitter
STEADY = Backoff(jitter=0.0)


def new_run_id() -> str:
    return os.urandom(16).hex()


def raw(text: str) -> Raw:
    return Raw(text.encode())


class Scene:
    """Where a story plays."""

    def __init__(self, stores: Stores, clock: TestClock) -> None:
        self.stores = stores
        self.clock = clock

    # people who want work done

    def task(self, name: str = "send", **fields: object) -> Task:
        """A new task as it would be stored, with any field of a task by its name."""
        now = self.clock.now()
        known: dict[str, object] = {"id": uuid7(now, os.urandom(10)), "name": name, "backoff": STEADY}
        return admit(Task(**(known | fields)), now=now)  # type: ignore[arg-type]  # any field, by its name

    async def add(self, name: str = "send", **fields: object) -> Task:
        [task] = await self.stores.tasks.add([self.task(name, **fields)])
        return task

    async def add_all(self, *tasks: Task) -> list[Task]:
        return await self.stores.tasks.add(list(tasks))

    async def add_many(self, count: int, name: str = "send", **fields: object) -> list[Task]:
        return await self.stores.tasks.add([self.task(name, **fields) for _ in range(count)])

    async def define(self, name: str = "send", **limits: object) -> None:
        """A worker comes that has limits for this name."""
        definition = Definition(name=name, **limits)  # type: ignore[arg-type]  # any limit, by its name
        await self.stores.workers.register(self.worker("definer"), [definition], ttl_ms=LEASE_MS)

    # workers

    def worker(self, worker_id: str = "w1") -> Worker:
        return Worker(id=worker_id, hostname="here", pid=1, started_at=self.clock.now(), version="0")

    async def claim(
        self,
        count: int = 1,
        *,
        worker: str = "w1",
        names: Iterable[str] = NAMES,
        queues: tuple[str, ...] = (),
        can: Iterable[str] = (),
        lease_ms: int = LEASE_MS,
    ) -> list[Task]:
        request = ClaimRequest(
            worker_id=worker,
            run_ids=[new_run_id() for _ in range(count)],
            names=frozenset(names),
            queues=queues,
            capabilities=frozenset(can),
            lease_ms=lease_ms,
        )
        return await self.stores.tasks.claim(request)

    async def start(self, name: str = "send", *, worker: str = "w1", **fields: object) -> Task:
        """A task that is running."""
        added = await self.add(name, **fields)
        [running] = await self.claim(worker=worker)
        assert running.id == added.id, "another task was in line before"
        return running

    def renew(self, *runs: Task, worker: str = "w1", lease_ms: int = LEASE_MS) -> dict[str, str | None]:
        """A heartbeat; answers the runs that are gone, by task id."""
        held = {str(task.run_id): task.id for task in runs}
        gone = self.stores.workers.renew(self.worker(worker), held, lease_ms=lease_ms).gone
        return {held[run_id]: status for run_id, status in gone.items()}

    # how runs end

    def success(self, running: Task, result: str = "null") -> Change:
        return settle(running, Succeeded(raw(result)), now=self.clock.now(), randomness=MIDDLE)

    def failure(
        self, running: Task, kind: FailureKind = FailureKind.RAISED, *, retry_after_ms: int | None = None
    ) -> Change:
        error = TaskError(kind=kind, type="Oops", message="no luck")
        return settle(running, Failed(error, retry_after_ms), now=self.clock.now(), randomness=MIDDLE)

    async def succeed(self, running: Task, result: str = "null") -> None:
        await self.stores.tasks.commit(self.success(running, result))

    async def fail(self, running: Task, kind: FailureKind = FailureKind.RAISED) -> None:
        await self.stores.tasks.commit(self.failure(running, kind))

    async def fail_for_good(self, running: Task) -> None:
        await self.fail(running, FailureKind.UNRECOVERABLE)

    async def release(self, running: Task) -> None:
        await self.stores.tasks.commit(settle(running, Released("shutdown"), now=self.clock.now(), randomness=MIDDLE))

    async def run(self, count: int = 1, **claim: object) -> list[str]:
        """Claim and complete; answers the ids in the order of the claim."""
        tasks = await self.claim(count, **claim)  # type: ignore[arg-type]  # passed on as given
        for task in tasks:
            await self.succeed(task)
        return [task.id for task in tasks]

    # operators and sweeps

    async def cancel(self, task_id: str, reason: str | None = None) -> None:
        await self.stores.tasks.commit(cancel(await self.get(task_id), reason, now=self.clock.now()))

    async def replay(self, task_id: str, args: Raw | None = None) -> None:
        await self.stores.tasks.commit(replay(await self.get(task_id), now=self.clock.now(), args=args))

    async def sweep(self) -> None:
        """Decide on everything that is ripe, once."""
        now = self.clock.now()
        due = await self.stores.sweeps.due(100)
        changes = [lose_lease(task, now=now) for task in due.expired]
        changes += [miss_deadline(task, now=now) for task in due.overdue]
        overdue = {task.id for task in due.overdue}
        changes += [
            break_chain(task, failed_ids=failed, now=now) for task, failed in due.broken if task.id not in overdue
        ]
        await self.stores.tasks.commit_each(changes)

    async def let_lease_run_out(self) -> None:
        """Every worker goes silent for longer than its lease, and the sweep notices."""
        self.clock.advance(LEASE_MS / 1000 + 1)
        await self.sweep()

    # people who look

    async def get(self, task_id: str) -> Task:
        [task] = await self.stores.tasks.get([task_id])
        assert task is not None, f"task {task_id} is gone"
        return task

    async def status(self, task_id: str) -> str:
        return (await self.get(task_id)).status

    async def statuses(self, *tasks: Task) -> list[str]:
        return [await self.status(task.id) for task in tasks]

    async def event_types(self, task_id: str | None = None, after: int = 0) -> list[str]:
        return [event.type for event in await self.stores.events.read(after, 10_000, task_id=task_id)]

    async def counts(self) -> dict[str, int]:
        """How many tasks have a status, by the tallies."""
        counts: dict[str, int] = {}
        for tally in await self.stores.queues.tallies():
            counts[tally.status] = counts.get(tally.status, 0) + tally.count
        return counts
