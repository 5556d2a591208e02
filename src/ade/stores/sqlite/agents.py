"""AgentStore on SQLite: the capacity rules of `ade.agents.model`, applied inside a write transaction."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

import apsw
from msgspec import structs

from ade.agents.model import Agent, AgentStatus, AgentUse, described, granted, registration
from ade.events.model import Event
from ade.stores.ports import AGENT, Clock, Wakeups
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import run
from ade.stores.sqlite.event_log import enter
from ade.tasks.model import as_text

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import LeaseWriter, Writer

Answer = TypeVar("Answer")


class SqliteAgents:
    """AgentStore: agents and the leases on the units of their capacity."""

    def __init__(
        self, writer: "Writer", readers: "Readers", clock: Clock, wakeups: Wakeups, renewals: "LeaseWriter"
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._wakeups = wakeups
        self._renewals = renewals

    async def register(self, agent: Agent, *, keep: Collection[str] = (), event: Event | None = None) -> Agent:
        def change(connection: apsw.Connection) -> Agent:
            steady = self._clock.steady()
            known = _get(connection, agent.id)
            described_agent = agent if known is None else described(known, agent, keep)
            after = structs.replace(described_agent, seen_until=max(described_agent.seen_until, steady))
            _put(connection, after)
            if described_agent != known:
                enter(connection, event)
            return after

        return await self._opening_up(agent.id, change)

    async def set_status(self, agent_id: str, status: AgentStatus, event: Event | None = None) -> Agent | None:
        def change(connection: apsw.Connection) -> Agent | None:
            known = _get(connection, agent_id)
            if known is None or known.status is status:
                return known
            after = structs.replace(known, status=status)
            _put(connection, after)
            enter(connection, event)
            return after

        return await self._opening_up(agent_id, change)

    async def take(
        self, agent_id: str, holders: Sequence[str], *, lease_ms: int, over: Sequence[str] = ()
    ) -> list[str]:
        def change(connection: apsw.Connection) -> list[str]:
            steady = self._clock.steady()
            run(connection, "agents.release", agent_id=agent_id, steady=steady, holders=packed(list(over)))
            agent = _get(connection, agent_id)
            if agent is None:
                return []
            live = _live(connection, agent_id, steady)
            given = granted(agent, holders, live)
            _lend(connection, agent_id, [each for each in given if each not in live], steady + lease_ms)
            return given

        return await self._opening_up(agent_id, change)

    def renew(self, agent: Agent, holders: Sequence[str], *, lease_ms: int) -> Agent:
        def change(connection: apsw.Connection) -> Agent:
            steady = self._clock.steady()
            known = _get(connection, agent.id)
            if known is None:
                enter(connection, registration(agent, at=self._clock.now()))
            after = structs.replace(known or agent, seen_until=steady + lease_ms)
            _put(connection, after)
            _lend(connection, agent.id, holders, steady + lease_ms)
            return after

        return self._renewals.call(change)

    async def release(self, agent_id: str, holders: Sequence[str]) -> None:
        await self.take(agent_id, (), lease_ms=0, over=holders)

    async def list_agents(self) -> list[AgentUse]:
        def read(connection: apsw.Connection) -> list[AgentUse]:
            uses = {row[0]: AgentUse(agent=_agent(row), leases={}) for row in run(connection, "agents.list")}
            for agent_id, holder, until in run(connection, "agents.list_leases", steady=self._clock.steady()):
                if agent_id in uses:
                    uses[agent_id].leases[holder] = until
            return list(uses.values())

        return await self._readers.call(read)

    async def remove(self, agent_id: str, event: Event | None = None) -> bool:
        def change(connection: apsw.Connection) -> bool:
            run(connection, "agents.release_all", agent_id=agent_id)
            is_gone = bool(run(connection, "agents.remove", id=agent_id))
            if is_gone:
                enter(connection, event)
            return is_gone

        removed: bool = await self._writer.call(change)
        return removed

    async def _opening_up(self, agent_id: str, change: Callable[[apsw.Connection], Answer]) -> Answer:
        """Write a change, and send an AGENT wake-up if it makes units available when none were before."""

        def write(connection: apsw.Connection) -> tuple[Answer, bool]:
            had_room = bool(run(connection, "agents.has_capacity", id=agent_id))
            answer = change(connection)
            return answer, not had_room and bool(run(connection, "agents.has_capacity", id=agent_id))

        answer, is_news = await self._writer.call(write)
        if is_news:
            self._wakeups.notify(AGENT)
        return answer  # type: ignore[no-any-return]  # the return value of `change`


def _get(connection: apsw.Connection, agent_id: str) -> Agent | None:
    rows = run(connection, "agents.get", id=agent_id)
    return _agent(rows[0]) if rows else None


def _agent(row: tuple[str, int, str, int, int, str | None, str]) -> Agent:
    agent_id, max_tasks, status, registered_at, seen_until, kind, capabilities = row
    return Agent(
        id=agent_id,
        max_tasks=max_tasks,
        type=kind,
        capabilities=tuple(capabilities.split(",")) if capabilities else (),
        status=AgentStatus(status),
        registered_at=registered_at,
        seen_until=seen_until,
    )


def _put(connection: apsw.Connection, agent: Agent) -> None:
    run(connection, "agents.put", **{**structs.asdict(agent), "capabilities": as_text(agent.capabilities)})


def _live(connection: apsw.Connection, agent_id: str, steady: int) -> set[str]:
    return {holder for (holder,) in run(connection, "agents.list_holders", agent_id=agent_id, steady=steady)}


def _lend(connection: apsw.Connection, agent_id: str, holders: Sequence[str], until: int) -> None:
    if holders:
        run(connection, "agents.acquire", agent_id=agent_id, holders=packed(list(holders)), until=until)
