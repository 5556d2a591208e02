"""The program whose power is cut: it uses the store in every way that writes, and writes down each yes it gets."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Raw, structs

from ade.errors import StaleWrite
from ade.failures import Backoff, FailureKind, TaskError
from ade.settings import Settings
from ade.stores.sqlite.connection import connect
from ade.tasks.decisions import break_chain, cancel, discard, lose_lease, replay, settle
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task, Worker
from ade.tasks.outcomes import Failed, Outcome, Released, Succeeded
from tests.domain import Change, ClaimRequest, Payloads, Stores, StoreSettings, TaskQuery, admit, open_stores, uuid7
from tests.faults.powercut.acknowledgement import Acknowledgement, TaskState, encoded

NAME = "work"
_AT_ONCE = Backoff(base_ms=0, jitter=0.0)
_INLINE_LIMIT = 1000  # so that some payloads become files
_FINISHED_KEPT = 60
_WORKER = Worker(id="worker", hostname="here", pid=1, started_at=0, version="1")


class Marker:
    """Where acknowledgements are written, one system call each, so that a trace shows when they came."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write(self, acknowledgement: Acknowledgement) -> None:
        os.write(self._descriptor, encoded(acknowledgement))

    def tasks(self, call: str, tasks: Sequence[Task]) -> None:
        if tasks:
            self.write(Acknowledgement(call, tuple(TaskState.of(task) for task in tasks)))


class Workload:
    """Producers, workers and operators on one store. Chance comes from a seed, the interleaving from the machine."""

    def __init__(self, stores: Stores, marker: Marker, randomness: Random) -> None:
        self._stores = stores
        self._marker = marker
        self._dice = randomness
        self._renewing = asyncio.Lock()  # a worker renews from one thread
        self._payloads = Payloads(stores.blobs, inline_limit=_INLINE_LIMIT)

    async def round(self) -> None:
        """What happens at once on a busy store, in the order chance has it."""
        jobs = [self.produce_one, self.produce_one, self.produce_batch, self.produce_chain, self.produce_large]
        jobs += [self.work, self.work, self.cancel_some, self.operate, self.sweep]
        self._dice.shuffle(jobs)
        await asyncio.gather(*(duty() for duty in jobs[:6]))
        for duty in jobs[6:]:
            await duty()

    def _task(self, **fields: Any) -> Task:
        now = self._stores.clock.now()
        task_id = uuid7(now, self._dice.randbytes(10))
        known: dict[str, Any] = {
            "id": task_id,
            "name": NAME,
            "backoff": _AT_ONCE,
            "args": self._json(self._dice.randrange(60)),
        }
        return admit(Task(**(known | fields)), now=now)

    def _json(self, size: int) -> Raw:
        return Raw(f'{{"text":"{self._dice.randbytes(size).hex()}"}}'.encode())

    async def _add(self, call: str, tasks: Sequence[Task]) -> None:
        self._marker.tasks(call, await self._stores.tasks.add(tasks))

    async def produce_one(self) -> None:
        await self._add("add one", [self._task(priority=self._dice.randrange(10))])

    async def produce_batch(self) -> None:
        count = self._dice.randrange(2, 6)
        await self._add("add batch", [self._task(idempotency_key=f"key {self._dice.random()}") for _ in range(count)])

    async def produce_chain(self) -> None:
        first = self._task(concurrency_key="one at a time")
        await self._add("add chain", [first, self._task(depends_on=(first.id,))])

    async def produce_large(self) -> None:
        task = self._task(args=self._json(self._dice.randrange(300, 2000)))
        args = await self._payloads.spill(task.id, "args", task.args)
        await self._add("add large", [structs.replace(task, args=args)])

    async def work(self) -> None:
        """A worker's life in short: claim, renew, finish."""
        run_ids = [self._dice.randbytes(16).hex() for _ in range(self._dice.randrange(1, 9))]
        request = ClaimRequest(worker_id=_WORKER.id, run_ids=run_ids, names=frozenset({NAME}))
        claimed = await self._stores.tasks.claim(request)
        self._marker.tasks("claim", claimed)
        runs = {task.run_id: task.id for task in claimed if task.run_id is not None}
        async with self._renewing:
            await asyncio.to_thread(self._stores.workers.renew, _WORKER, runs, lease_ms=30_000)
        now = self._stores.clock.now()
        changes = [
            lose_lease(task, now=now)
            if self._dice.random() < 0.05
            else settle(task, await self._outcome(task), now=now, randomness=0.5)
            for task in claimed
        ]
        await self._commit_each("finish", changes)

    async def _outcome(self, task: Task) -> Outcome:
        chance = self._dice.random()
        if chance < 0.65:
            result = self._json(self._dice.choice((5, 50, 50, 700)))
            return Succeeded(await self._payloads.spill(task.id, f"{task.generation}.{task.attempt}.result", result))
        if chance < 0.8:
            return Failed(TaskError(kind=FailureKind.RAISED, type="Oops", message=f"attempt {task.attempt}"))
        if chance < 0.9:
            return Failed(TaskError(kind=FailureKind.UNRECOVERABLE, type="Oops", message="for good"))
        return Released("shutting down")

    async def _commit_each(self, call: str, changes: Sequence[Change]) -> None:
        if changes:
            answers = await self._stores.tasks.commit_each(changes)
            written = [change.after for change, answer in zip(changes, answers, strict=True) if answer is None]
            self._marker.tasks(call, written)

    async def cancel_some(self) -> None:
        """Two at a time, both or none; somebody may be faster."""
        tasks = await self._some(Status.PENDING, Status.RUNNING, count=2)
        changes = [cancel(task, "not needed", now=self._stores.clock.now()) for task in tasks]
        try:
            await self._stores.tasks.commit(*changes)
        except StaleWrite:
            return
        self._marker.tasks("cancel", [change.after for change in changes])

    async def operate(self) -> None:
        """Dead letters are run again or taken off the list."""
        now = self._stores.clock.now()
        changes = []
        for task in await self._some(Status.FAILED, count=3):
            again = self._dice.random() < 0.6 or task.discarded
            changes.append(replay(task, now=now) if again else discard(task, "hopeless", now=now))
        await self._commit_each("operate", changes)

    async def sweep(self) -> None:
        """Settle what waits in vain, and remove some of what is over."""
        broken = (await self._stores.sweeps.due(50)).broken
        now = self._stores.clock.now()
        await self._commit_each("settle", [break_chain(task, failed_ids=ids, now=now) for task, ids in broken])
        finished = await self._stores.sweeps.finished_before(now, 100)
        old = tuple(task.id for task in finished if task.status is not Status.FAILED)[:8]
        if len(finished) > _FINISHED_KEPT:
            self._marker.write(Acknowledgement("about to prune", asked=old))
            assert await self._stores.sweeps.prune(old) == len(old)
            self._marker.write(Acknowledgement("prune", tuple(TaskState.gone(task_id) for task_id in old)))

    async def _some(self, *statuses: Status, count: int) -> list[Task]:
        page = await self._stores.tasks.find(TaskQuery(statuses=frozenset(statuses), limit=50))
        return self._dice.sample(page.tasks, min(count, len(page.tasks)))


