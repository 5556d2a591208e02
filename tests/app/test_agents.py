"""What an app offers for agents."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade import Ade, Status
from ade.errors import InvalidArguments, InvalidInbox, UnknownName
from ade.testing import TestKit, harness
from tests.agents.runs.fake_agent_app import app as house
from tests.domain import AgentResult, DurableInbox


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[TestKit]:
    async with harness(house(tmp_path)) as opened:
        yield opened
        assert await opened.stores.maintenance.check_invariants() == []


async def told(kit: TestKit) -> list[str]:
    return [item.text or "" for item in await (await kit.app.agents.conversation("main")).peek()]


async def test_a_run_is_enqueued_with_all_that_was_said(agents: TestKit) -> None:
    handle = await agents.app.agents.run(
        "claude", "Good morning", model="opus", max_turns=3, description="Greet", priority=1, tags=["daily"]
    )
    task = await handle.get()
    assert task.arguments() == {"prompt": "Good morning", "model": "opus", "max_turns": 3, "description": "Greet"}
    assert (task.name, task.description, task.priority, task.tags) == ("agent:claude", "Greet", 1, ("daily",))
    assert task.timeout_ms == 3_600_000

    await agents.drain()

    result = await handle.result()
    assert isinstance(result, AgentResult)
    assert (result.report, result.model) == ("You said: Good morning", "opus")


async def test_a_parent_conversation_is_told_of_the_end(agents: TestKit) -> None:
    handle = await agents.app.agents.run("claude", "Good morning", parent_conversation="main")
    await agents.drain()

    [text] = await told(agents)
    assert f"<task-id>{handle.id}</task-id>" in text


async def test_so_it_is_when_the_run_was_enqueued_by_name(agents: TestKit) -> None:
    await agents.app.enqueue("agent:claude", {"prompt": "Good morning", "parent_conversation": "main"})
    await agents.drain()

    assert len(await told(agents)) == 1


async def test_a_run_that_is_tried_again_is_told_of_once(agents: TestKit) -> None:
    await agents.app.agents.run("claude", "[[cut]]", parent_conversation="main", max_attempts=3)
    await agents.finish()

    [text] = await told(agents)
    assert "<status>failed</status>" in text


async def test_nothing_is_stored_for_a_conversation_that_cannot_be(agents: TestKit) -> None:
    with pytest.raises(InvalidInbox):
        await agents.app.agents.run("claude", "hi", parent_conversation="two words")

    assert await agents.drain() == 0


async def test_a_type_that_nobody_knows(agents: TestKit) -> None:
    with pytest.raises(UnknownName, match="there is no agent type 'poet'; types are claude, codex"):
        await agents.app.agents.run("poet", "hi")


async def test_wrong_arguments_are_refused_where_they_were_written(agents: TestKit) -> None:
    with pytest.raises(InvalidArguments):
        await agents.app.agents.run("claude", "hi", max_turns="many")  # type: ignore[arg-type]


async def test_a_type_of_the_settings_may_wait_for_its_worker() -> None:
    async with harness(Ade("memory://")) as kit:
        handle = await kit.app.agents.run("claude", "hi")

        assert await handle.status() is Status.PENDING
        assert (await handle.get()).timeout_ms == 3_600_000


def test_programs_without_an_event_loop_use_it_too(tmp_path: Path) -> None:
    app = house(tmp_path)

    handle = app.agents.run("claude", "hi").wait()
    inbox = app.agents.conversation("main").wait()

    assert handle.status().wait() is Status.PENDING
    assert isinstance(inbox, DurableInbox)
    app.close().wait()
