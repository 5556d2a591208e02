"""An app at work: its settings become a worker's options, its schedules are stored, its handlers run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ade.app.auditing import audit_duties
from ade.app.guarding import RENEWER, Place
from ade.app.webhooks import register_webhooks
from ade.insight.figures.keeping import FigureOptions
from ade.queue.schedules import declare
from ade.settings import Settings
from ade.wiring import lock_limits
from ade.worker.guardian import GuardianSpec
from ade.worker.options import SweepOptions, WorkerOptions
from ade.worker.probe import Probe
from ade.worker.runtime import WorkerRuntime
from ade.worker.shutdown import Handover

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.app.opening import Opened
    from ade.worker.perform import Middleware


def worker_options(settings: Settings) -> WorkerOptions:
    worker = settings.worker
    return WorkerOptions(
        concurrency=worker.concurrency,
        queues=worker.queues,
        batch=worker.batch,
        threads=worker.threads,
        cpu_processes=worker.cpu_processes,
        lease_s=worker.lease_s,
        heartbeat_s=worker.heartbeat_s,
        poll_s=worker.poll_s,
        grace_s=worker.grace_s,
        lock_limits=lock_limits(settings),
        deadlock_detection=settings.locks.deadlock_detection,
        agent=worker.agent,
        agent_max_tasks=worker.max_tasks,
        capabilities=worker.capabilities,
    )


def figure_options(settings: Settings) -> FigureOptions | None:
    kept = settings.figures
    if not kept.enabled:
        return None
    return FigureOptions(minutes_kept_s=kept.minutes_kept_s, hours_kept_s=kept.hours_kept_s, groups=kept.groups)


def sweep_options(settings: Settings) -> SweepOptions:
    sweep = settings.sweep
    return SweepOptions(
        interval_s=sweep.interval_s,
        retention_s=sweep.retention_s,
        event_retention_s=settings.events.retention_s,
        dead_letter_retention_s=sweep.dead_letter_retention_s,
        effect_retention_s=sweep.effect_retention_s,
        inbox_retention_s=sweep.inbox_retention_s,
        archive_dir=None if sweep.archive_dir is None else Path(sweep.archive_dir),
        prune_batch=sweep.prune_batch,
        figures=figure_options(settings),
    )


def guardian_spec(settings: Settings) -> GuardianSpec | None:
    """None where no other process could renew: a store in memory."""
    if not settings.worker.lease_guard or settings.store.url == "memory://":
        return None
    return GuardianSpec(RENEWER, msgspec.json.encode(Place(settings.store.url, settings)).decode())


def add_agents(app: "Ade") -> None:
    """The agent types that the settings choose become tasks of the app; most apps have none, and load nothing for it.

    Raises InvalidProfile, UnknownName.
    """
    agents = app.settings.agents
    if agents.types or agents.profiles or any(Path(folder).expanduser().is_dir() for folder in agents.folders):
        from ade.app.agent_types import register_agents

        register_agents(app)


def agents_beside(app: "Ade", opened: "Opened", settings: Settings) -> AbstractAsyncContextManager[None]:
    """What belongs to agents while a worker works: their conversations are fed, and what is old is removed."""
    from ade.core.agent_runs.names import is_run

    if not any(is_run(name) for name in app.registry.names()):
        return nullcontext()
    from ade.app.agent_duties import agent_duties

    return agent_duties(app, opened, settings)


def tracing(settings: Settings) -> "list[Middleware]":
    """The outermost middleware, if traces are wanted. Raises DriverMissing."""
    if not settings.traces.enabled:
        return []
    from ade.worker.tracing import open_spans

    return [open_spans()]


async def work(
    app: "Ade",
    settings: Settings,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
    probe: Probe | None = None,
) -> Handover:
    """One worker of this app, until `stop` is set. Answers what it had to hand back."""
    add_agents(app)
    register_webhooks(app)
    opened = await app.open()
    for schedule in app.schedules:
        await declare(opened.stores, schedule)
    async with (
        audit_duties(settings.store.url, opened.stores, settings.events.audit_url) as duties,
        agents_beside(app, opened, settings),
    ):
        runtime = WorkerRuntime(
            opened.stores,
            app.registry,
            worker_options(settings),
            payloads=opened.payloads,
            middleware=(*tracing(settings), *app.middlewares),
            sweeps=sweep_options(settings),
            defaults=app.defaults,
            duties=duties,
            guardian=guardian_spec(settings),
            probe=probe,
        )
        return await runtime.run(stop, hurry)


@asynccontextmanager
async def beside(work: Callable[[asyncio.Event], Coroutine[Any, Any, Handover]]) -> AsyncIterator[None]:
    """The work goes on while the block lasts. If it fails, the block is cancelled: it may wait for what never comes."""
    stop, block = asyncio.Event(), asyncio.current_task()
    assert block is not None
    working = asyncio.create_task(work(stop))
    has_cut = False

    def cut(_: object) -> None:
        nonlocal has_cut
        if not stop.is_set():
            has_cut = True
            block.cancel()

    working.add_done_callback(cut)
    try:
        yield
    finally:
        stop.set()
        if has_cut:
            block.uncancel()
        await working  # raises what it failed of, in the place of our own cancellation