async def run(database: Path, marker: Marker, *, synchronous: str, rounds: Sequence[int], seed: int) -> None:
    """Some sittings. In every other one the log grows until upkeep cuts it, else it is checkpointed often."""
    store = StoreSettings(
        synchronous=synchronous,  # type: ignore[arg-type]  # "off" too, to see what it does
        wal_alarm_mb=8,  # upkeep cuts the log at half of this, which is within reach here
    )
    for sitting, count in enumerate(rounds):
        stores = await open_stores(f"sqlite:///{database}", Settings(store=store))
        await stores.workers.register(_WORKER, [Definition(name=NAME, concurrency_per_key=1)], 30_000)
        workload = Workload(stores, marker, Random(f"{seed} {sitting}"))
        for number in range(count):
            duty = workload.round()
            if sitting % 2 or number % 3 == 0:
                await duty
            elif number % 3 == 1:  # in the midst of writes: it gets only so far
                await asyncio.gather(duty, asyncio.to_thread(checkpoint, database, synchronous))
            else:  # in a quiet moment: all is copied, so the log begins anew
                await duty
                await asyncio.to_thread(checkpoint, database, synchronous)
            await stores.maintenance.checkpoint()
        if sitting < len(rounds) - 1:
            await stores.close()


def checkpoint(database: Path, synchronous: str) -> None:
    """As SQLite does it by itself after some thousand pages."""
    connection = connect(database, synchronous=synchronous)
    try:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database", type=Path)
    parser.add_argument("marker", type=Path)
    parser.add_argument("--synchronous", required=True)
    parser.add_argument("--rounds", type=int, nargs="+", required=True, help="of each sitting")
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    marker = Marker(asked.marker)
    asyncio.run(run(asked.database, marker, synchronous=asked.synchronous, rounds=asked.rounds, seed=asked.seed))
    os._exit(0)  # the last sitting is never closed, so that its log stays


if __name__ == "__main__":
    main()
