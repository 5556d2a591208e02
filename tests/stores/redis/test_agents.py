"""Capacity of agents on servers: repeated calls, a clock that goes back, keys that are lost or spoiled."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from ade.agents.model import EVENT_OF_STATUS, Agent, AgentStatus, registration
from ade.errors import StoreCorrupt
from ade.stores.ports import AGENT
from ade.stores.redis.agents import RedisAgents
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.invariants import broken_invariants
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.scan import PartitionScan
from ade.stores.redis.wakeups import RedisWakeups
from ade.testing import TestClock
from tests.domain import Event, RedisSettings, parse_url
from tests.servers.server import Server
from tests.stores.redis.ports import OnePort, RepeatingLink

OPTIONS = RedisSettings(allow_volatile=True, partitions=4)
CODER = Agent(id="coder", max_tasks=2)


class Office(OnePort):
    """The agents of one store, and a link to it whose calls can be repeated."""

    def __init__(self, link: RepeatingLink) -> None:
        super().__init__(link)
        self.store = RedisAgents(link, self.wakeups)
        self.units = f"{self.prefix}agent:units:coder"


@pytest.fixture
async def services(server: Server) -> AsyncIterator[Office]:
    opened = Office(RepeatingLink(parse_url(server.url), OPTIONS))
    yield opened
    await opened.close()


async def test_a_call_whose_answer_was_lost_does_no_harm_when_it_comes_again(services: Office) -> None:
    services.link.loses_answers = True
    draining = Event(type=EVENT_OF_STATUS[AgentStatus.DRAINING], at=1)

    await services.store.register(CODER, event=registration(CODER, at=1))
    assert await services.store.take("coder", ["a", "b", "c"], lease_ms=1_000) == ["a", "b"]
    assert await services.store.take("coder", ["c"], lease_ms=1_000, over=["a"]) == ["c"]
    drained = await services.store.set_status("coder", AgentStatus.DRAINING, draining)
    assert drained is not None
    await services.store.release("coder", ["b"])
    assert await services.store.remove("coder", Event(type="agent.removed", at=1)) is True

    assert await services.told() == ["agent.registered", "agent.draining", "agent.removed"]


async def test_a_late_repetition_does_not_undo_what_was_set_since(services: Office) -> None:
    await services.store.register(CODER)
    await services.store.set_status("coder", AgentStatus.DRAINING)
    await services.store.set_status("coder", AgentStatus.ACTIVE)

    await services.link.send_again("agent", 1)
    await services.link.send_again("agent", 0)

    [use] = await services.store.list_agents()
    assert use.agent.status is AgentStatus.ACTIVE


async def test_units_from_before_the_clock_went_back_last_no_longer_than_new_ones(services: Office) -> None:
    await services.store.register(CODER)
    await services.store.take("coder", ["dead", "dead too"], lease_ms=30_000)
    earlier = TestClock(datetime.fromtimestamp(services.clock.steady() / 1000 - 3_600, UTC))
    services.link.clock = earlier

    assert await services.store.take("coder", ["a"], lease_ms=30_000) == []
    earlier.advance(30)
    assert await services.store.take("coder", ["a"], lease_ms=30_000) == ["a"]


async def test_an_agent_that_the_server_has_lost_is_there_again_with_the_next_renewal(services: Office) -> None:
    known = await services.store.register(CODER)
    await services.store.take("coder", ["a"], lease_ms=30_000)
    await services.link.ask(0, ("FLUSHALL",))
    assert await services.store.take("coder", ["b"], lease_ms=30_000) == []

    await asyncio.to_thread(services.store.renew, known, ["a"], lease_ms=30_000)

    assert await services.store.take("coder", ["b", "c"], lease_ms=30_000) == ["b"]
    assert await services.told() == ["agent.registered"]


async def test_units_of_an_agent_that_is_not_known_are_found_and_taken_away(services: Office) -> None:
    await services.store.register(CODER)
    await services.store.take("coder", ["a"], lease_ms=30_000)
    assert await broken_invariants(services.link, Partitions(services.link)) == []
    await services.link.ask(0, ("DEL", f"{services.link.names[0].prefix}agents"))

    [sentence] = await broken_invariants(services.link, Partitions(services.link))
    await PartitionScan(services.link, 0, mend=True).everything()

    assert sentence == "every_unit_has_its_agent: there are units of agent coder, which does not exist"
    assert await broken_invariants(services.link, Partitions(services.link)) == []


async def test_a_key_of_a_wrong_type_is_named_and_nothing_is_written(services: Office) -> None:
    await services.store.register(CODER)
    await services.link.ask(0, ("SET", services.units, "x"))

    with pytest.raises(StoreCorrupt, match=services.units):
        await services.store.take("coder", ["a"], lease_ms=30_000)
    with pytest.raises(StoreCorrupt, match=services.units):
        await services.store.set_status("coder", AgentStatus.OFFLINE)

    assert await services.told() == []


async def test_another_process_hears_of_a_unit_that_is_free(services: Office) -> None:
    other = RedisClient(services.link.place, OPTIONS)
    wakeups = RedisWakeups(other)
    try:
        await wakeups.wait(AGENT, wakeups.generation(AGENT), 5)  # the subscription is there
        await services.store.register(CODER)
        await wakeups.wait(AGENT, wakeups.generation(AGENT) - 1, 5)
        await services.store.take("coder", ["a", "b"], lease_ms=30_000)
        seen = wakeups.generation(AGENT)

        await services.store.release("coder", ["a"])
        await wakeups.wait(AGENT, seen, 5)

        assert wakeups.generation(AGENT) > seen
    finally:
        wakeups.close()
        await other.close()
