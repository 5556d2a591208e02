"""The worker as others see it: given what it needs, it runs until told to stop."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Sequence

from ade.logs import Log
from ade.ports import Stores
from ade.queue.defaults import TaskDefaults
from ade.queue.handlers import Mode, Registry
from ade.queue.payloads import Payloads
from ade.worker.children import check_importable
from ade.worker.duties import Duty
from ade.worker.guardian import GuardianSpec
from ade.worker.options import SweepOptions, WorkerOptions
from ade.worker.perform import Middleware
from ade.worker.probe import Probe
from ade.worker.shift import Setup, Shift
from ade.worker.shutdown import Handover

log = Log("ade.worker")


class WorkerRuntime:
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
        duties: Sequence[Duty] = (),  # beyond the standard ones
        guardian: GuardianSpec | None = None,  # None: no guardian process
        probe: Probe | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        for handler in registry:
            if handler.mode is Mode.PROCESS:
                check_importable(handler)
        self._shift: Shift | None = None
        hostname = socket.gethostname()
        self.id = f"{hostname}-{os.getpid()}-{os.urandom(4).hex()}"
        self._setup = Setup(
            stores=stores,
            registry=registry,
            options=options or WorkerOptions(),
            payloads=payloads or Payloads(stores.blobs),
            middleware=tuple(middleware),
            sweeps=sweeps or SweepOptions(),
            defaults=defaults or TaskDefaults(),
            duties=tuple(duties),
            guardian=guardian,
            probe=probe or Probe(),
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
        shift = self._shift = Shift(setup, hurry or asyncio.Event())
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
