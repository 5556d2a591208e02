"""Runs a worker for an app on its store, with deliveries, the audit copy, agents, and tracing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ade.composition.audit import open_audit
from ade.composition.stores import RENEWER, StoreLocation, lock_limits
from ade.errors import AdeError
from ade.events.audit_anchors import AnchorJob
from ade.events.audit_copy import AuditCopy, copy_events
from ade.settings import Settings
from ade.settings.sections import EventSettings
from ade.stores.ports import EventLog, Stores
from ade.tasks.identifiers import DELIVER, NOTIFY_PERSON, QUEUE, is_run
from ade.tasks.schedules import declare
from ade.worker.backend import WorkerOptions
from ade.worker.context import Context
from ade.worker.instrumentation import WorkerProbe, open_spans
from ade.worker.maintenance import MaintenanceJob
from ade.worker.supervisor import Handover
from ade.worker.watchdog import WatchdogSpec
from ade.worker.worker import WorkerService

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.composition.app_store import OpenStore
    from ade.notifications.sender import Notifier
    from ade.webhooks.sender import Deliverer
    from ade.worker.handler_call import Middleware


AT_ONCE = 4  # concurrent deliveries per webhook, across all workers


def register_webhooks(app: "Ade") -> None:
    """Register the webhook delivery task, so that every worker can deliver. The sender is imported on first use."""
    if DELIVER in app.registry.by_name:
        return
    deliverer: Deliverer | None = None

    async def deliver_message(ctx: Context, webhook_id: str, seq: int, replay: int = 0) -> str:
        nonlocal deliverer
        if deliverer is None:
            from ade.webhooks.sender import Deliverer  # 28 ms and 600 KiB, which most workers do not need

            deliverer = Deliverer(app)
        return await deliverer.deliver(webhook_id, seq, replay, attempt=ctx.attempt)

    app.task(name=DELIVER, queue=QUEUE, concurrency_per_key=AT_ONCE)(deliver_message)


def register_notifications(app: "Ade") -> None:
    """Register the task that notifies people, like `register_webhooks`."""
    if NOTIFY_PERSON in app.registry.by_name:
        return
    notifier: Notifier | None = None

    async def deliver_notification(account: str, delivery: str) -> str:
        nonlocal notifier
        if notifier is None:
            from ade.notifications.sender import Notifier

            notifier = Notifier(app)
        return await notifier.deliver(account, delivery)

    app.task(name=NOTIFY_PERSON, queue=QUEUE, concurrency_per_key=AT_ONCE)(deliver_notification)


_EVERY_S = 1.0
_PAGE = 5_000
_FAR_BEHIND = 20  # consecutive full pages: from here on, copy without pauses, however busy the worker is
_PAUSE_S = 10.0
_ROTATE_EVERY_S = 10.0


@asynccontextmanager
async def audit_jobs(
    url: str, stores: Stores, audit_url: str | None = None, events: EventSettings | None = None
) -> AsyncIterator[list[MaintenanceJob]]:
    """Provide the maintenance jobs that copy events to the audit copy, and anchor its head if the settings say so.

    In-memory stores have none by default.
    """
    if url == "memory://" and audit_url is None:
        yield []
        return
    async with open_audit(url, audit_url) as copy:
        copier = AuditCopyJob(stores.events, copy)
        jobs = [MaintenanceJob(name="audit", every_s=_EVERY_S, perform=copier.copy_page, may_run=copier.may_run)]
        if events is not None and events.audit_max_mb:
            folder = None if events.audit_archive_dir is None else Path(events.audit_archive_dir)
            rotate = partial(copy.rotate, events.audit_max_mb << 20, folder)
            jobs.append(MaintenanceJob(name="audit_rotation", every_s=_ROTATE_EVERY_S, perform=rotate))
        if events is not None and events.anchor_every_s:
            anchors = AnchorJob(stores, copy, events)
            jobs.append(MaintenanceJob(name="anchors", every_s=events.anchor_every_s, perform=anchors.anchor))
        yield jobs


class AuditCopyJob:
    """Copies events page by page. After an error it pauses: another process might be able to reach the audit copy."""

    def __init__(self, log: EventLog, copy: AuditCopy, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._copy = copy
        self._clock = clock
        self._full_pages = 0
        self._paused_until = float("-inf")

    def may_run(self) -> bool:
        """Return whether the pause after an error is over."""
        return self._clock() >= self._paused_until

    async def copy_page(self) -> int:
        """Copy a page of events. Returns how many, or 0 if the job can pause before the next page."""
        try:
            copied = await copy_events(self._log, self._copy, limit=_PAGE)
        except AdeError:
            self._paused_until = self._clock() + _PAUSE_S
            raise
        self._full_pages = self._full_pages + 1 if copied == _PAGE else 0
        return copied if self._full_pages >= _FAR_BEHIND else 0


def worker_options(settings: Settings) -> WorkerOptions:
    """Return the worker options of the settings."""
    limits, detects = lock_limits(settings), settings.locks.deadlock_detection
    return WorkerOptions(**structs.asdict(settings.worker), lock_limits=limits, deadlock_detection=detects)


def guardian_spec(settings: Settings, store_id: str = "") -> WatchdogSpec | None:
    """Return the watchdog of a worker. None if disabled, or if no other process can open the store (in memory)."""
    if not settings.worker.lease_guard or settings.store.url == "memory://":
        return None
    return WatchdogSpec(RENEWER, msgspec.json.encode(StoreLocation(settings.store.url, settings, store_id)).decode())


def add_agents(app: "Ade") -> None:
    """Register the agent types of the settings as tasks of the app. Without any, nothing is imported.

    Raises InvalidProfile, UnknownName.
    """
    agents = app.settings.agents
    if agents.types or agents.profiles or any(Path(folder).expanduser().is_dir() for folder in agents.folders):
        from ade.agents.handlers import register_agents

        register_agents(app)


def agents_beside(app: "Ade", opened: "OpenStore", settings: Settings) -> AbstractAsyncContextManager[None]:
    """Return the background jobs of agents for a worker; an empty context if the app runs no agents."""
    if not any(is_run(name) for name in app.registry.names()):
        return nullcontext()
    from ade.composition.agents import agent_jobs

    return agent_jobs(app, opened, settings)


def tracing(settings: Settings) -> "list[Middleware]":
    """Return the tracing middleware (the outermost one) if tracing is enabled. Raises DriverMissing."""
    if not settings.traces.enabled:
        return []
    return [open_spans()]


async def work(
    app: "Ade",
    settings: Settings,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
    probe: WorkerProbe | None = None,
) -> Handover:
    """Run one worker of this app until `stop` is set. Returns the fate of its unfinished tasks."""
    add_agents(app)
    register_webhooks(app)
    register_notifications(app)
    opened = await app.open()
    for schedule in app.schedules:
        await declare(opened.stores, schedule, actor=opened.author)
    async with (
        audit_jobs(settings.store.url, opened.stores, settings.events.audit_url, settings.events) as jobs,
        agents_beside(app, opened, settings),
    ):
        runtime = WorkerService(
            opened.stores,
            app.registry,
            worker_options(settings),
            payloads=opened.payloads,
            middleware=(*tracing(settings), *app.middlewares),
            settings=settings,
            jobs=jobs,
            guardian=guardian_spec(settings, opened.stores.id),
            probe=probe,
        )
        return await runtime.run(stop, hurry)


@asynccontextmanager
async def beside(work: Callable[[asyncio.Event], Coroutine[Any, Any, Handover]]) -> AsyncIterator[None]:
    """Run a worker while the block runs. If it fails, the block is cancelled, because it might wait indefinitely."""
    stop, block = asyncio.Event(), asyncio.current_task()
    assert block is not None
    working = asyncio.create_task(work(stop))
    was_cancelled = False

    def cancel_block(_: object) -> None:
        nonlocal was_cancelled
        if not stop.is_set():
            was_cancelled = True
            block.cancel()

    working.add_done_callback(cancel_block)
    try:
        yield
    finally:
        stop.set()
        if was_cancelled:
            block.uncancel()
        await working  # raises the error of the worker instead of the cancellation
