"""What a worker is told about itself, apart from the handlers it has."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from ade.events.metrics_collector import MetricsOptions
from ade.locks.model import LockLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Times are seconds. The rules between them are checked where settings are read."""

    concurrency: int = 100  # tasks held at once, in whatever mode
    queues: tuple[str, ...] = ()  # empty: all
    batch: int = 100  # tasks claimed in one call at most
    threads: int = 32  # plain functions at once
    cpu_processes: int = 0  # process-mode functions at once; 0: one per core
    lease_s: float = 30.0
    heartbeat_s: float = 5.0
    poll_s: float = 1.0  # the slow look for work whose wake-up was lost
    grace_s: float = 20.0  # how long a stopping worker waits for what is running
    cancel_grace_s: float = 5.0  # how long a handler may take to end once it was told to
    agent: str | None = None  # whose capacity its runs use up; None: nobody's
    capabilities: tuple[str, ...] = ()  # beside those of its agent
    agent_max_tasks: int | None = None  # None: as the agent is known, or as many as `concurrency`
    lock_limits: LockLimits = field(default_factory=LockLimits)  # for what its runs lock
    deadlock_detection: bool = True
    guard_silence_s: float = 900.0  # the guardian keeps a silent worker's runs without a time-out for so long

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def child_limit(self) -> int:
        return self.cpu_processes or os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How often the quick duties are done, and how long things are kept."""

    interval_s: float = 1.0
    retention_s: float = 604_800.0
    event_retention_s: float = 2_592_000.0
    dead_letter_retention_s: float = 7_776_000.0
    effect_retention_s: float = 2_592_000.0
    inbox_retention_s: float = 7_776_000.0
    archive_dir: Path | None = None  # None: pruned tasks are not archived
    prune_batch: int = 1_000
    figures: MetricsOptions | None = field(default_factory=MetricsOptions)  # None: nothing is counted
