"""The pump: claim, perform, settle, commit. Everything on one event loop, everything in batches."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from ade.core.errors import AdeError
from ade.core.lifecycle import Status
from ade.core.outcome import Outcome, Released, Succeeded
from ade.core.records import Task
from ade.core.task import run_timeout_ms
from ade.ports import ClaimRequest, Stores
from ade.queue.handlers import Mode, Registry
from ade.worker.failures import timed_out
from ade.worker.finish import Finisher
from ade.worker.options import WorkerOptions
from ade.worker.perform import Performer, own_cancellation
from ade.worker.probe import CLAIMED, PERFORMED, Probe
from ade.worker.run import MUTE, Run, Stop
from ade.worker.timer import Entry, SharedTimer
