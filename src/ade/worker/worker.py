"""One worker at work: its parts put together on an event loop, watched, and taken apart in order."""

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ade import VERSION
from ade.errors import AdeError
from ade.locks.holders.run_locks import RunLocks
from ade.logs import Log
from ade.stores.ports import STOP, Renewal, Stores
from ade.tasks.enqueue import TaskDefaults
from ade.tasks.handlers import HandlerMode, Registry
from ade.tasks.lifecycle import Status
from ade.tasks.model import Worker
from ade.tasks.payloads import Payloads
from ade.worker.approval_check import ApprovalChecker
from ade.worker.capacity import AgentCapacity
from ade.worker.child_pool import check_importable
from ade.worker.completer import Completer
from ade.worker.context_backend import StoreContextBackend
from ade.worker.executor import RunExecutor
from ade.worker.handler_call import HandlerInvoker, Middleware
from ade.worker.instrumentation import WorkerProbe
from ade.worker.lease import LeaseThread
from ade.worker.maintenance import MaintenanceJob, run_jobs, standard_jobs
from ade.worker.options import SweepOptions, WorkerOptions
from ade.worker.output_buffer import OutputBuffer
from ade.worker.poller import TaskPoller
from ade.worker.run import Run, StopReason
from ade.worker.shared_memory import SharedLeasePage
from ade.worker.supervisor import Handover, drain
from ade.worker.timer import SharedTimer
from ade.worker.watchdog import WatchdogConfig, WatchdogProcess, WatchdogSpec

