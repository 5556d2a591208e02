"""Agents over the operations: registered, heard of, drained; and nobody else's."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Struct

from ade.agents import api as agents_api
from ade.agents.api import ListAgents, ListSubagents, RegisterAgent, SetCapacity
from ade.errors import InvalidAgent, NotPermitted, UnknownAgent, UnknownTask
from ade.tasks.api.create import create_task
from tests.domain import AgentStatus, NewTask, Role, Worker
from tests.server.operations import LOCAL, Operations
from tests.server.wire import received

Verb = Callable[..., Awaitable[object]]


async def test_an_agent_is_registered_changed_and_removed(ops: Operations) -> None:
    form = RegisterAgent(max_tasks=3, type="coder", capabilities=["gpu", "docker"])
    made = await agents_api.register_agent(ops.services, LOCAL, "team/coder-1", form)
    assert (made.max_tasks, made.type, made.capabilities) == (3, "coder", ("docker", "gpu"))
    assert received(made).type == "coder"
    await agents_api.register_agent(ops.services, LOCAL, "plain", RegisterAgent(max_tasks=1))

    listed = await agents_api.list_agents(ops.services, LOCAL, ListAgents(limit=1))
    rest = await agents_api.list_agents(ops.services, LOCAL, ListAgents(limit=1, cursor=listed.next))
    assert [one.id for page in (listed, rest) for one in page.items] == ["plain", "team/coder-1"]
    assert [received(one) for one in listed.items] == listed.items

    await agents_api.set_agent_capacity(ops.services, LOCAL, "team/coder-1", SetCapacity(max_tasks=5))
    seen = await agents_api.get_agent(ops.services, LOCAL, "team/coder-1")
    assert (seen.max_tasks, seen.type, seen.capabilities, seen.free) == (5, "coder", ("docker", "gpu"), 5)
    await agents_api.remove_agent(ops.services, LOCAL, "team/coder-1")
    with pytest.raises(UnknownAgent):
        await agents_api.get_agent(ops.services, LOCAL, "team/coder-1")
    told = [(event.type, event.actor) for event in await ops.services.stores.events.newest(10)]
    assert told == [("agent.registered", "cli:tester")] * 3 + [("agent.removed", "cli:tester")]


async def test_an_agent_shows_how_many_tasks_wait_for_its_workers(ops: Operations) -> None:
    stores = ops.services.stores
    for agent in ("coder", "retired"):
        await agents_api.register_agent(ops.services, LOCAL, agent, RegisterAgent(max_tasks=2))
    about = {"hostname": "h", "pid": 1, "started_at": ops.clock.now(), "version": "0"}
    worker = Worker(id="w1", agent="coder", names=("greet",), queues=("mail",), **about)  # type: ignore[arg-type]
    await stores.workers.register(worker, [], 60_000)
    for queue in ("mail", "mail", "post"):
        await create_task(ops.services, LOCAL, NewTask(name="greet", queue=queue))

    listed = (await agents_api.list_agents(ops.services, LOCAL, ListAgents())).items
    assert {agent.id: agent.queued_tasks for agent in listed} == {"coder": 2, "retired": 0}
    assert (await agents_api.get_agent(ops.services, LOCAL, "coder")).queued_tasks == 2


async def test_an_agent_is_offline_until_it_is_heard_of(ops: Operations) -> None:
    await agents_api.register_agent(ops.services, LOCAL, "a", RegisterAgent(max_tasks=1))
    ops.clock.advance(61)
    assert (await agents_api.get_agent(ops.services, LOCAL, "a")).status is AgentStatus.OFFLINE
    await agents_api.heartbeat_agent(ops.services, LOCAL, "a")
    assert (await agents_api.get_agent(ops.services, LOCAL, "a")).status is AgentStatus.ACTIVE
    for verb, status in (
        (agents_api.drain_agent, AgentStatus.DRAINING),
        (agents_api.mark_agent_offline, AgentStatus.OFFLINE),
        (agents_api.activate_agent, AgentStatus.ACTIVE),
    ):
        assert (await verb(ops.services, LOCAL, "a")).status is status


async def test_an_account_has_agents_of_its_own_name_alone(ops: Operations) -> None:
    bot = await ops.account("bot", Role.AGENT)
    for own in ("bot", "bot/2"):
        request = ops.request(bot, "register_agent")
        assert (await agents_api.register_agent(ops.services, request, own, RegisterAgent(max_tasks=2))).id == own
        await agents_api.heartbeat_agent(ops.services, ops.request(bot, "heartbeat_agent"), own)
    await agents_api.register_agent(ops.services, LOCAL, "other", RegisterAgent(max_tasks=2))

    async def refused(verb: Verb, agent_id: str, *forms: Struct) -> str:
        with pytest.raises(UnknownAgent) as error:
            await verb(ops.services, ops.request(bot, verb.__name__), agent_id, *forms)
        return error.value.detail.replace(agent_id, "ID")

    for verb in (
        agents_api.heartbeat_agent,
        agents_api.drain_agent,
        agents_api.activate_agent,
        agents_api.mark_agent_offline,
    ):
        assert len({await refused(verb, agent_id) for agent_id in ("other", "nobody", "botx", "bot/none")}) == 1
    await refused(agents_api.register_agent, "other", RegisterAgent(max_tasks=9))
    await refused(agents_api.register_agent, "botnet/1", RegisterAgent(max_tasks=9))
    for operation in ("set_agent_capacity", "remove_agent"):
        with pytest.raises(NotPermitted):
            ops.request(bot, operation)


async def test_an_account_registers_so_many_and_no_more(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_api, "MOST_AGENTS", 2)
    bot, olga, form = await ops.account("bot", Role.AGENT), await ops.account("olga"), RegisterAgent(max_tasks=2)
    for own in ("bot/1", "bot/2", "bot/1"):
        await agents_api.register_agent(ops.services, ops.request(bot, "register_agent"), own, form)
    for own in ("bot/3", "BOT/3"):
        with pytest.raises(InvalidAgent, match="has 2 agents"):
            await agents_api.register_agent(ops.services, ops.request(bot, "register_agent"), own, form)
    await agents_api.register_agent(ops.services, ops.request(olga, "register_agent"), "bot/3", form)


async def test_an_agent_cannot_give_itself_more_than_an_operator_has_set(ops: Operations) -> None:
    bot, olga = await ops.account("bot", Role.AGENT), await ops.account("olga")
    await agents_api.register_agent(ops.services, ops.request(bot, "register_agent"), "bot", RegisterAgent(max_tasks=9))
    request = ops.request(olga, "set_agent_capacity")
    await agents_api.set_agent_capacity(ops.services, request, "bot", SetCapacity(max_tasks=2))
    again = await agents_api.register_agent(
        ops.services, ops.request(bot, "register_agent"), "bot", RegisterAgent(max_tasks=9, type="coder")
    )
    assert (again.max_tasks, again.type) == (2, "coder")


@pytest.mark.parametrize(
    ("agent_id", "form"),
    [
        ("bad id", {"max_tasks": 1}),
        ("{x}", {"max_tasks": 1}),
        ("a", {"max_tasks": 1, "type": "no type"}),
        ("a", {"max_tasks": 1, "capabilities": ["Capital"]}),
    ],
)
async def test_what_cannot_be_is_not_registered(ops: Operations, agent_id: str, form: dict[str, Any]) -> None:
    with pytest.raises(InvalidAgent):
        await agents_api.register_agent(ops.services, LOCAL, agent_id, RegisterAgent(**form))
    for verb in (agents_api.drain_agent, agents_api.heartbeat_agent, agents_api.remove_agent, agents_api.get_agent):
        with pytest.raises(UnknownAgent):
            await verb(ops.services, LOCAL, agent_id)
    assert (await agents_api.list_agents(ops.services, LOCAL, ListAgents())).items == []


async def test_agents_at_work_are_listed_page_by_page(ops: Operations) -> None:
    await ops.define("agent:coder", "agent:tester", "greet")
    made = []
    for name in ("agent:coder", "greet", "agent:tester", "agent:coder"):
        ops.clock.advance(1)
        made.append((await create_task(ops.services, LOCAL, NewTask(name=name))).id)
    newest = [made[3], made[2], made[0]]
    first = await agents_api.list_subagents(ops.services, LOCAL, ListSubagents(limit=2))
    second = await agents_api.list_subagents(ops.services, LOCAL, ListSubagents(limit=2, cursor=first.next))
    assert [one.id for page in (first, second) for one in page.items] == newest
    assert second.next is None
    assert (await agents_api.list_subagents(ops.services, LOCAL, ListSubagents(status="running"))).items == []
    assert (await agents_api.list_subagents(ops.services, LOCAL, ListSubagents(parent="no id"))).items == []
    seen = await agents_api.get_subagent(ops.services, LOCAL, made[0])
    assert (seen.type, received(seen)) == ("Coder", seen)
    for other in (made[1], "nonsense"):
        with pytest.raises(UnknownTask):
            await agents_api.get_subagent(ops.services, LOCAL, other)
