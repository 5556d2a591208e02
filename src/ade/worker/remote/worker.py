"""One worker behind HTTP at work: its parts put together on an event loop, watched, and taken apart in order.

What runs functions, ends them and drains is that of every worker; what speaks to the store speaks to the server here.
"""

import asyncio
import os
import re
import socket
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from ade import VERSION
from ade.client.client import Client
from ade.common.calls import Call
from ade.errors import AdeError, UnknownWorker
from ade.locks.holders.remote_run_locks import HttpRunLocks
from ade.logs import Log
from ade.stores.ports import Renewal
from ade.tasks.admission import PREVIEW_SUFFIX, ROLLBACK_SUFFIX
from ade.tasks.handlers import Handler, Registry
from ade.tasks.identifiers import owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition
from ade.worker.api.requests import NewDefinition, RemoteRunsRenewed
from ade.worker.executor import RunExecutor
from ade.worker.handler_call import HandlerInvoker, Middleware
from ade.worker.instrumentation import WorkerProbe
from ade.worker.lease import LeaseThread
from ade.worker.options import WorkerOptions
from ade.worker.output_buffer import OutputBuffer
from ade.worker.remote.completer import HttpCompleter
from ade.worker.remote.connection import HttpOutputStore, LocalClock, ServerConnection
from ade.worker.remote.context_backend import HttpContextBackend
from ade.worker.remote.poller import HttpTaskPoller
from ade.worker.run import StopReason
from ade.worker.supervisor import Handover, drain
from ade.worker.timer import SharedTimer
from ade.worker.views import WorkerView

# What a worker says about the tasks of its app when it makes itself known.


_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def servable(handlers: Iterable[Handler]) -> tuple[list[Handler], list[str]]:
    """Handlers that a worker behind HTTP may run, and the names of the others.

    What is previewed before each run, or undone, is left to workers on the store: they look once more before they run
    it. Its parts go with it.
    """
    handlers = list(handlers)
    governed = {each.name for each in handlers if each.definition.has_preview or each.definition.has_rollback}
    left = governed | {name + suffix for name in governed for suffix in (PREVIEW_SUFFIX, ROLLBACK_SUFFIX)}
    return [each for each in handlers if each.name not in left], sorted(governed)


def definition_request_of(definition: Definition) -> NewDefinition:
    count, period_ms = definition.rate_count, definition.rate_period_ms
    return NewDefinition(
        name=definition.name,
        queue=definition.queue,
        schema=definition.schema,
        concurrency=definition.concurrency,
        concurrency_per_key=definition.concurrency_per_key,
        rate=None if count is None or period_ms is None else _rate(count, period_ms),
        priority=definition.priority,
        timeout=_seconds(definition.timeout_ms),
        max_attempts=definition.max_attempts,
        backoff=definition.backoff,
        result_ttl=_seconds(definition.result_ttl_ms),
        needs=list(definition.needs),
    )


def _rate(count: int, period_ms: int) -> str:
    """As it is written: (100, 60000) is 100/1m."""
    unit, length_ms = next(each for each in _UNITS_MS if period_ms % each[1] == 0 or each[0] == "s")
    return f"{count}/{max(period_ms // length_ms, 1)}{unit}"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_MOST_RUNS = 1_000  # in one heartbeat
_LEAST_TTL_S, _LONGEST_TTL_S = 5.0, 3_600.0
_LAST_WORD_S = 5.0  # for the server to hear that the worker is gone
log = Log("ade.worker")


class InlinePayloads:
    """Arguments come whole and results go whole: the server keeps what is large apart."""

    def fits(self, raw: Raw) -> bool:
        return True

    async def load(self, raw: Raw) -> Raw:
        return raw

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw:
        return raw


