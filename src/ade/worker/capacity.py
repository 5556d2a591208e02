"""Agent capacity of a worker: each run holds a unit of the agent's capacity from before its claim until its end."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from ade.agents.model import DESCRIPTION, Agent, check_agent, registration
from ade.errors import AdeError
from ade.logs import Log
from ade.stores.ports import Clock
from ade.stores.resource_ports import AgentStore
from ade.worker.backend import WorkerOptions

_LINGER_S = 0.002  # units of finished runs can be released with the next claim: one call instead of two
_PAUSE_S = 1.0  # after a release that failed
log = Log("ade.worker")


class AgentCapacity:
    """The capacity units a worker holds for its agent.

    `held` contains the worker's runs by ID. A run that is neither held nor being claimed needs no unit.
    """

    def __init__(
        self,
        store: AgentStore,
        clock: Clock,
        options: WorkerOptions,
        worker_id: str,
        held: Mapping[str, object],
        changed: asyncio.Event,  # set when the agent's capabilities change
    ) -> None:
        assert options.agent is not None
        max_tasks = options.max_tasks
        wanted = options.concurrency if max_tasks is None else max_tasks
        check_agent(options.agent, wanted)
        self._changed = changed
        self._store = store
        self._clock = clock
        self._lease_ms = options.lease_ms
        self._worker_id = worker_id
        self._held = held
        self._keep = [name for name in DESCRIPTION if name != "max_tasks" or max_tasks is None]
        self._units: set[str] = set()  # run IDs that have a unit, as far as this worker knows
        self._asking: Collection[str] = ()  # the run IDs whose claim is in progress
        self._given: Collection[str] = ()  # the claiming run IDs that got a unit; read by the lease thread
        self._is_over = asyncio.Event()
        self.agent = Agent(id=options.agent, max_tasks=wanted)

    async def open(self) -> None:
        """Register the agent, or load its registration."""
        now = self._clock.now()
        wanted = Agent(id=self.agent.id, max_tasks=self.agent.max_tasks, registered_at=now)
        told = registration(wanted, at=now, actor=self._worker_id)
        self.agent = await self._store.register(wanted, keep=self._keep, event=told)

    async def take(self, run_ids: Sequence[str]) -> list[str]:
        """Take units for runs about to be claimed, as far as available, and release those of finished runs."""
        self._asking, self._given = frozenset(run_ids), ()
        over = self._over()
        self._units.update(run_ids)  # even if the response is lost
        given = await self._store.take(self.agent.id, run_ids, lease_ms=self._lease_ms, over=over)
        self._units.difference_update(over, set(run_ids).difference(given))
        self._asking = self._given = frozenset(given)
        return given

    def claimed(self) -> None:
        """Record that the claim was answered and its runs are held."""
        self._asking = self._given = ()
        self.look()

    def look(self) -> None:
        """Check for unused units, after a run may have ended."""
        if self.has_over:
            self._is_over.set()

    @property
    def has_over(self) -> bool:
        """Whether some units are unused. Every held run has one, so counting is enough."""
        return len(self._units) > len(self._held) + len(self._asking)

    async def work(self) -> None:
        """Release unused units, unless the next claim does."""
        while True:
            await self._is_over.wait()
            self._is_over.clear()
            await asyncio.sleep(_LINGER_S)
            if not await self._release():
                await asyncio.sleep(_PAUSE_S)
                self._is_over.set()

    async def close(self) -> None:
        """Release all units after the last claim. Units that cannot be released expire with their lease."""
        self._asking = self._given = ()
        await self._release()

    def renew(self, held: Mapping[str, str], call_on_loop: Callable[[Callable[[], None]], object]) -> None:
        """Renew the units of these runs and of runs being claimed. For the lease thread; never raises."""
        holders, before = [*held, *self._given], self.agent
        try:
            self.agent = self._store.renew(self.agent, holders, lease_ms=self._lease_ms)
        except AdeError as error:  # its runs have their own leases and continue
            log.warning("capacity.not_renewed", agent=self.agent.id, error=str(error))
        finally:
            with suppress(RuntimeError):  # the loop is closed
                call_on_loop(lambda: self._renewed(holders, is_changed=self.agent.capabilities != before.capabilities))

    def _renewed(self, holders: Sequence[str], *, is_changed: bool) -> None:
        """Track the units of runs that ended during the renewal: they were renewed and must be released."""
        self._units.update(holder for holder in holders if holder not in self._held)
        self.look()
        if is_changed:
            self._changed.set()

    async def _release(self) -> bool:
        over = self._over()
        if over:
            try:
                await self._store.release(self.agent.id, over)
            except AdeError as error:
                log.warning("capacity.not_released", agent=self.agent.id, units=len(over), error=str(error))
                return False
            self._units.difference_update(over)
        return True

    def _over(self) -> list[str]:
        return [run_id for run_id in self._units if run_id not in self._held and run_id not in self._asking]
