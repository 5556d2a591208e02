"""What a worker that runs agents does beside its tasks: it feeds conversations and clears away what is left over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ade.agents.pumping.agent_turns import AgentTurns
from ade.agents.pumping.house import PumpHouse
from ade.agents.pumping.options import PumpOptions
from ade.agents.reaping import end_abandoned
from ade.app.agent_types import places_of
from ade.core.agent_runs.names import is_run, type_of
from ade.logs import Log
from ade.settings import Settings

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.app.opening import Opened

_CLEARING_S = 3600.0
log = Log("ade.agents")


@asynccontextmanager
async def agent_duties(app: "Ade", opened: "Opened", settings: Settings) -> AsyncIterator[None]:
    """As long as the block lasts. At its end what is being fed has some time left."""
    ended = await asyncio.to_thread(end_abandoned)
    if ended:
        log.warning("agents.abandoned_ended", processes=ended)
    stop = asyncio.Event()
    clearing = asyncio.create_task(_clear(settings))
    feeding = asyncio.create_task(_feed(app, opened, settings, stop))
    try:
        yield
    finally:
        stop.set()
        clearing.cancel()
        await asyncio.gather(feeding, clearing, return_exceptions=True)


async def _feed(app: "Ade", opened: "Opened", settings: Settings, stop: asyncio.Event) -> None:
    if settings.agents.pumps == 0:
        return
    consumers = {}
    for handler in app.registry:
        if is_run(handler.name):
            template = app.template_of(handler.definition)
            turns = AgentTurns(opened.stores, app.store_tasks, type_of(handler.name), template=template)
            consumers[turns.name] = turns
    options = PumpOptions(most_pumps=settings.agents.pumps, lease_s=settings.worker.lease_s)
    await PumpHouse(opened.stores, consumers, options).run(stop)


async def _clear(settings: Settings) -> None:
    places = places_of(settings.agents)
    while True:
        removed = await asyncio.to_thread(places.remove_old, settings.sweep.retention_s)
        if removed:
            log.info("agents.files_removed", folders=removed)
        await asyncio.sleep(_CLEARING_S)
