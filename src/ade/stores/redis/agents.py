"""Agent store on Redis: an agent and all its capacity units are in one partition."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ade.agents.model import DESCRIPTION, Agent, AgentStatus, AgentUse, registration
from ade.events.model import Event
from ade.stores.ports import AGENT
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import packed_event
from ade.stores.redis.partitions import partition_of_key
from ade.stores.redis.wakeups import RedisWakeups

_decode = msgspec.msgpack.Decoder(Agent).decode


class RedisAgents:
    """Agents and the leases on their capacity units."""

    def __init__(self, link: RedisClient, wakeups: RedisWakeups) -> None:
        self._link = link
        self._wakeups = wakeups

    async def register(self, agent: Agent, *, keep: Collection[str] = (), event: Event | None = None) -> Agent:
        fields = [field for field in DESCRIPTION if field not in keep]
        about = {"record": structs.asdict(agent), "fields": fields, "event": _told(event), "token": new_token()}
        [record] = await self._apply("register", agent.id, about)
        return _decode(record)

    async def set_status(self, agent_id: str, status: AgentStatus, event: Event | None = None) -> Agent | None:
        about = {"status": status, "event": _told(event), "token": new_token()}
        found = await self._apply("set_status", agent_id, about)
        return _decode(found[0]) if found else None

    async def take(
        self, agent_id: str, holders: Sequence[str], *, lease_ms: int, over: Sequence[str] = ()
    ) -> list[str]:
        [given] = await self._apply("acquire", agent_id, {"holders": holders, "lease_ms": lease_ms, "over": over})
        return [holder.decode() for holder in given]

    def renew(self, agent: Agent, holders: Sequence[str], *, lease_ms: int) -> Agent:
        now = self._link.clock.now()
        request = {
            "verb": "renew",
            "agent": agent.id,
            "holders": holders,
            "lease_ms": lease_ms,
            "record": structs.asdict(agent),
            "event": packed_event(registration(agent, at=now)),
        }
        return _decode(self._link.run_blocking("agent", self._partition(agent.id), request))

    async def release(self, agent_id: str, holders: Sequence[str]) -> None:
        await self.take(agent_id, (), lease_ms=0, over=holders)

    async def list_agents(self) -> list[AgentUse]:
        places = range(self._link.partitions)
        answers = await asyncio.gather(*(self._link.run("agent_list", place, {}) for place in places))
        found = [
            AgentUse(agent=_decode(record), leases=_leases(units)) for answer in answers for record, units in answer
        ]
        return sorted(found, key=lambda use: use.agent.id)

    async def remove(self, agent_id: str, event: Event | None = None) -> bool:
        request = {"verb": "remove", "agent": agent_id, "event": _told(event), "token": new_token()}
        return bool(await self._link.run("agent", self._partition(agent_id), request))

    async def _apply(self, verb: str, agent_id: str, about: dict[str, Any]) -> list[Any]:
        """Run lua/agent.lua. If it notified processes that wait for a unit, wake the waiters of this process too."""
        partition = self._partition(agent_id)
        request = {"verb": verb, "agent": agent_id, "clock": self._link.verified(partition), **about}
        is_notified, *answer = await self._link.run("agent", partition, request)
        if is_notified:
            self._wakeups.published(AGENT)
        return list(answer)

    def _partition(self, agent_id: str) -> int:
        return partition_of_key(agent_id, self._link.partitions)


def _told(event: Event | None) -> Any:
    return event is not None and packed_event(event)


def _leases(units: Sequence[bytes]) -> dict[str, int]:
    return {holder.decode(): int(end) for holder, end in zip(units[::2], units[1::2], strict=True)}
