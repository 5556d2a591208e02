"""A conversation with an agent: what is said to it waits in its inbox, and a worker puts it before it turn by turn."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, ItemKind, NewItem, Status, Task
from ade.agents.conversations.scheduler import ConversationScheduler
from ade.agents.runs.model import AgentResult, result_in
from ade.composition import agents
from tests.agents.runs.fake_agent_app import app as house
from tests.domain import DurableInbox, TaskQuery, WorkerSettings
from tests.waiting import eventually

SESSION = "5c2b8f7e-1111-4222-8333-444455556666"


def message(text: str) -> NewItem:
    return NewItem(kind=ItemKind.MESSAGE, content=text)


async def turns_of(app: Ade, count: int) -> list[tuple[Task, AgentResult]]:
    """The turns in their order, once there are so many and all have ended."""
    opened = await app.open()

    async def look() -> list[tuple[Task, AgentResult]] | None:
        page = await opened.stores.tasks.find(TaskQuery(name="agent:claude", oldest_first=True))
        found = [(task, result_in(task.result)) for task in page.tasks if task.is_final]
        return [(task, result) for task, result in found if result is not None] if len(found) >= count else None

    return await eventually(look)


async def emptied(inbox: DurableInbox) -> None:
    async def is_empty() -> bool:
        return not (await inbox.state()).items

    await eventually(is_empty)


async def test_what_is_said_becomes_turns_in_one_session_and_folder(tmp_path: Path) -> None:
    async with house(tmp_path) as app:
        inbox = await app.agents.conversation("support/42")
        await inbox.enqueue(message("one [[argv]]"), consumer="agent:claude")
        await inbox.enqueue(message("two"))
        async with app.worker():
            [(first, told)] = await turns_of(app, 1)
            await emptied(inbox)
            await inbox.enqueue(message("three [[argv]]"))
            (_, _), (second, resumed) = await turns_of(app, 2)
            await emptied(inbox)

        assert first.arguments()["prompt"] == "one [[argv]]\ntwo"  # what waits together is one turn
        assert "--resume" not in told.report
        assert f"--resume={SESSION}" in resumed.report
        assert first.arguments()["workspace"] == second.arguments()["workspace"] == "support/42"
        assert first.timeout_ms == second.timeout_ms == 3_600_000  # as the profile says
        assert app.registry.by_name["agent:claude"].definition.concurrency_per_key == 1  # one turn at a time
        assert (await inbox.state()).memory["session_id"] == SESSION


async def test_feeding_goes_on_after_a_fault_and_with_leases_of_less_than_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("nobody thought of this")]

    class Faulty(ConversationScheduler):
        async def run(self, stop: asyncio.Event) -> None:
            if faults:
                raise faults.pop()
            await super().run(stop)

    monkeypatch.setattr(agents, "ConversationScheduler", Faulty)
    monkeypatch.setattr(agents, "_FEEDING_AGAIN_S", 0.01)
    worker = WorkerSettings(grace_s=1.0, lease_guard=False, lease_s=0.9, heartbeat_s=0.3)
    async with house(tmp_path, worker=worker) as app:
        inbox = await app.agents.conversation("c")
        await inbox.enqueue(message("hi"), consumer="agent:claude")
        async with app.worker():
            await emptied(inbox)

    assert faults == []


async def test_a_turn_that_fails_for_good_is_a_dead_letter_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path) as app:
        inbox = await app.agents.conversation("c")
        await inbox.enqueue(message("[[max-turns]]"), consumer="agent:claude")
        async with app.worker():
            await emptied(inbox)
            await inbox.enqueue(message("hi"))
            [(_, result)] = await turns_of(app, 2)

        opened = await app.open()
        [failed] = (await opened.stores.tasks.find(TaskQuery(statuses=frozenset({Status.FAILED})))).tasks
        assert failed.arguments()["prompt"] == "[[max-turns]]"
        assert result.report == "You said: hi"
