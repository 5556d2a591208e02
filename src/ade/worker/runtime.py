"""One worker: its parts put together, started, watched and stopped in order."""

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from ade.core.lifecycle import Status
from ade.core.records import Task, Worker
from ade.core.task import run_timeout_ms
from ade.ports import STOP, Renewal, Stores
from ade.queue.enqueue import enqueue
from ade.queue.handlers import Mode, Registry
from ade.queue.payloads import Payloads
from ade.queue.plans import TaskDefaults
from ade.version import VERSION
from ade.worker.children import call_of
from ade.worker.desk import Desk, facts_of
from ade.worker.duties import Duty, standard_duties
from ade.worker.finish import Finisher
from ade.worker.guardian import Brief, GuardianProcess, GuardianSpec
from ade.worker.lease import LeaseThread
from ade.worker.loops import keep_up
from ade.worker.options import SweepOptions, WorkerOptions
from ade.worker.outputs import OutputBuffer
from ade.worker.perform import Middleware, Performer
from ade.worker.probe import Probe
from ade.worker.pump import Pump
from ade.worker.run import Run, Stop
from ade.worker.runs import Runs
from ade.worker.shutdown import Handover, drain
from ade.worker.slate import HeldRun, Slate
from ade.worker.timer import SharedTimer

_LOST_MARGIN = 0.25  # of the lease: so long before it ends, a worker that cannot renew takes its runs for lost
log = structlog.get_logger("ade.worker")


class WorkerRuntime:
    """`run` works until told to stop. Everything from outside comes in here; nothing is found by itself."""

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
        duties: Sequence[Duty] = (),  # beyond the standard ones
        guardian: GuardianSpec | None = None,
        probe: Probe | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.stores = stores
        self.registry = registry
        self.options = options or WorkerOptions()
        self._payloads = payloads or Payloads(stores.blobs)
        self._middleware = middleware
        self._sweeps = sweeps or SweepOptions()
        self._defaults = defaults or TaskDefaults()
        self._more_duties = tuple(duties)
        self._guardian_spec = guardian
        self._probe = probe or Probe()
        self._dice = dice
        self._started_at = stores.clock.now()
        self._draining = False
        self._slate: Slate | None = None
        self._pump: Pump | None = None
        self._runs: Runs | None = None
        self.hostname = socket.gethostname()
        self.id = f"{self.hostname}-{os.getpid()}-{secrets.token_hex(4)}"

    def record(self) -> Worker:
        """The worker as it describes itself now. Also called from the lease thread."""
        pump, runs = self._pump, self._runs
        return Worker(
            id=self.id,
            hostname=self.hostname,
            pid=os.getpid(),
            started_at=self._started_at,
            version=VERSION,
            queues=self.options.queues,
            names=tuple(sorted(self.registry.names())),
            concurrency=self.options.concurrency,
            running=0 if runs is None else runs.performing,
            progress_at=self._started_at if pump is None else pump.progress_at,
            draining=self._draining,
        )
