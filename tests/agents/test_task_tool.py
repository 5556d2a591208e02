"""The Task tool and its companions, with programs that really run."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from ade import Ade, Context
from ade.agents.background import FORGOTTEN_AFTER_MS, MOST_RUNNING, BackgroundTask, TaskStatus
from ade.agents.tools import TaskTool
from ade.core.approvals.rulebook import Rulebook
from ade.core.guard_rules import GuardRule, Verdict
from ade.core.lifecycle import Status
from ade.governance import rulebook as rulebooks
from ade.insight.subagents import list_subagents
from ade.settings import RedisSettings
from ade.testing import TestKit, harness
from tests.agents.running.house import profiles, settings
from tests.agents.standins.letta import AGENT, CONVERSATION
from tests.faults.workers import until
from tests.queue.conftest import PLACES
from tests.servers.plugin import server_pool

__all__ = ["server_pool"]

HEAD = f"subagent_type=letta agent_id={AGENT} conversation_id={CONVERSATION}"


@pytest.fixture
def app(tmp_path: Path) -> Ade:
    agents = {**profiles(), "echo": {"base": "command", "command": ["cat"]}}
    agents["sleepy"] = {"base": "command", "command": ["sleep", "600"], "timeout": "200ms"}
    made = settings(tmp_path, url="memory://", profiles=agents)
    app = Ade(settings=structs.replace(made, redis=RedisSettings(allow_volatile=True)))
    app.agents.serve()
    return app


@pytest.fixture
async def kit(app: Ade) -> AsyncIterator[TestKit]:
    async with harness(app) as opened:
        yield opened


@pytest.fixture(params=PLACES)
async def stored_kit(request: pytest.FixtureRequest, app: Ade, tmp_path: Path) -> AsyncIterator[TestKit]:
    """On every kind of store."""
    async with harness(app, PLACES[request.param](tmp_path)) as opened:
        yield opened
        assert await opened.stores.upkeep.check_invariants() == []


@pytest.fixture
async def tool(kit: TestKit) -> TaskTool:
    return await kit.app.agents.task_tool(conversation="main")


async def inbox_of(kit: TestKit, name: str = "main") -> list[str]:
    return [item.text or "" for item in await (await kit.app.agents.conversation(name)).peek()]


# at once, and waiting for it


async def test_the_answer_is_the_report_with_its_header_and_the_transcript(tool: TaskTool, kit: TestKit) -> None:
    answer = await tool.run("How are you?", "letta", "Ask about health")

    assert answer.status is TaskStatus.COMPLETED
    assert str(answer) == f"{HEAD}\n\nYou said: How are you?\nOutput file: {answer.output_file}"
    transcript = Path(answer.output_file or "")
    assert transcript.read_text() == (
        "[Task started: Ask about health]\n[subagent_type: letta]\n\n"
        f"{HEAD}\n\nYou said: How are you?\n\n[Task completed]\n"
    )
    assert await inbox_of(kit) == []  # who waits needs no notification


async def test_a_failure_is_an_answer_with_the_transcript(tool: TaskTool) -> None:
    answer = await tool.run("[[error]]", "letta", "Fail")

    assert answer.status is TaskStatus.FAILED
    assert re.fullmatch(r"Error: .+\nOutput file: /.+\.log", answer.message)


async def test_long_reports_are_cut(tool: TaskTool) -> None:
    answer = await tool.run("x" * 50_000, "letta", "Repeat")

    assert len(answer.message) < 31_000
    assert "characters cut" in answer.message


async def test_work_is_done_in_the_folder_that_is_named(kit: TestKit, tmp_path: Path) -> None:
    tool = await kit.app.agents.task_tool(cwd=str(tmp_path))
    answer = await tool.run("hello", "echo", "Echo")

    assert answer.message.startswith("subagent_type=echo\n\nhello")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": "x", "description": "y"}, "Error: Task tool missing required parameter: subagent_type"),
        (
            {"prompt": " ", "description": "", "subagent_type": "letta"},
            "Error: Task tool missing required parameters: description, prompt",
        ),
        (
            {"prompt": "x", "description": "y", "subagent_type": "poet"},
            'Error: Invalid subagent type "poet". Available types: claude, codex, command, echo, gemini, letta, sleepy',
        ),
        (
            {"prompt": "x", "description": "y", "agent_id": "agent-1"},
            'Error: Invalid subagent type "general-purpose". Available types: claude, codex, command, echo, gemini,'
            " letta, sleepy",
        ),
        (
            {"prompt": "x", "description": "y", "agent_id": "agent-1", "subagent_type": "echo"},
            'Error: An agent of type "echo" cannot go on with an agent or a conversation that exists. Types that can:'
            " claude, codex, gemini, letta",
        ),
    ],
)
async def test_what_is_wrong_is_told_to_the_agent(tool: TaskTool, given: dict[str, str], message: str) -> None:
    answer = await tool.run(**given)  # type: ignore[arg-type] # each by its name

    assert (answer.message, answer.status) == (message, TaskStatus.FAILED)


async def test_an_agent_that_exists_goes_on(tool: TaskTool) -> None:
    answer = await tool.run("And now?", "letta", "Go on", conversation_id="conv-5")

    assert "conversation_id=conv-5" in answer.message


async def test_whoever_does_not_wait_any_more_leaves_no_agent_behind(tool: TaskTool, app: Ade) -> None:
    waiting = asyncio.create_task(tool.run("[[hang]]", "letta", "Hang"))
    running = await begun(app)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert running.error == "Aborted by user"


# in the background


async def begun(app: Ade) -> BackgroundTask:
    """The first task that runs, once it is known who works."""
    tasks = (await app.open()).side.agents
    assert tasks is not None
    await until(lambda: bool(tasks.list_tasks()), "a task began")
    [task] = tasks.list_tasks()
    await task.until_known()
    return task


async def test_in_the_background_the_answer_is_an_id_and_the_end_a_notification(tool: TaskTool, kit: TestKit) -> None:
    answer = await tool.run("Good morning", "letta", "Greet", run_in_background=True)
    assert answer.task_id == "task_1"
    assert answer.message.startswith(
        f"Task running in background with task ID: task_1\nAgent ID: {AGENT}\nOutput file: {answer.output_file}\n"
    )

    told = await tool.output.run("task_1")
    assert (told.status, told.message) == (TaskStatus.COMPLETED, f"{HEAD}\n\nYou said: Good morning")
    [text] = await inbox_of(kit)
    assert text.startswith("<task-notification>\n<task-id>task_1</task-id>\n<status>completed</status>\n")
    assert '<summary>Agent "Greet" completed</summary>' in text
    assert f"<result>{HEAD}\n\nYou said: Good morning</result>" in text
    assert text.endswith(f"Full transcript available at: {answer.output_file}")


async def test_silent_ones_end_without_a_notification(tool: TaskTool, kit: TestKit) -> None:
    answer = await tool.run("Good morning", "letta", "Greet", run_in_background=True, silent=True)
    assert "Ask TaskOutput" in answer.message

    await tool.output.run("task_1")

    assert await inbox_of(kit) == []


async def test_a_task_that_is_stopped_has_failed(tool: TaskTool, kit: TestKit) -> None:
    await tool.run("[[hang]]", "letta", "Hang", run_in_background=True)
    assert (await tool.output.run("task_1", block=False)).message == "Task is still running..."
    assert (await tool.output.run("task_1", timeout=1)).status is TaskStatus.RUNNING

    assert (await tool.stop.run("task_1")).killed
    assert not (await tool.stop.run(shell_id="task_1")).killed

    told = await tool.output.run("task_1")
    assert told.status is TaskStatus.FAILED
    assert told.message.endswith("[error] Aborted by user")
    [text] = await inbox_of(kit)
    assert "<status>failed</status>" in text
    assert "<result>Aborted by user</result>" in text


async def test_ids_that_nobody_knows(tool: TaskTool) -> None:
    for task_id in ("task_9", "0190-not-an-id", "01890a5d-ac96-774b-bcce-b302099a8057"):
        assert (await tool.output.run(task_id)).message == f"No background process found with ID: {task_id}"
        assert not (await tool.stop.run(task_id)).killed


async def test_what_has_ended_is_forgotten_after_five_minutes(tool: TaskTool, kit: TestKit) -> None:
    await tool.run("hello", "echo", "Echo", run_in_background=True)
    await tool.output.run("task_1")

    kit.clock.advance(FORGOTTEN_AFTER_MS / 1000 - 1)
    assert (await tool.output.run("task_1")).status is TaskStatus.COMPLETED
    kit.clock.advance(1)
    assert (await tool.output.run("task_1")).message == "No background process found with ID: task_1"


async def test_so_many_run_at_once_and_no_more(tool: TaskTool, app: Ade) -> None:
    waiting = [asyncio.create_task(tool.run("[[hang]]", "letta", "Hang")) for _ in range(MOST_RUNNING)]
    tasks = (await app.open()).side.agents
    assert tasks is not None
    await until(lambda: len(tasks.list_tasks()) == MOST_RUNNING, "all of them began")

    answer = await tool.run("hello", "echo", "One more")
    await tasks.close()

    assert answer.message.startswith("Error: 32 agents run in this process already")
    assert {(await each).message.partition("\n")[0] for each in waiting} == {"Error: Interrupted by user"}


async def test_an_agent_that_takes_too_long_is_ended(tool: TaskTool) -> None:
    answer = await tool.run("hello", "sleepy", "Sleep")

    assert answer.message.startswith("Error: it ran longer than 0.2 s")


async def test_agents_end_with_the_app(app: Ade) -> None:
    async with app:
        tool = await app.agents.task_tool()
        await tool.run("[[hang]]", "letta", "Hang", run_in_background=True)
        task = await begun(app)

    assert task.error == "Interrupted by user"


# rules


async def test_what_a_rule_forbids_is_not_run(tool: TaskTool, kit: TestKit) -> None:
    await rule(kit, Verdict.DENY)

    answer = await tool.run("hello", "echo", "Echo")

    assert answer.message.startswith("Error: agent:echo must not be used like this")


async def test_what_people_must_approve_has_to_be_stored(tool: TaskTool, kit: TestKit) -> None:
    await rule(kit, Verdict.DEMAND)

    assert "use persist=True" in (await tool.run("hello", "echo", "Echo")).message
    answer = await tool.run("hello", "echo", "Echo", persist=True)
    assert await kit.app.handle(answer.task_id or "").status() is Status.REVIEWING


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (Verdict.DENY, "Error: the tool Bash must not be used like this: it is loud"),
        (Verdict.DEMAND, "Error: people must allow the tool Bash first: use persist=True"),
    ],
)
async def test_the_rules_hold_for_its_tools_too(tool: TaskTool, kit: TestKit, verdict: Verdict, message: str) -> None:
    await rule(kit, verdict, name=None, tool="Bash")

    answer = await tool.run("[[defer]]", "claude", "Clean up")

    assert answer.message.startswith(message)


async def rule(kit: TestKit, verdict: Verdict, name: str | None = "agent:echo", tool: str | None = None) -> None:
    rules = (GuardRule(do=verdict, name=name, tool=tool, reason="it is loud"),)
    await rulebooks.apply(kit.stores, Rulebook(guard=rules), actor=None)


# through the queue


async def test_persisted_work_is_a_task_and_its_end_a_notification(stored_kit: TestKit) -> None:
    tool = await stored_kit.app.agents.task_tool(conversation="main")
    answer = await tool.run("Good morning", "letta", "Greet", persist=True, priority=2, tags=["daily"])
    task_id = answer.task_id or ""
    assert answer.status is TaskStatus.PENDING
    assert answer.message.startswith(f"Task running in background with task ID: {task_id}\n")
    assert (await tool.output.run(task_id, block=False)).message == "Task is still running..."
    task = await stored_kit.app.handle(task_id).get()
    assert (task.name, task.priority, task.tags, task.description) == ("agent:letta", 2, ("daily",), "Greet")

    await stored_kit.drain()

    told = await tool.output.run(task_id)
    assert (told.status, told.message) == (TaskStatus.COMPLETED, f"{HEAD}\n\nYou said: Good morning")
    [text] = await inbox_of(stored_kit)
    assert text.startswith(f"<task-notification>\n<task-id>{task_id}</task-id>\n<status>completed</status>\n")
    [seen] = await list_subagents(stored_kit.stores)
    assert (seen.id, seen.type, seen.description, seen.status) == (task_id, "Letta", "Greet", "completed")
    assert seen.agent_id == AGENT


async def test_persisted_work_that_fails(stored_kit: TestKit) -> None:
    tool = await stored_kit.app.agents.task_tool(conversation="main")
    answer = await tool.run("[[max-turns]]", "claude", "Count", persist=True)
    await stored_kit.drain()

    told = await tool.output.run(answer.task_id or "")
    assert told.status is TaskStatus.FAILED
    assert "[error]" in told.message
    [text] = await inbox_of(stored_kit)
    assert "<status>failed</status>" in text
    assert not (await tool.stop.run(answer.task_id)).killed


async def test_persisted_work_that_is_stopped(stored_kit: TestKit) -> None:
    tool = await stored_kit.app.agents.task_tool(conversation="main")
    answer = await tool.run("hello", "echo", "Echo", persist=True)

    assert (await tool.stop.run(answer.task_id)).killed
    assert not (await tool.stop.run(answer.task_id)).killed

    told = await tool.output.run(answer.task_id or "")
    assert (told.status, told.message) == (TaskStatus.FAILED, "[error] cancelled: Aborted by user")
    await stored_kit.drain()
    [text] = await inbox_of(stored_kit)
    assert "<result>cancelled: Aborted by user</result>" in text


async def test_silent_persisted_work_ends_without_a_notification(stored_kit: TestKit) -> None:
    tool = await stored_kit.app.agents.task_tool(conversation="main")
    await tool.run("hello", "echo", "Echo", persist=True, silent=True)

    assert await stored_kit.drain() == 1
    assert await inbox_of(stored_kit) == []


async def test_work_that_a_run_gives_away_is_its_child(app: Ade, kit: TestKit) -> None:
    @app.task
    async def plan(ctx: Context) -> str:
        tool = await app.agents.task_tool(ctx=ctx)
        return (await tool.run("hello", "echo", "Echo", persist=True)).task_id or ""

    parent = await plan.enqueue()
    await kit.drain()

    [child] = await list_subagents(kit.stores, parent_id=parent.id)
    assert child.id == await parent.result()
    assert child.parent_id == parent.id


async def test_waiting_for_persisted_work_is_no_longer_than_asked_for(stored_kit: TestKit) -> None:
    tool = await stored_kit.app.agents.task_tool()
    answer = await tool.run("hello", "echo", "Echo", persist=True)

    told = await tool.output.run(answer.task_id or "", timeout=1)

    assert (told.status, told.message) == (TaskStatus.RUNNING, "(no output yet)")


async def test_a_callback_hears_of_the_end_and_its_error_is_in_the_transcript(kit: TestKit, tool: TaskTool) -> None:
    heard: list[str] = []

    async def on_complete(task: BackgroundTask) -> None:
        heard.append(f"{task.id} {task.status}")
        raise ValueError("the caller is wrong")

    answer = await tool.run("hi", "echo", "Say hi", on_complete=on_complete)

    assert heard == [f"{answer.task_id} completed"]
    assert answer.status is TaskStatus.COMPLETED
    assert answer.output_file is not None
    assert Path(answer.output_file).read_text().endswith("[Task completed]\n[onComplete error] the caller is wrong\n")
