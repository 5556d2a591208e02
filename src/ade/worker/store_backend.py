"""The store as a worker's backend: claims and commits, maintenance jobs, and the watchdog of its leases."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ade import VERSION
from ade.approvals.rollback import prepare_rollbacks
from ade.common.gcra import RateState, next_allowed_ms
from ade.errors import STORE_TROUBLE, AdeError, StaleWrite, StoreUnavailable
from ade.locks.task_locks import StoreRunLocks
from ade.logs import Log
from ade.settings import Settings
from ade.stores.ports import AGENT, DONE, STOP, WORK, ClaimRequest, Renewal, Stores
from ade.tasks.changes import Change
from ade.tasks.decisions import settle
from ade.tasks.handlers import Registry
from ade.tasks.lifecycle import Status, Verb
from ade.tasks.model import Definition, Task, Worker
from ade.tasks.outcomes import Deferred, Failed, Released, Succeeded, Withheld
from ade.tasks.payloads import Payloads
from ade.worker.approval_check import ApprovalChecker
from ade.worker.backend import Ended, Finished, LocksOfRuns, WorkerOptions
from ade.worker.capacity import AgentCapacity
from ade.worker.child_pool import ProcessGroupRegistry
from ade.worker.context_backend import StoreContextBackend
from ade.worker.failures import unwritable
from ade.worker.handler_call import PayloadReader
from ade.worker.instrumentation import COMMITTED, WorkerProbe
from ade.worker.lease import LeaseThread
from ade.worker.maintenance import MaintenanceJob, run_jobs, standard_jobs
from ade.worker.messages import Request
from ade.worker.output_buffer import OutputBuffer
from ade.worker.run import Run, lose_lock
from ade.worker.shared_memory import DeadWorker, SharedLeasePage
from ade.worker.state import ClaimTrigger, WorkerState
from ade.worker.sweep import take_over
from ade.worker.watchdog import WatchdogConfig, WatchdogProcess, WatchdogSpec

Answered = tuple[Change, AdeError | None]  # the written change, or why it was not written
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0  # between two commits of the same outcomes
_FIRST_CLAIM_PAUSE_S, _LONGEST_CLAIM_PAUSE_S = 0.05, 1.0
_LOOP_BEAT_S = 0.5
_PEERS_S = 0.5  # how often a worker looks for dead workers on its host
_FORGET_PAGE_S = 3_600.0  # after this time the page of a dead worker that no worker knows is removed
_LOOKS_UNTIL_TIDY = 100
_RECENT_S = 600.0  # the pages of workers that were silent for longer are opened only by every hundredth look
log = Log("ade.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything a worker on a store is constructed with."""

    stores: Stores
    registry: Registry
    options: WorkerOptions
    payloads: Payloads
    settings: Settings  # for the maintenance jobs
    worker_id: str
    hostname: str
    started_at: int
    jobs: Sequence[MaintenanceJob] = ()  # in addition to the standard ones
    guardian: WatchdogSpec | None = None  # None: no watchdog process
    probe: WorkerProbe = field(default_factory=WorkerProbe)
    randomness: Callable[[], float] = random.random


