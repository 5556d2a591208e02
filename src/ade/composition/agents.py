"""Background jobs of a worker that runs agents: feeds conversations, and cleans up stale processes and files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ade.agents.conversations.agent_consumer import AgentConsumer
from ade.agents.conversations.consumer_loop import ConversationOptions
from ade.agents.conversations.scheduler import ConversationScheduler
from ade.agents.handlers import places_of
from ade.agents.processes.process_tree import end_abandoned
from ade.agents.runs.files import RunFiles, StaleRunDirectory
from ade.agents.runs.hooks import remove_abandoned
from ade.common.calls import either
from ade.errors import AdeError, InvalidInbox
from ade.logs import Log
from ade.settings import Settings
from ade.stores.ports import Stores
from ade.tasks.identifiers import is_run, is_task_id, type_of

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.composition.app_store import OpenStore

_CLEARING_S = 3600.0
_FEEDING_AGAIN_S = 10.0
_SHORTEST_LEASE_S = 1.0  # of a conversation; task leases can be shorter
log = Log("ade.agents")


@asynccontextmanager
async def agent_jobs(app: "Ade", opened: "OpenStore", settings: Settings) -> AsyncIterator[None]:
    """Run the background jobs while the block runs. At its end, current conversation turns can still finish."""
    ended = await asyncio.to_thread(end_abandoned)
    await asyncio.to_thread(remove_abandoned)
    if ended:
        log.warning("agents.abandoned_ended", processes=ended)
    stop = asyncio.Event()
    clearing = asyncio.create_task(_clear(opened.stores, settings))
    feeding = asyncio.create_task(_keep_feeding(app, opened, settings, stop))
    try:
        yield
    finally:
        stop.set()
        clearing.cancel()
        await asyncio.gather(feeding, clearing, return_exceptions=True)


async def _keep_feeding(app: "Ade", opened: "OpenStore", settings: Settings, stop: asyncio.Event) -> None:
    """Run `_feed`, and restart it after a pause. Errors are logged, because this task is awaited only at shutdown."""
    while settings.agents.pumps and not stop.is_set():
        try:
            await _feed(app, opened, settings, stop)
        except Exception:
            log.exception("agents.feeding_failed", again_in_s=_FEEDING_AGAIN_S)
            await either(stop, _FEEDING_AGAIN_S)


async def _feed(app: "Ade", opened: "OpenStore", settings: Settings, stop: asyncio.Event) -> None:
    consumers = {}
    for handler in app.registry:
        if is_run(handler.name):
            template = app.template_of(handler.definition)
            turns = AgentConsumer(opened.stores, app.store_tasks, type_of(handler.name), template=template)
            consumers[turns.name] = turns
    lease_s = max(settings.worker.lease_s, _SHORTEST_LEASE_S)
    options = ConversationOptions(most_pumps=settings.agents.pumps, lease_s=lease_s)
    await ConversationScheduler(opened.stores, consumers, options).run(stop)


async def _clear(stores: Stores, settings: Settings) -> None:
    """Periodically remove old files of deleted tasks. Errors are logged, and the removal is retried."""
    while True:
        try:
            removed = await remove_old_files(stores, places_of(settings.agents), settings.sweep.retention_s)
            if removed:
                log.info("agents.files_removed", folders=removed)
        except (AdeError, OSError) as error:
            log.warning("agents.files_not_removed", error=str(error))
        await asyncio.sleep(_CLEARING_S)


async def remove_old_files(stores: Stores, places: RunFiles, older_than_s: float) -> int:
    """Remove run directories older than this that no task or conversation uses. Returns how many."""
    old = await asyncio.to_thread(places.old_folders, older_than_s)
    removed = 0
    for one in old:
        if not await _is_used(stores, one):
            await asyncio.to_thread(places.remove, one)
            removed += 1
    return removed


async def _is_used(stores: Stores, old: StaleRunDirectory) -> bool:
    """Return whether an existing task has used the directory, or an existing conversation has its name."""
    tasks = [user for user in old.users if is_task_id(user)]
    if any(task is not None for task in await stores.tasks.get(tasks)):
        return True
    try:
        return (await stores.inboxes.load(old.name)).version > 0
    except InvalidInbox:
        return False
