"""The worker: assembles its parts on a backend, runs them on an event loop, and shuts them down in order."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ade.logs import Log
from ade.settings import Settings
from ade.stores.ports import Stores
from ade.tasks.handlers import HandlerMode, Registry
from ade.tasks.payloads import Payloads
from ade.worker.backend import WorkerBackend, WorkerOptions
from ade.worker.child_pool import check_importable
from ade.worker.executor import RunExecutor
from ade.worker.handler_call import Middleware
from ade.worker.instrumentation import WorkerProbe
from ade.worker.lease import LeaseThread, RunsOnLoop
from ade.worker.maintenance import MaintenanceJob
from ade.worker.poller import TaskPoller
from ade.worker.state import ClaimTrigger
from ade.worker.store_backend import Setup, StoreBackend
from ade.worker.supervisor import Handover, drain
from ade.worker.timer import SharedTimer
from ade.worker.watchdog import WatchdogSpec

_CLAIM_PATIENCE_S = 5.0  # for the claim in progress when the worker is told to stop
log = Log("ade.worker")


class TaskWorker:
    """Claims tasks from a backend, runs their handlers, and reports their outcomes to it.

    Dependencies have one direction: the poller starts runs on the executor, and the executor owns the handler invoker
    and the completer. All of them share the backend and its state.
    """

    def __init__(
        self,
        backend: WorkerBackend,
        registry: Registry,
        options: WorkerOptions,
        *,
        middleware: Sequence[Middleware] = (),
        probe: WorkerProbe | None = None,
    ) -> None:
        probe = probe or WorkerProbe()
        state = backend.state
        self._backend = backend
        self._options = options
        self._state = state
        self._timer = SharedTimer(asyncio.get_running_loop())
        trigger = ClaimTrigger(state, self._timer, options.concurrency, backend.capacity)
        self._runs = RunExecutor(
            backend, registry, options, state, trigger, self._timer, middleware=middleware, probe=probe
        )
        self._pump = TaskPoller(backend, registry, options, state, trigger, self._runs, self._timer, probe)
        self._on_loop = RunsOnLoop(self._runs, state)
        self._lease = LeaseThread(backend, self._on_loop, heartbeat_s=options.heartbeat_s, lease_s=options.lease_s)
        self._background: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> Handover:
        """Work until `stop` is set, then drain; `hurry` cuts the drain short. Returns what happened to held tasks."""
        has_started = False
        try:
            if await self._backend.register(stop):
                has_started = True
                log.info("worker.started", worker=self._backend.name, concurrency=self._options.concurrency)
                await self._work(stop)
        finally:
            try:
                handover = await self._end(hurry)
            except BaseException:  # the program ends the loop: like a worker that is killed, it holds nothing any more
                self._state.abandon()
                self._lease.stop(wait=False)
                raise
            if has_started:
                known = {"handed_back": list(handover.handed_back), "left_behind": list(handover.left_behind)}
                log.info("worker.stopped", worker=self._backend.name, **known)
        return handover

    async def _work(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Raises the error of a background job that ended."""
        await self._backend.open()
        self._lease.start()
        for name, work in self._backend.jobs(self._lease).items():
            self._spawn(name, work)
        self._spawn("pump", self._pump.work())
        self._spawn("leases", self._on_loop.watch(self._lease, self._backend.lease_check_s))
        asked = asyncio.create_task(stop.wait())
        await asyncio.wait({asked, *self._background.values()}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        for job in self._background.values():
            if job.done():
                job.result()

    async def _end(self, hurry: asyncio.Event) -> Handover:
        """Stop claiming, drain, and return unfinished tasks; heartbeats continue until no run is held."""
        self._state.draining = True
        await self._pump.stop()
        pump = self._background.get("pump")
        if pump is not None:
            await asyncio.wait({pump}, timeout=_CLAIM_PATIENCE_S)
        await drain(self._runs, self._state, self._options, hurry)
        left_behind = tuple(run.task.id for run in self._state.held.values())
        await self._take_apart()
        if not left_behind:
            await self._backend.deregister()
        return Handover(handed_back=tuple(self._runs.released), left_behind=left_behind)

    async def _take_apart(self) -> None:
        for job in self._background.values():
            job.cancel()
        await asyncio.gather(*self._background.values(), return_exceptions=True)
        await self._runs.stop_committing()
        await self._backend.outputs.flush()
        await self._backend.locks.close()
        await asyncio.to_thread(self._lease.stop)
        await self._runs.close()  # removes its processes from the backend's registry
        await self._backend.close()
        self._timer.close()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._background[name] = asyncio.create_task(work, name=f"ade-{name}")


# The worker on a store, as other modules use it.


class WorkerService:
    """A worker on a store. All dependencies are passed in; it looks up nothing itself."""

    def __init__(
        self,
        stores: Stores,
        registry: Registry,
        options: WorkerOptions | None = None,
        *,
        payloads: Payloads | None = None,
        middleware: Sequence[Middleware] = (),
        settings: Settings | None = None,  # for the maintenance jobs
        jobs: Sequence[MaintenanceJob] = (),  # in addition to the standard ones
        guardian: WatchdogSpec | None = None,  # None: no watchdog process
        probe: WorkerProbe | None = None,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        for handler in registry:
            if handler.mode is HandlerMode.PROCESS:
                check_importable(handler)
        self._backend: StoreBackend | None = None
        self._worker: TaskWorker | None = None
        self._middleware = tuple(middleware)
        hostname = socket.gethostname()
        self.id = f"{hostname}-{os.getpid()}-{os.urandom(4).hex()}"
        self._setup = Setup(
            stores=stores,
            registry=registry,
            options=options or WorkerOptions(),
            payloads=payloads or Payloads(stores.blobs),
            settings=settings or Settings(),
            jobs=tuple(jobs),
            guardian=guardian,
            probe=probe or WorkerProbe(),
            randomness=randomness,
            worker_id=self.id,
            hostname=hostname,
            started_at=stores.clock.now(),
        )

    @property
    def draining(self) -> bool:
        """Whether it no longer claims tasks and only finishes those it holds."""
        return self._backend is not None and self._backend.state.draining

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event | None = None) -> Handover:
        """Work until `stop` is set, then drain; `hurry` cuts the drain short. Returns what happened to held tasks."""
        setup = self._setup
        backend = self._backend = StoreBackend(setup)
        self._worker = TaskWorker(
            backend, setup.registry, setup.options, middleware=self._middleware, probe=setup.probe
        )
        return await self._worker.run(stop, hurry or asyncio.Event())