class StoreBackend:
    """A worker backend with direct store access."""

    waits = False
    finishes_at_once = 1
    finishes_together = 1  # not used: one call has all of them

    def __init__(self, setup: Setup) -> None:
        stores, options = setup.stores, setup.options
        self._setup = setup
        self._stores = stores
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._own = frozenset(options.capabilities)
        self._rated = [item.definition for item in setup.registry if item.definition.rate_count is not None]
        self._slate = SharedLeasePage.create(2 * options.concurrency, setup.worker_id if setup.guardian else "")
        self._guard = None if setup.guardian is None else LeaseGuard(setup.guardian, self._slate, options)
        page = None if setup.guardian is None else self._slate
        self.state = WorkerState(options, now=stores.clock.now(), page=page)
        self.name = setup.worker_id
        self.lease_check_s = options.heartbeat_s
        self.clock = stores.clock
        self.outputs = OutputBuffer(stores.outputs, stores.clock)
        self.payloads: PayloadReader = setup.payloads
        self.groups: ProcessGroupRegistry | None = self._slate
        self._locks = StoreRunLocks[Run](stores, options, lose_lock)
        self.locks: LocksOfRuns = self._locks
        self._definitions = setup.registry.definitions(options.code_version)
        self._versions = {each.name: each.version for each in self._definitions if each.version}
        self._gates = ApprovalChecker(stores, setup.payloads, setup.registry, self._versions)
        self.gates: ApprovalChecker | None = self._gates
        self.capacity: AgentCapacity | None = None
        if options.agent is not None:
            held, wake = self.state.held, self.state.wake
            self.capacity = AgentCapacity(stores.agents, stores.clock, options, self.name, held, wake)
        self._desk = StoreContextBackend(stores, self._locks, self._gates)
        self._commits = StoreCommits(stores, setup.payloads, self.outputs, setup.probe, setup.randomness)

    # Running tasks

    def claim(self, request: ClaimRequest, *, is_last: bool = False) -> Coroutine[Any, Any, Sequence[Task]]:
        return self._stores.tasks.claim(request)

    def renew(self, held: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal:
        renewal = self._stores.workers.renew(self.record(), held, lease_ms=self._options.lease_ms, claiming=claiming)
        try:
            self._locks.renew_late()
            if self.capacity is not None:
                self.capacity.renew(held, self._loop.call_soon_threadsafe)
            self._slate.write_beat(_now_ms())
        except Exception:  # the leases are renewed, and runs that are gone must end now
            log.exception("lease.renewal_incomplete")
        return renewal

    def finish(self, batch: Sequence[Ended]) -> Coroutine[Any, Any, Finished]:
        return self._commits.write(batch)

    def ask(self, run: Run, request: Request) -> Coroutine[Any, Any, Any]:
        return self._desk.ask(run, request)

    # Polling

    def follow(self, trigger: ClaimTrigger) -> Callable[[], None]:
        wakeups = self._stores.wakeups
        leave = [wakeups.follow(WORK, trigger.work_announced)]
        if self.capacity is not None:
            leave.append(wakeups.follow(AGENT, trigger.units_freed))

        def unfollow() -> None:
            for each in leave:
                each()

        return unfollow

    def claim_pause_s(self, times: int) -> float:
        return min(_FIRST_CLAIM_PAUSE_S * 2.0 ** min(times, 10), _LONGEST_CLAIM_PAUSE_S)

    def is_refusal(self, error: Exception) -> bool:
        return False  # a store that responds does not reject claims

    async def next_due_s(self) -> float:
        """Return the seconds until a delayed task is due or a rate limit allows the next one."""
        try:
            due = await self._stores.sweeps.next_due()
            moments = [] if due is None else [due]
            for definition in self._rated:
                moments += await self._next_allowed(definition)
        except AdeError as error:
            log.warning("claim.due_time_unknown", error=str(error))
            return self._options.poll_s
        now = self._stores.clock.now()
        return min(((moment - now) / 1000 for moment in moments), default=self._options.poll_s)

    async def _next_allowed(self, definition: Definition) -> list[int]:
        if definition.rate_count is None or definition.rate_period_ms is None:
            return []
        steady = self._stores.clock.steady()
        state = RateState(await self._stores.queues.rate_full_at(definition.name))
        moment = next_allowed_ms(state, count=definition.rate_count, period_ms=definition.rate_period_ms, now_ms=steady)
        # If it is already allowed, no task waits for the rate.
        return [self._stores.clock.now() + moment - steady] if moment > steady else []

    # Setup and shutdown

    def record(self) -> Worker:
        """Return the current record of the worker. Also called by the lease thread."""
        setup, options, state = self._setup, self._options, self.state
        able = self._own if self.capacity is None else self._own.union(self.capacity.agent.capabilities)
        return Worker(
            id=setup.worker_id,
            hostname=setup.hostname,
            pid=os.getpid(),
            started_at=setup.started_at,
            version=VERSION,
            queues=options.queues,
            names=tuple(sorted(setup.registry.names())),
            concurrency=options.concurrency,
            running=state.performing,
            progress_at=state.progress_at,
            draining=state.draining,
            agent=options.agent,
            capabilities=tuple(sorted(able)),
            versions=self._versions,
        )

    async def register(self, stop: asyncio.Event | None = None) -> bool:
        await self._stores.workers.register(self.record(), self._definitions, self._options.lease_ms)
        return True

    async def open(self) -> None:
        await self._gates.open()
        if self.capacity is not None:
            await self.capacity.open()
        if self._guard is not None:
            self._slate.write_beat(_now_ms())  # silence counts from here, not from the first heartbeat
            self._guard.start(self.record(), self.capacity)

    def jobs(self, lease: LeaseThread) -> dict[str, Coroutine[Any, Any, None]]:
        setup, stores = self._setup, self._stores
        standard = standard_jobs(stores, setup.payloads, setup.settings, lease.may_judge)
        jobs = {
            "hints": stores.wakeups.listen(),
            "stops": self._listen_for_stops(lease),
            "duties": run_jobs(stores.sweeps, (*standard, *setup.jobs), self.name),
        }
        if self.capacity is not None:
            jobs["capacity"] = self.capacity.work()
        if self._guard is not None:
            jobs["guardian"] = self._keep_guarded(self._guard)
            jobs["loop"] = self._record_loop()
            jobs["peers"] = self._watch_peers()
        return jobs

    def guarded_at(self) -> float:
        return self._slate.read().guarded_ms / 1000

    async def close(self) -> None:
        if self._guard is not None:
            await asyncio.to_thread(self._guard.stop)
        self._slate.close()
        if self.capacity is not None:
            await self.capacity.close()

    async def deregister(self) -> None:
        try:
            await self._stores.workers.deregister(self.name)
        except AdeError as error:  # it will be removed as a lost worker
            log.warning("worker.not_deregistered", worker=self.name, error=str(error))

    async def _listen_for_stops(self, lease: LeaseThread) -> None:
        """After any cancellation, renew immediately to find out which runs are gone."""
        wakeups = self._stores.wakeups
        seen = wakeups.generation(STOP)
        while True:
            await wakeups.wait(STOP, seen, 60.0)
            newest = wakeups.generation(STOP)
            if newest != seen:
                seen = newest
                lease.kick()

    async def _record_loop(self) -> None:
        """Tell the watchdog that the event loop is not blocked."""
        while True:
            self._slate.write_loop(_now_ms())
            await asyncio.sleep(_LOOP_BEAT_S)

    async def _watch_peers(self) -> None:
        """Take over the tasks of workers that died on this host. Workers elsewhere wait until the leases expire."""
        watch = PeerWatch(self._stores, self._setup.payloads, self.name)
        while True:
            await asyncio.sleep(_PEERS_S)
            try:
                await watch.look()
            except AdeError as error:  # the next look may succeed
                log.warning("worker.peers_unknown", error=str(error))
            except Exception:
                log.exception("worker.peers_unknown")

    async def _keep_guarded(self, guard: "LeaseGuard") -> None:
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            guard.replace_if_dead(self.record(), self.capacity)


class PeerWatch:
    """Finds the dead workers of this host, and returns their tasks to the queue."""

    def __init__(self, stores: Stores, payloads: Payloads, own: str) -> None:
        self._stores = stores
        self._payloads = payloads
        self._own = own
        self._looks = 0
        self._dead: set[str] = set()  # found dead by the look before
        self._unrelated: set[str] = set()  # names of dead workers that are not registered in this store

    async def look(self) -> None:
        """Look once. A dead worker is taken over by the second look: its watchdog first ends what it left running."""
        self._looks += 1
        silent_s: float | None = _RECENT_S
        if self._looks % _LOOKS_UNTIL_TIDY == 0:
            self._unrelated.clear()
            silent_s = None
        names = await asyncio.to_thread(DeadWorker.names, {self._own, *self._unrelated}, silent_s, self._dead)
        ready = [name for name in names if name in self._dead]
        self._dead = set(names)
        workers = {each.id: each for each in await self._stores.workers.list_workers()} if ready else {}
        for name in ready:
            if (dead := DeadWorker.open(name)) is not None:  # else another worker of this host has it
                try:
                    await self._take_over(dead, workers.get(name))
                finally:
                    dead.release()

    async def _take_over(self, dead: DeadWorker, worker: Worker | None) -> None:
        if worker is None:
            self._unrelated.add(dead.name)
            if dead.age_s > _FORGET_PAGE_S:
                dead.remove()
            return
        tasks = await take_over(self._stores, worker, dead.started(), self._payloads)
        log.warning("worker.died", worker=dead.name, pid=worker.pid, tasks=tasks)
        dead.remove()
        self._dead.discard(dead.name)


class LeaseGuard:
    """The watchdog process of a worker: started with it, and replaced if it dies."""

    def __init__(self, spec: WatchdogSpec, slate: SharedLeasePage, options: WorkerOptions) -> None:
        self._spec = spec
        self._slate = slate
        self._options = options
        self._process: WatchdogProcess | None = None

    @property
    def pid(self) -> int:
        """The process ID; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    def start(self, worker: Worker, capacity: AgentCapacity | None) -> None:
        options = self._options
        about: dict[str, object] = {"worker": worker, "lease_ms": options.lease_ms, "store": self._spec.store}
        if capacity is not None:
            about["agent"] = capacity.agent
        descriptor = self._slate.for_child()
        brief = WatchdogConfig(
            worker_pid=os.getpid(),
            descriptor=descriptor,
            capacity=self._slate.capacity,
            heartbeat_ms=round(options.heartbeat_s * 1000),
            silence_ms=round(options.guard_silence_s * 1000),
            renewer=self._spec.renewer,
            about=msgspec.json.encode(about).decode(),
        )
        try:
            self._process = WatchdogProcess.start(brief, descriptor)
        finally:
            os.close(descriptor)

    def replace_if_dead(self, worker: Worker, capacity: AgentCapacity | None) -> None:
        """Start a new process if it was killed, for instance by the out-of-memory killer."""
        if self._process is None or self._process.is_alive:
            return
        log.warning("guardian.replaced", pid=self.pid)
        try:
            self._process.stop()  # closes its pipe
            self.start(worker, capacity)
        except OSError as error:  # the next attempt may succeed
            log.warning("guardian.not_started", error=str(error))

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class StoreCommits:
    """Converts outcomes to commits, and retries a commit until the store has answered."""

    def __init__(
        self,
        stores: Stores,
        payloads: Payloads,
        outputs: OutputBuffer,
        probe: WorkerProbe,
        randomness: Callable[[], float],
    ) -> None:
        self._stores = stores
        self._payloads = payloads
        self._outputs = outputs
        self._probe = probe
        self._dice = randomness
        self._tells_all = log.tells_all()

    async def write(self, batch: Sequence[Ended]) -> Finished:
        """Commit a batch. Outcomes whose part of the store does not respond while others do are left to the caller."""
        if self._outputs:
            await self._outputs.flush()
        now = self._stores.clock.now()
        changes = [self._change(run, outcome, now) for run, outcome in batch]
        answers = await self._until_answered(changes)
        done = work = False
        released: list[str] = []
        unanswered: list[Ended] = []
        for (run, outcome), (change, answer) in zip(batch, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                unanswered.append((run, outcome))
                continue
            if answer is not None:
                _tell_thrown_away(change, answer)
                continue
            if change.verb is not Verb.SUCCEED or self._tells_all:
                _note(change)
                if change.verb is Verb.RELEASE:
                    released.append(change.task_id)
            done = done or change.after.is_final
            work = work or _frees_work(run, change)
        if self._probe.armed:
            await self._probe(COMMITTED)
        if done:
            self._stores.wakeups.notify(DONE)
        if work:
            self._stores.wakeups.notify(WORK)
        return Finished(released, unanswered)

    def _change(self, run: Run, outcome: object, now: int) -> Change:
        """Return the change for an outcome. An invalid one, as middleware may return, fails only its own task."""
        try:
            if isinstance(outcome, Succeeded | Failed | Released | Deferred | Withheld):
                return settle(run.task, outcome, now=now, randomness=self._dice())
            reason = f"a run ends in an Outcome, and not in {type(outcome).__name__}"
        except Exception as error:
            log.exception("outcome.impossible", task_id=run.task.id)
            reason = f"{type(error).__name__}: {error}"
        return settle(run.task, unwritable(reason), now=now, randomness=self._dice())

    async def _until_answered(self, changes: Sequence[Change]) -> list[Answered]:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await prepare_rollbacks(self._stores, self._payloads, changes)  # rollback tasks of failures come first
                answers = await self._stores.tasks.commit_each(changes)
                return list(zip(changes, answers, strict=True))
            except STORE_TROUBLE as error:  # keep the outcome and retry
                if isinstance(error, StoreUnavailable) and error.answers:  # the rest is committed
                    log.warning("commit.repeated", tasks=len(changes), error=str(error))
                    return list(zip(changes, error.answers, strict=True))
                log.warning("commit.repeated", tasks=len(changes), error=str(error), pause_s=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            except Exception as error:
                if len(changes) == 1:
                    return [await self._instead_of(changes[0], error)]
                each = [await self._until_answered([change]) for change in changes]
                return [answer for answers in each for answer in answers]

    async def _instead_of(self, change: Change, error: Exception) -> Answered:
        """Fail a task whose change the store cannot accept, instead of waiting for its lease to expire."""
        log.exception("commit.impossible", task_id=change.task_id)
        now, reason = self._stores.clock.now(), f"{type(error).__name__}: {error}"
        plain = settle(change.before, unwritable(reason), now=now, randomness=self._dice())
        try:
            [answer] = await self._stores.tasks.commit_each([plain])
        except Exception as again:
            return plain, AdeError(f"its change could not be written: {again}")
        return plain, answer


def _note(change: Change) -> None:
    task, error = change.before, change.after.error
    tell = log.debug if change.verb is Verb.SUCCEED else log.info
    tell(
        f"task.{change.verb}",
        task_id=task.id,
        attempt=task.attempt,
        worker=task.worker_id,
        error=None if error is None or change.verb is Verb.RELEASE else f"{error.type}: {error.message}"[:200],
    )


def _frees_work(run: Run, change: Change) -> bool:
    """Whether the change lets a worker claim: a limit has room again, or the task itself is due."""
    if change.before.concurrency_key is not None:
        return True
    if run.handler is not None and run.handler.definition.concurrency is not None:
        return True
    after = change.after
    return after.status is Status.PENDING and after.run_after <= after.updated_at


def _tell_thrown_away(change: Change, answer: AdeError) -> None:
    known: dict[str, Any] = {
        "task_id": change.task_id,
        "attempt": change.before.attempt,
        "worker": change.before.worker_id,
    }
    event = "task.result_thrown_away" if isinstance(answer, StaleWrite) else "task.not_written"
    tell = log.info if change.verb is Verb.RELEASE else log.warning  # it is in the queue, or with another worker
    tell(event, **known, verb=change.verb, reason=str(answer))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