class HttpWorker:
    def __init__(
        self,
        reach: ServerConnection,
        registry: Registry,
        options: WorkerOptions,
        hurry: asyncio.Event,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._reach = reach
        self._registry = registry
        self._options = options
        self._hurry = hurry
        self._loop = asyncio.get_running_loop()
        self.name = worker_name()
        self._timer = SharedTimer(self._loop)
        self._outputs = OutputBuffer(HttpOutputStore(reach.client), LocalClock())
        self._locks = HttpRunLocks(reach, options.lease_ms)
        desk = HttpContextBackend(reach, self._outputs, self._locks)
        self._performer = HandlerInvoker(desk, InlinePayloads(), middleware)
        self._runs = RunExecutor(registry, self._performer, self._timer, options, WorkerProbe())
        self._reports = HttpCompleter(reach, self._outputs, self._runs.settled)
        self._runs.finish = self._reports.add
        self._runs.take_locks, self._runs.let_go = self._locks.take, self._locks.end
        self._locks.on_lost = self._runs.lose_lock
        desk.on_lost = self._runs.lose
        self._claims = HttpTaskPoller(reach, registry, self._runs, self._locks, options, self.name, self.register)
        self._lease = self._make_lease()
        self._went_round_ms = _now_ms()
        self._background: dict[str, asyncio.Task[None]] = {}
        self._is_draining = False

    async def register(self) -> None:
        """Tell the server what this worker is and can run. Raises AdeError."""
        view = await self._registration(self._reach.client)
        self._locks.account = owner_of(view.worker.id) or ""
        log.info("worker.registered", worker=view.worker.id, names=len(self._registry.by_name))

    def _registration(self, client: Client) -> Call[WorkerView]:
        options = self._options
        return client.register_worker(
            self.name,
            definitions=[definition_request_of(handler.definition) for handler in self._registry],
            queues=options.queues,
            capabilities=options.capabilities,
            concurrency=options.concurrency,
            agent=options.agent,
            hostname=socket.gethostname()[:200],
            pid=os.getpid(),
            version=VERSION,
            draining=self._is_draining,
            ttl=min(max(options.lease_s, _LEAST_TTL_S), _LONGEST_TTL_S),
        )

    async def work(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises what ended a part that must never end."""
        self._lease.start()
        self._spawn("claims", self._claims.work())
        self._spawn("locks", self._locks.work())
        self._spawn("rounds", self._go_round())
        log.info("worker.started", worker=self.name, concurrency=self._options.concurrency)
        asked = asyncio.create_task(stop.wait())
        await asyncio.wait({asked, *self._background.values()}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        for job in self._background.values():
            if job.done():
                job.result()

    async def end(self) -> Handover:
        """Stop claiming, drain, hand back; heartbeats go on until nothing is held any more."""
        self._is_draining = True
        await self._claims.stop()
        claims = self._background.get("claims")
        if claims is not None:
            await asyncio.wait({claims}, timeout=_LAST_WORD_S)
        await drain(self._runs, self._options, self._hurry)
        left_behind = tuple(run.task.id for run in self._runs.held.values())
        await self._take_apart()
        if not left_behind:
            await self._deregister()
        return Handover(handed_back=tuple(self._reports.released), left_behind=left_behind)

    async def _take_apart(self) -> None:
        for job in self._background.values():
            job.cancel()
        await asyncio.gather(*self._background.values(), return_exceptions=True)
        await self._reports.close()
        await self._outputs.flush()
        await self._locks.close()
        await asyncio.to_thread(self._lease.stop)
        await self._performer.close()
        self._timer.close()

    async def _deregister(self) -> None:
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                await self._reach.client.deregister_worker(self.name)
        except (AdeError, TimeoutError) as error:  # it will be forgotten after some silence
            log.warning("worker.not_deregistered", worker=self.name, error=str(error))

    def _make_lease(self) -> LeaseThread:
        options, runs, loop = self._options, self._runs, self._loop

        def held() -> Mapping[str, str]:
            now_ms = _now_ms()
            return runs.to_renew(now_ms=now_ms, silent_ms=now_ms - self._went_round_ms)

        def gone(lost: Mapping[str, Status | None]) -> None:
            loop.call_soon_threadsafe(runs.gone, lost)

        return LeaseThread(
            renew=self._renew,
            held=held,
            on_gone=gone,
            on_overdue=lambda: loop.call_soon_threadsafe(runs.stop_all, StopReason.LOST),
            on_beat=lambda: None,
            heartbeat_s=options.heartbeat_s,
            lease_s=options.lease_s,
        )

    def _renew(self, held: Mapping[str, str]) -> Renewal:
        """By the lease thread: a blocked event loop loses nothing. Raises AdeError."""
        began, gone, listed = self._loop.time(), dict[str, Status | None](), list(held.items())
        for start in range(0, max(len(listed), 1), _MOST_RUNS):
            try:
                answer = self._beat(dict(listed[start : start + _MOST_RUNS]))
            except UnknownWorker:  # the server has not heard of it for too long
                self._registration(self._reach.beats).wait()
                answer = self._beat(dict(listed[start : start + _MOST_RUNS]))
            gone.update({each.run_id: each.status for each in answer.gone})
            self._loop.call_soon_threadsafe(self._told, answer)
        self._locks.beaten(began)
        return Renewal(gone=gone)

    def _beat(self, runs: Mapping[str, str]) -> RemoteRunsRenewed:
        options = self._options
        calling = self._reach.beats.renew_runs(
            worker=self.name, runs=runs, lease_s=options.lease_s, draining=self._is_draining
        )
        return calling.wait()

    def _told(self, answer: RemoteRunsRenewed) -> None:
        for why, run_ids in ((StopReason.TIMED_OUT, answer.late), (StopReason.LOCK_LOST, answer.lock_lost)):
            for run_id in run_ids:
                run = self._runs.held.get(run_id)
                if run is not None and not run.finishing:
                    self._runs.stop(run, why)

    async def _go_round(self) -> None:
        """Tell the lease thread that the loop goes round, and look after renewals that hang instead of failing.

        Two looks, both before the leases end: after a block the lease thread gets its turn first.
        """
        options, was_overdue = self._options, False
        while True:
            self._went_round_ms = _now_ms()
            await asyncio.sleep(min(options.heartbeat_s, options.lease_s / 4) / 4)
            is_overdue = self._lease.is_overdue()
            if is_overdue and was_overdue and self._runs.held:
                log.error("lease.overdue", running=len(self._runs.held))
                self._runs.stop_all(StopReason.LOST)
            was_overdue = is_overdue

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._background[name] = asyncio.create_task(work, name=f"ade-{name}")


def worker_name() -> str:
    """One that no other worker of the account has; the server puts the account before it."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.")[:60] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(4).hex()}"


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
