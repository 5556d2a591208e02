"""Enqueue, claim, complete, and fail tasks on a store, one call for each step of a story."""

import os
from typing import Any

import msgspec
from msgspec import Raw

from ade import Task
from ade.failures import FailureKind, TaskError
from ade.testing import TestClock
from tests.domain import ClaimRequest, Failed, Payloads, Stores, Succeeded, enqueue, fresh_id, settle


class QueueDriver:
    """A producer and a worker in one, without a worker process."""

    def __init__(self, stores: Stores, payloads: Payloads, clock: TestClock) -> None:
        self.stores = stores
        self.payloads = payloads
        self.clock = clock

    def task(self, name: str = "send", arguments: dict[str, Any] | None = None, **fields: Any) -> Task:
        args = Raw(msgspec.json.encode(arguments or {}))
        return Task(id=fresh_id(self.clock.now()), name=name, args=args, **fields)

    async def enqueue(self, name: str = "send", arguments: dict[str, Any] | None = None, **fields: Any) -> Task:
        [stored] = await enqueue(self.stores, self.payloads, [self.task(name, arguments, **fields)])
        return stored

    async def get(self, task: Task) -> Task:
        [found] = await self.stores.tasks.get([task.id])
        assert found is not None
        return found

    async def claim(self, *names: str) -> Task:
        request = ClaimRequest(worker_id="w1", run_ids=[os.urandom(16).hex()], names=frozenset(names or ("send",)))
        [task] = await self.stores.tasks.claim(request)
        return task

    async def complete(self, task: Task, result: object = None) -> None:
        outcome = Succeeded(Raw(msgspec.json.encode(result)))
        await self.stores.tasks.commit(settle(task, outcome, now=self.clock.now(), randomness=0.5))

    async def fail(self, task: Task, message: str = "no luck", kind: str = "Oops") -> Task:
        """For good; answers the task as it is then."""
        error = TaskError(kind=FailureKind.UNRECOVERABLE, type=kind, message=message)
        await self.stores.tasks.commit(settle(task, Failed(error), now=self.clock.now(), randomness=0.5))
        return await self.get(task)

    async def dead_letter(self, message: str = "no luck", name: str = "send", **fields: Any) -> Task:
        """A task that was run and failed for good."""
        await self.enqueue(name, **fields)
        return await self.fail(await self.claim(name), message)

    async def events(self, task: Task) -> list[str]:
        return [event.type for event in await self.stores.events.read(0, 1000, task_id=task.id)]
