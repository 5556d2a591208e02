"""Runs a worker for an app against a server over HTTP, without access to the store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ade.accounts.model import NotAuthenticated
from ade.composition.app_store import OpenStore, StoreOpener
from ade.composition.worker import tracing, worker_options
from ade.errors import InvalidTask, NeedsStore
from ade.logs import Log
from ade.settings import Settings, SettingsError
from ade.tasks.handlers import HandlerMode, Registry
from ade.worker.backend import WorkerOptions
from ade.worker.child_pool import check_importable
from ade.worker.remote.backend import HttpBackend, servable
from ade.worker.remote.connection import ServerConnection
from ade.worker.supervisor import Handover
from ade.worker.worker import TaskWorker

if TYPE_CHECKING:
    from ade.app.ade import Ade

_SHORTEST_LEASE_S, _LONGEST_LEASE_S = 1.0, 3_600.0
log = Log("ade.worker")


async def work_over_http(
    app: "Ade",
    url: str,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
    *,
    token: str | None = None,
    allow_plain: bool = False,
) -> Handover:
    """Run one worker of this app until `stop` is set, or its token is revoked, which also sets `stop`. Returns the fate
    of its unfinished tasks.

    `token` defaults to ADE_TOKEN. Raises InvalidTask, SettingsError, NotAuthenticated, NotPermitted.
    """
    options = _options(app.settings)
    registry = _registry(app)
    reach = ServerConnection(url, token, options, allow_plain=allow_plain)
    middleware = (*tracing(app.settings), *app.middlewares)
    try:
        with _without_store(app, url):
            backend = HttpBackend(reach, registry, options, on_rejected=stop.set)
            worker = TaskWorker(backend, registry, options, middleware=middleware)
            handover = await worker.run(stop, hurry or asyncio.Event())
            if backend.rejected is not None:
                raise NotAuthenticated(
                    "The server rejected the token of this worker, so the worker stopped. Create a token, set"
                    " ADE_TOKEN, and start the worker again."
                )
            return handover
    finally:
        await reach.close()


def _options(settings: Settings) -> WorkerOptions:
    """Return the worker options. Raises SettingsError for settings that need direct access to the store."""
    if settings.agents.types:
        raise SettingsError(
            "agents run in workers on the store itself, not behind HTTP; omit agents.types, or use a store",
            names=("agents.types",),
        )
    if settings.worker.max_tasks is not None:
        raise SettingsError(
            "the capacity of an agent is set on the server: `ade agents register` there, not worker.max_tasks here",
            names=("worker.max_tasks",),
        )
    options = worker_options(settings)
    if not _SHORTEST_LEASE_S <= options.lease_s <= _LONGEST_LEASE_S:
        raise SettingsError(
            f"behind HTTP worker.lease_s is {_SHORTEST_LEASE_S:g} to {_LONGEST_LEASE_S:g} seconds, not"
            f" {options.lease_s:g}",
            names=("worker.lease_s",),
        )
    return options


def _registry(app: "Ade") -> Registry:
    """Return the handlers that this worker can run. Raises InvalidTask if there are none."""
    handlers, left = servable(app.registry)
    if left:
        log.warning(
            "tasks.left_to_others", names=left, reason="they have a preview or a rollback: workers on the store"
        )
    if app.schedules:
        names = [schedule.name for schedule in app.schedules]
        log.warning("schedules.not_stored", names=names, hint="a worker on the store does, or `ade schedules add`")
    if not handlers:
        raise InvalidTask("the app has no task that a worker behind HTTP may run: all have a preview or a rollback")
    for handler in handlers:
        if handler.mode is HandlerMode.PROCESS:
            check_importable(handler)
    return Registry({handler.name: handler for handler in handlers})


@contextmanager
def _without_store(app: "Ade", url: str) -> Iterator[None]:
    """Make handlers that use the store of the app fail with NeedsStore, instead of writing to an unused local file."""

    async def refuse() -> OpenStore:
        raise NeedsStore(
            f"this worker reaches ADE through {url} and has no store; use ctx in a task, or `ade.connect` for the rest"
        )

    usual, app.opener = app.opener, StoreOpener(refuse)
    try:
        yield
    finally:
        app.opener = usual
