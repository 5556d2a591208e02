"""A worker under an agent: each of its runs holds a unit of the agent's capacity, from before its claim to its end."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from ade.agents.model import DESCRIPTION, Agent, check_agent, registration
from ade.errors import AdeError
from ade.logs import Log
from ade.stores.ports import Clock
from ade.stores.resource_ports import AgentStore
from ade.worker.backend import WorkerOptions

_LINGER_S = 0.002  # what is over may go with the next claim, which then is one call instead of two
_PAUSE_S = 1.0  # after a release that failed
log = Log("ade.worker")


class AgentCapacity:
    """`held` are the runs of the worker by id; whoever is not among them and asks for no task has no use for a unit."""

    def __init__(
        self,
        store: AgentStore,
        clock: Clock,
        options: WorkerOptions,
        worker_id: str,
        held: Mapping[str, object],
        changed: asyncio.Event,  # set when the agent can do something else than before
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
        self._units: set[str] = set()  # run ids that have a unit, as far as anybody here knows
        self._asking: Collection[str] = ()  # of those the ones whose claim is under way
        self._given: Collection[str] = ()  # of these the ones that were given a unit; read by the lease thread
        self._is_over = asyncio.Event()
        self.agent = Agent(id=options.agent, max_tasks=wanted)

    async def open(self) -> None:
        """Make the agent known, or find it as it is known."""
        now = self._clock.now()
        wanted = Agent(id=self.agent.id, max_tasks=self.agent.max_tasks, registered_at=now)
        told = registration(wanted, at=now, actor=self._worker_id)
        self.agent = await self._store.register(wanted, keep=self._keep, event=told)

    async def take(self, run_ids: Sequence[str]) -> list[str]:
        """Units for those who are about to be claimed, as far as there are any; what is over is given for them."""
        self._asking, self._given = frozenset(run_ids), ()
        over = self._over()
        self._units.update(run_ids)  # whether or not the answer is heard
        given = await self._store.take(self.agent.id, run_ids, lease_ms=self._lease_ms, over=over)
        self._units.difference_update(over, set(run_ids).difference(given))
        self._asking = self._given = frozenset(given)
        return given

    def claimed(self) -> None:
        """The claim was answered, and what it brought is held."""
        self._asking = self._given = ()
        self.look()

    def look(self) -> None:
        """Something may have ended."""
        if self.has_over:
            self._is_over.set()

    @property
    def has_over(self) -> bool:
        """Whether units are held for nothing. Every run that is held has one, so it is enough to count."""
        return len(self._units) > len(self._held) + len(self._asking)

    async def work(self) -> None:
        """Give back what is over, unless the next claim does."""
        while True:
            await self._is_over.wait()
            self._is_over.clear()
            await asyncio.sleep(_LINGER_S)
            if not await self._release():
                await asyncio.sleep(_PAUSE_S)
                self._is_over.set()

    async def close(self) -> None:
        """Nothing is claimed any more. What could not be given back ends with its lease."""
        self._asking = self._given = ()
        await self._release()

    def renew(self, held: Mapping[str, str], call_on_loop: Callable[[Callable[[], None]], object]) -> None:
        """Keep the units of these runs, and of those that are being claimed. For the lease thread; never raises."""
        holders, before = [*held, *self._given], self.agent
        try:
            self.agent = self._store.renew(self.agent, holders, lease_ms=self._lease_ms)
        except AdeError as error:  # its runs have leases of their own, and go on
            log.warning("capacity.not_renewed", agent=self.agent.id, error=str(error))
        finally:
            with suppress(RuntimeError):  # the loop is closed
                call_on_loop(lambda: self._renewed(holders, is_changed=self.agent.capabilities != before.capabilities))

    def _renewed(self, holders: Sequence[str], *, is_changed: bool) -> None:
        """Who ended meanwhile was given a unit again, and nobody else would ever give that back."""
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
