"""A store, some handlers and a real worker, for stories about what a worker does."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
from msgspec import Raw, structs
from msgspec.structs import replace

from ade import Task
from ade.failures import Backoff
from ade.settings import Settings
from ade.settings.sections import SweepSettings
from ade.stores.ports import Stores, TaskStore
from ade.tasks.handlers import Handler, HandlerMode, Registry
from ade.tasks.service import CompletionWatcher
from ade.worker.instrumentation import WorkerProbe
from ade.worker.supervisor import Handover
from ade.worker.worker import WorkerService
from tests.domain import Definition, Payloads, Signature, WorkerOptions, enqueue, uuid7
from tests.waiting import PATIENCE_S

AT_ONCE = Backoff(base_ms=0, cap_ms=0, jitter=0.0)
ONLY_WHEN_TOLD = 600.0  # a poll so slow that whatever happens was not found by polling


class Shift:
    """A worker that is running."""

    def __init__(self, runtime: WorkerService) -> None:
        self.runtime = runtime
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.job: asyncio.Task[Handover] = asyncio.create_task(runtime.run(self.stop, self.hurry))

    async def end(self) -> Handover:
        self.stop.set()
        return await asyncio.wait_for(self.job, PATIENCE_S)


class Workshop:
    """`options` are for every worker started here; `probe` is listened to by all of them."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.registry = Registry()
        self.payloads = Payloads(stores.blobs)
        self.options = WorkerOptions(poll_s=ONLY_WHEN_TOLD, lease_s=60.0, heartbeat_s=1.0, grace_s=30.0)
        self.settings = Settings(sweep=SweepSettings(interval_s=ONLY_WHEN_TOLD))
        self.probe = WorkerProbe()
        self._watch = CompletionWatcher(stores)

    def handle(
        self, function: Callable[..., Any], *, name: str | None = None, mode: HandlerMode | None = None, **limits: Any
    ) -> str:
        """Register a handler; answers its name."""
        known = name or function.__name__
        usual = HandlerMode.ASYNC if inspect.iscoroutinefunction(function) else HandlerMode.THREAD
        definition = Definition(name=known, **limits)
        signature = Signature.of(function)
        self.registry.add(
            Handler(name=known, function=function, signature=signature, mode=mode or usual, definition=definition)
        )
        return known

    def new(self, name: str, args: dict[str, Any] | None = None, **fields: Any) -> Task:
        now = self.stores.clock.now()
        raw = Raw(msgspec.json.encode(args or {}))
        known: dict[str, Any] = {"id": uuid7(now, os.urandom(10)), "name": name, "args": raw, "backoff": AT_ONCE}
        return Task(**(known | fields))

    async def enqueue(self, name: str, args: dict[str, Any] | None = None, **fields: Any) -> Task:
        [task] = await enqueue(self.stores, self.payloads, [self.new(name, args, **fields)])
        return task

    async def enqueue_many(self, name: str, count: int, **fields: Any) -> list[Task]:
        return await enqueue(self.stores, self.payloads, [self.new(name, **fields) for _ in range(count)])

    @asynccontextmanager
    async def worker(self, **changes: Any) -> AsyncIterator[Shift]:
        options = {name: changes.pop(name) for name in list(changes) if name in WorkerOptions.__struct_fields__}
        runtime = WorkerService(
            changes.pop("stores", self.stores),
            self.registry,
            structs.replace(self.options, **options),
            payloads=self.payloads,
            settings=changes.pop("settings", self.settings),
            probe=self.probe,
            **changes,
        )
        shift = Shift(runtime)
        try:
            yield shift
        finally:
            shift.hurry.set()
            await shift.end()

    async def final(self, task: Task) -> Task:
        """The task once it is final."""
        return await self._watch.wait(task.id, PATIENCE_S)

    async def perform(self, name: str, args: dict[str, Any] | None = None, **fields: Any) -> Task:
        """Enqueue a task and have a worker run it; the final task."""
        async with self.worker():
            return await self.final(await self.enqueue(name, args, **fields))

    async def get(self, task: Task) -> Task:
        [found] = await self.stores.tasks.get([task.id])
        assert found is not None
        return found

    async def event_types(self, task: Task) -> list[str]:
        return [event.type for event in await self.stores.events.read(0, 1000, task_id=task.id)]

    def with_tasks(self, **methods: Any) -> Stores:
        """The same stores, with some methods of the task store replaced."""
        return replace(self.stores, tasks=cast(TaskStore, Replaced(self.stores.tasks, methods)))


class Replaced:
    """A store that goes on to the real one, but for some methods."""

    def __init__(self, real: Any, methods: dict[str, Any]) -> None:
        self._real = real
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._real, name)


class Gate:
    """Something a handler waits at until the test opens it; tells when somebody has come."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


async def soon(event: asyncio.Event) -> None:
    """Wait for something that must happen."""
    await asyncio.wait_for(event.wait(), PATIENCE_S)


def plain(raw: Raw | None) -> Any:
    """What stored JSON means."""
    return None if raw is None else msgspec.json.decode(raw)