_CLAIM_PATIENCE_S = 5.0  # for the claim that is under way when the worker is told to stop
log = Log("ade.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServices:
    """Everything a worker needs from outside."""

    stores: Stores
    registry: Registry
    options: WorkerOptions
    payloads: Payloads
    middleware: Sequence[Middleware]
    sweeps: SweepOptions
    defaults: TaskDefaults
    duties: Sequence[MaintenanceJob]
    guardian: WatchdogSpec | None
    probe: WorkerProbe
    dice: Callable[[], float]
    worker_id: str
    hostname: str
    started_at: int = field(default=0)


class StoreWorker:
    def __init__(self, setup: WorkerServices, hurry: asyncio.Event) -> None:
        self._setup = setup
        self._hurry = hurry
        stores, options = setup.stores, setup.options
        self._timer = SharedTimer(asyncio.get_running_loop())
        self._outputs = OutputBuffer(stores.outputs, stores.clock)
        self._locks = RunLocks(stores, options)
        self._gates = ApprovalChecker(stores, setup.payloads, setup.registry)
        desk = StoreContextBackend(stores, self._gates.enqueue, self._outputs, self._locks, self._gates)
        self._slate = SharedLeasePage.create(2 * options.concurrency)
        self._performer = HandlerInvoker(desk, setup.payloads, setup.middleware, self._slate)
        self._runs = RunExecutor(setup.registry, self._performer, self._timer, options, setup.probe)
        self._finisher = Completer(stores, self._outputs, setup.probe, setup.dice, self._runs.settled)
        self._runs.finish, self._finisher.prepare = self._finisher.add, self._gates.prepare
        self._gates.perform = self._performer.attempt
        self._runs.check, self._runs.after = self._gates.check, self._gates.after
        self._runs.take_locks, self._runs.let_go = self._locks.take, self._locks.end
        self._locks.on_lost = self._runs.lose_lock
        desk.on_lost = self._runs.lose
        self._capacity: AgentCapacity | None = None
        if options.agent is not None:
            self._capacity = AgentCapacity(stores.agents, stores.clock, options, setup.worker_id, self._runs.held)
        self._pump = TaskPoller(
            stores, setup.registry, self._runs, self._timer, options, setup.worker_id, setup.probe, self._capacity
        )
        self._guardian: WatchdogProcess | None = None
        self._went_round_ms = _now_ms()
        self._lease = self._make_lease()
        self._background: dict[str, asyncio.Task[None]] = {}
        self.draining = False

    def record(self) -> Worker:
        """The worker as it describes itself now. Also called from the lease thread."""
        setup = self._setup
        return Worker(
            id=setup.worker_id,
            hostname=setup.hostname,
            pid=os.getpid(),
            started_at=setup.started_at,
            version=VERSION,
            queues=setup.options.queues,
            names=tuple(sorted(setup.registry.names())),
            concurrency=setup.options.concurrency,
            running=self._runs.performing,
            progress_at=self._pump.progress_at,
            draining=self.draining,
            agent=setup.options.agent,
            capabilities=tuple(sorted(self._pump.capabilities)),
        )

    async def work(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises what ended a part that must never end."""
        await self._gates.open()
        if self._capacity is not None:
            await self._capacity.open()
            self._spawn("capacity", self._capacity.work())
        self._start_guardian()
        self._lease.start()
        setup = self._setup
        duties = standard_jobs(
            setup.stores, setup.payloads, setup.defaults, setup.sweeps, lambda: not self._lease.is_late()
        )
        self._spawn("hints", setup.stores.hints.attend())
        self._spawn("finish", self._finisher.work())
        self._spawn("pump", self._pump.work())
        self._spawn("stops", self._listen_for_stops())
        self._spawn("leases", self._watch_leases())
        self._spawn("duties", run_jobs(setup.stores.sweeps, (*duties, *setup.duties), setup.worker_id))
        asked = asyncio.create_task(stop.wait())
        await asyncio.wait({asked, *self._background.values()}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        for job in self._background.values():
            if job.done():
                job.result()

    async def end(self) -> Handover:
        """Stop claiming, drain, hand back; heartbeats go on until nothing is held any more."""
        self.draining = True
        self._pump.stop()
        pump = self._background.get("pump")
        if pump is not None:
            await asyncio.wait({pump}, timeout=_CLAIM_PATIENCE_S)
        await drain(self._runs, self._setup.options, self._hurry)
        left_behind = tuple(run.task.id for run in self._runs.held.values())
        await self._take_apart()
        if self._capacity is not None:
            await self._capacity.close()
        if not left_behind:
            await self._deregister()
        return Handover(handed_back=tuple(self._finisher.released), left_behind=left_behind)

    async def _take_apart(self) -> None:
        for job in self._background.values():
            job.cancel()
        await asyncio.gather(*self._background.values(), return_exceptions=True)
        await self._outputs.flush()
        await self._locks.close()
        await asyncio.to_thread(self._lease.stop)
        await self._performer.close()  # takes its processes off the slate
        if self._guardian is not None:
            await asyncio.to_thread(self._guardian.stop)
        self._slate.close()
        self._timer.close()

    async def _deregister(self) -> None:
        try:
            await self._setup.stores.workers.deregister(self._setup.worker_id)
        except AdeError as error:  # it will be forgotten after some silence
            log.warning("worker.not_deregistered", worker=self._setup.worker_id, error=str(error))

    def _make_lease(self) -> LeaseThread:
        loop = asyncio.get_running_loop()
        options, stores, runs, slate = self._setup.options, self._setup.stores, self._runs, self._slate
        locks = self._locks

        def renew(held: Mapping[str, str]) -> Renewal:
            renewal = stores.workers.renew(self.record(), held, lease_ms=options.lease_ms)
            locks.renew_late()
            if self._capacity is not None:
                self._capacity.renew(held, loop.call_soon_threadsafe)
            return renewal

        def held() -> Mapping[str, str]:
            now_ms = _now_ms()
            return runs.to_renew(now_ms=now_ms, silent_ms=now_ms - self._went_round_ms)

        def gone(lost: Mapping[str, Status | None]) -> None:
            loop.call_soon_threadsafe(runs.gone, lost)

        return LeaseThread(
            renew=renew,
            held=held,
            on_gone=gone,
            on_overdue=lambda: loop.call_soon_threadsafe(runs.stop_all, StopReason.LOST),
            on_beat=lambda: slate.write_beat(_now_ms()),
            guarded_at=lambda: slate.read().guarded_ms / 1000,
            heartbeat_s=options.heartbeat_s,
            lease_s=options.lease_s,
        )

    def _start_guardian(self) -> None:
        spec = self._setup.guardian
        if spec is None:
            return
        self._slate.write_beat(_now_ms())  # silence counts from here, not from the first beat
        self._runs.on_change = self._note_held
        self._guardian = self._new_guardian(spec)

    def _keep_guardian(self) -> None:
        """One that was killed, for want of memory perhaps, is replaced."""
        spec = self._setup.guardian
        if spec is None or self._guardian is None or self._guardian.is_alive:
            return
        log.warning("guardian.replaced", pid=self._guardian.pid)
        try:
            self._guardian.stop()  # closes the line to it
            self._guardian = self._new_guardian(spec)
        except OSError as error:  # the next look may be luckier
            log.warning("guardian.not_started", error=str(error))

    def _new_guardian(self, spec: WatchdogSpec) -> WatchdogProcess:
        options = self._setup.options
        about: dict[str, object] = {"worker": self.record(), "lease_ms": options.lease_ms, "store": spec.store}
        if self._capacity is not None:
            about["agent"] = self._capacity.agent
        brief = WatchdogConfig(
            worker_pid=os.getpid(),
            descriptor=self._slate.descriptor,
            capacity=self._slate.capacity,
            heartbeat_ms=round(options.heartbeat_s * 1000),
            silence_ms=round(options.guard_silence_s * 1000),
            renewer=spec.renewer,
            about=msgspec.json.encode(about).decode(),
        )
        return WatchdogProcess.start(brief, self._slate.descriptor)

    def _note_held(self, runs: Iterable[Run]) -> None:
        self._slate.write_runs([run.entry for run in runs])

    async def _listen_for_stops(self) -> None:
        """A cancellation somewhere: ask at once which runs are gone."""
        hints = self._setup.stores.hints
        seen = hints.generation(STOP)
        while True:
            await hints.wait(STOP, seen, 60.0)
            newest = hints.generation(STOP)
            if newest != seen:
                seen = newest
                self._lease.kick()

    async def _watch_leases(self) -> None:
        """Tell the lease thread that the loop goes round, and look after renewals that hang instead of failing.

        Two looks: after a block the lease thread gets its turn first.
        """
        was_overdue = False
        while True:
            await asyncio.sleep(self._setup.options.heartbeat_s)
            self._went_round_ms = _now_ms()
            self._keep_guardian()
            is_overdue = self._lease.is_overdue()
            if is_overdue and was_overdue and self._runs.held:
                log.error("lease.overdue", running=len(self._runs.held))
                self._runs.stop_all(StopReason.LOST)
            was_overdue = is_overdue

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._background[name] = asyncio.create_task(work, name=f"ade-{name}")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# The worker as others see it: given what it needs, it runs until told to stop.


class WorkerService:
    """Everything from outside comes in here; nothing is found by itself."""

    def __init__(
        self,
        stores: Stores,
        registry: Registry,
        options: WorkerOptions | None = None,
        *,
        payloads: Payloads | None = None,
        middleware: Sequence[Middleware] = (),
        sweeps: SweepOptions | None = None,
        defaults: TaskDefaults | None = None,
        duties: Sequence[MaintenanceJob] = (),  # beyond the standard ones
        guardian: WatchdogSpec | None = None,  # None: no guardian process
        probe: WorkerProbe | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        for handler in registry:
            if handler.mode is HandlerMode.PROCESS:
                check_importable(handler)
        self._shift: StoreWorker | None = None
        hostname = socket.gethostname()
        self.id = f"{hostname}-{os.getpid()}-{os.urandom(4).hex()}"
        self._setup = WorkerServices(
            stores=stores,
            registry=registry,
            options=options or WorkerOptions(),
            payloads=payloads or Payloads(stores.blobs),
            middleware=tuple(middleware),
            sweeps=sweeps or SweepOptions(),
            defaults=defaults or TaskDefaults(),
            duties=tuple(duties),
            guardian=guardian,
            probe=probe or WorkerProbe(),
            dice=dice,
            worker_id=self.id,
            hostname=hostname,
            started_at=stores.clock.now(),
        )

    @property
    def draining(self) -> bool:
        """Whether it claims no more and only ends what it holds."""
        return self._shift is not None and self._shift.draining

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event | None = None) -> Handover:
        """Work until `stop` is set, then drain; `hurry` cuts the draining short. Answers what was handed back."""
        setup = self._setup
        shift = self._shift = StoreWorker(setup, hurry or asyncio.Event())
        definitions = [handler.definition for handler in setup.registry]
        try:
            await setup.stores.workers.register(shift.record(), definitions, setup.options.lease_ms)
            log.info("worker.started", worker=self.id, concurrency=setup.options.concurrency)
            await shift.work(stop)
        finally:
            handover = await shift.end()
            known = {"handed_back": list(handover.handed_back), "left_behind": list(handover.left_behind)}
            log.info("worker.stopped", worker=self.id, **known)
        return handover
