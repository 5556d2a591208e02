"""What the event log hears of a run: who runs, and at its end what it took."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from ade.agents.running.orders import Order, RunDesk
from ade.core.agent_runs import log as log_of_runs
from ade.core.agent_runs.results import AgentProgress, AgentResult
from ade.core.control import RunFailed
from ade.core.errors import AdeError
from ade.core.events import Event
from ade.core.failure import TaskError
from ade.logs import Log
from ade.ports import Stores

log = Log("ade.agents")


class ToldRun:
    """A desk that also tells the event log. `outcome` stays None if the run is cut short."""

    def __init__(self, stores: Stores, order: Order, desk: RunDesk, actor: str) -> None:
        self._stores = stores
        self._order = order
        self._desk = desk
        self._actor = actor
        self._progress: AgentProgress | None = None
        self._has_begun = False
        self.outcome: AgentResult | TaskError | None = None
        self.say, self.guard, self.allows = desk.say, desk.guard, desk.allows

    async def progress(self, progress: AgentProgress) -> None:
        self._progress = progress
        await self._desk.progress(progress)
        if not self._has_begun and (progress.session_id or progress.agent_id or progress.model):
            self._has_begun = True
            await self._enter(partial(log_of_runs.began, progress))

    async def end(self) -> None:
        if self._progress is not None:
            await self._enter(partial(log_of_runs.ended, self._progress, self.outcome))

    async def _enter(self, event: Callable[..., Event]) -> None:
        """Never the run's trouble: what it came to is told by its task."""
        order, at = self._order, self._stores.clock.now()
        made = event(task_id=order.task_id, run_id=order.run_id, at=at, actor=self._actor)
        try:
            await self._stores.documents.write((), [made])
        except AdeError as error:
            log.warning("agent_run.not_told", task_id=order.task_id, type=made.type, error=str(error))


@asynccontextmanager
async def told(stores: Stores, order: Order, desk: RunDesk, *, actor: str) -> AsyncIterator[ToldRun]:
    """As long as the run lasts; whoever runs it sets the outcome."""
    run = ToldRun(stores, order, desk, actor)
    try:
        yield run
    except RunFailed as failure:
        run.outcome = failure.failed.error
        raise
    finally:
        await run.end()
