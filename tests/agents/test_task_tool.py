"""The Task tool and its companions, with programs that really run."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ade import Ade, Context, Status
from ade.agents.background import FORGOTTEN_AFTER_MS, MOST_RUNNING, BackgroundTask, TaskStatus
from ade.agents.conversations.model import ItemKind, NewItem, inbox_limits
from ade.agents.task_tool import TaskStopResult, TaskTool
from ade.agents.views import list_subagents
from ade.approvals import repository as approvals_repository
from ade.approvals.guard import GuardRule, GuardRulesVerdict
from ade.errors import InvalidInbox, StoreUnavailable
from ade.stores.ports import INBOX
from ade.testing import TestKit, harness
from tests.agents.runs.fake_agent_app import profiles, settings
from tests.agents.standins.letta import AGENT, CONVERSATION
from tests.domain import ClearReason, RedisSettings, Rulebook, User, add_user
from tests.faults.workers import until
from tests.stores.urls import store_url

ASKED: dict[str, Any] = {"prompt": "x", "subagent_type": "echo", "description": "y"}
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


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stored_kit(request: pytest.FixtureRequest, app: Ade, tmp_path: Path) -> AsyncIterator[TestKit]:
    """On every kind of store."""
    async with harness(app, store_url(request.param, tmp_path)) as opened:
        yield opened
        assert await opened.stores.maintenance.check_invariants() == []


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
            {"prompt": "x", "description": "y", "agent_id": "agent-1", "subagent_type": "claude"},
            'Error: An agent of type "claude" cannot go on with an agent_id that exists. Types that can: letta',
        ),
        ({**ASKED, "prompt": None}, "Error: Task tool missing required parameter: prompt"),
        ({**ASKED, "prompt": 5}, "Error: prompt must be a text, not 5"),
        ({**ASKED, "prompt": "\ud800"}, "Error: prompt contains invalid characters: half of a surrogate pair"),
        ({**ASKED, "description": None}, "Error: Task tool missing required parameter: description"),
        ({**ASKED, "description": ["d"]}, "Error: description must be a text, not ['d']"),
        ({**ASKED, "model": 7}, "Error: model must be a text, not 7"),
        ({**ASKED, "max_turns": "3"}, "Error: max_turns must be a whole number of at least 1, not '3'"),
        ({**ASKED, "max_turns": 0}, "Error: max_turns must be a whole number of at least 1, not 0"),
        (
            {**ASKED, "priority": 99},
            "Error: priority 99 is not valid: use 0 (first) to 9 (last), or a name: urgent (1), high (3), normal (5),"
            " low (7); the default is 5",
        ),
        ({**ASKED, "tags": "weekly"}, "Error: tags must be a list of texts, not 'weekly'"),
        ({**ASKED, "tags": [1]}, "Error: tags must be a list of texts, not [1]"),
        ({**ASKED, "persist": "yes"}, "Error: persist must be true or false, not 'yes'"),
    ],
)
async def test_what_is_wrong_is_told_to_the_agent(tool: TaskTool, given: dict[str, Any], message: str) -> None:
    answer = await tool.run(**given)

    assert (answer.message, answer.status) == (message, TaskStatus.FAILED)


async def test_nothing_is_the_same_as_not_given(tool: TaskTool) -> None:
    nothing: Any = None

    answer = await tool.run(**ASKED, tags=nothing, silent=nothing, run_in_background=nothing, max_turns=nothing)

    assert answer.status is TaskStatus.COMPLETED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task_id": None}, "Error: TaskOutput tool missing required parameter: task_id"),
        ({"task_id": 7}, "Error: task_id must be a text, not 7"),
        ({"task_id": "task_1", "timeout": "5"}, "Error: timeout must be a number of milliseconds, not '5'"),
        ({"task_id": "task_1", "timeout": float("nan")}, "Error: timeout must be a number of milliseconds, not nan"),
        ({"task_id": "task_1", "timeout": None, "block": None}, "No background process found with ID: task_1"),
    ],
)
async def test_what_is_wrong_about_looking_is_told(tool: TaskTool, given: dict[str, Any], message: str) -> None:
    told = await tool.output.run(**given)

    assert (told.message, told.status) == (message, TaskStatus.FAILED)


async def test_a_store_that_is_away_is_told_of(tool: TaskTool, kit: TestKit, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = (await tool.run(**ASKED, persist=True)).task_id or ""

    async def away(*_: object) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(type(kit.stores.tasks), "get", away)

    assert (await tool.output.run(task_id)).message == "Error: the store is away"
    assert await tool.stop.run(task_id) == TaskStopResult(False, "Error: the store is away")
    assert (await tool.stop.run()).error == "Error: TaskStop tool missing required parameter: task_id"


async def test_an_agent_that_exists_goes_on(tool: TaskTool) -> None:
    for chosen in ("letta", None):  # the first type that can, if none is named
        answer = await tool.run("And now?", chosen, "Go on", conversation_id="conv-5")
        assert "subagent_type=letta" in answer.message
        assert "conversation_id=conv-5" in answer.message


async def test_agents_that_exist_are_general_ones_where_there_is_such_a_type(tmp_path: Path) -> None:
    general = {"general-purpose": profiles()["letta"]}
    app = Ade(settings=settings(tmp_path, url="memory://", profiles={**profiles(), **general}))
    async with harness(app):
        tool = await app.agents.task_tool()
        answer = await tool.run("And now?", description="Go on", agent_id="agent-1")

    assert answer.message.startswith("subagent_type=general-purpose agent_id=agent-1")


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


async def test_a_notification_is_brought_when_the_store_is_back(
    tool: TaskTool, kit: TestKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = kit.stores.inboxes.write
    is_away = True

    async def sometimes(*given: Any) -> None:
        if is_away:
            raise StoreUnavailable("away for a moment")
        await write(*given)

    monkeypatch.setattr(kit.stores.inboxes, "write", sometimes)
    await tool.run("Good morning", "echo", "Greet", run_in_background=True)
    assert (await tool.output.run("task_1")).status is TaskStatus.COMPLETED  # nobody waits for it
    assert await inbox_of(kit) == []

    is_away = False
    async with asyncio.timeout(60):
        while not await inbox_of(kit):
            await kit.stores.wakeups.wait(INBOX, kit.stores.wakeups.generation(INBOX), 0.05)
    assert len(await inbox_of(kit)) == 1


async def test_a_notification_is_brought_when_the_inbox_has_room(tool: TaskTool, kit: TestKit) -> None:
    inbox = await kit.app.agents.conversation("main", limits=inbox_limits(1, 1))
    await inbox.enqueue(NewItem(kind=ItemKind.APPROVAL_RESULT, text="yes"))
    await tool.run("Good morning", "echo", "Greet", run_in_background=True)
    await tool.output.run("task_1")
    assert await inbox_of(kit) == ["yes"]

    await inbox.clear(ClearReason.PROCESSED)
    tasks = (await kit.app.open()).side.agents
    assert tasks is not None
    await tasks.close()  # the last try

    [text] = await inbox_of(kit)
    assert text.startswith("<task-notification>")


async def test_a_conversation_that_there_cannot_be_is_refused(kit: TestKit) -> None:
    with pytest.raises(InvalidInbox):
        await kit.app.agents.task_tool(conversation="my talk")


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

    assert answer.message.startswith("Error: 32 agents are already running in this process")
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


async def test_a_callback_without_an_end_neither_keeps_the_app_open_nor_the_notification_back(
    app: Ade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.agents.background.CALLBACK_S", 0.05)

    async def on_complete(_: BackgroundTask) -> None:
        await asyncio.Event().wait()

    async with harness(app) as kit:
        tool = await app.agents.task_tool(conversation="main")
        await tool.run("hello", "echo", "Echo", run_in_background=True, on_complete=on_complete)
        tasks = (await app.open()).side.agents
        assert tasks is not None
        await until(lambda: not tasks.list_tasks()[0].is_running, "it ended")
        async with asyncio.timeout(60):
            await tasks.close()
        [text] = await inbox_of(kit)

    assert "<status>completed</status>" in text


@pytest.mark.parametrize(("prompt", "end"), [("hello", "succeeded"), ("[[error]]", "failed")])
async def test_the_event_log_tells_of_runs_without_a_task(tool: TaskTool, kit: TestKit, prompt: str, end: str) -> None:
    await tool.run(prompt, "letta", "Say hello")

    events = [event for event in await kit.stores.events.read(0, 100) if event.type.startswith("agent_run.")]
    assert [event.type for event in events] == ["agent_run.began", "agent_run.ended"]
    assert (events[0].payload["agent_id"], events[1].payload["ended"]) == (AGENT, end)


# rules


async def test_what_a_rule_forbids_is_not_run(tool: TaskTool, kit: TestKit) -> None:
    await rule(kit, GuardRulesVerdict.DENY)

    answer = await tool.run("hello", "echo", "Echo")

    assert answer.message.startswith("Error: agent:echo must not be used like this")


async def test_what_people_must_approve_has_to_be_stored(tool: TaskTool, kit: TestKit) -> None:
    await rule(kit, GuardRulesVerdict.DEMAND)

    assert "use persist=True" in (await tool.run("hello", "echo", "Echo")).message
    unsigned = await tool.run("hello", "echo", "Echo", persist=True)
    assert (unsigned.task_id, "it names no author" in unsigned.message) == (None, True)
    await add_user(kit.stores, User(id="anna"))
    signed = await kit.app.agents.task_tool(conversation="main", author="anna")
    answer = await signed.run("hello", "echo", "Echo", persist=True)
    assert await kit.app.handle(answer.task_id or "").status() is Status.REVIEWING


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (GuardRulesVerdict.DENY, "Error: the tool Bash must not be used like this: it is loud"),
        (GuardRulesVerdict.DEMAND, "Error: the tool Bash requires approval: use persist=True"),
    ],
)
async def test_the_rules_hold_for_its_tools_too(
    tool: TaskTool, kit: TestKit, verdict: GuardRulesVerdict, message: str
) -> None:
    await rule(kit, verdict, name=None, tool="Bash")

    answer = await tool.run("[[defer]]", "claude", "Clean up")

    assert answer.message.startswith(message)


async def rule(
    kit: TestKit, verdict: GuardRulesVerdict, name: str | None = "agent:echo", tool: str | None = None
) -> None:
    rules = (GuardRule(do=verdict, name=name, tool=tool, reason="it is loud"),)
    await approvals_repository.apply(kit.stores, Rulebook(guard=rules), actor=None)


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
    assert (told.status, told.message) == (TaskStatus.FAILED, "[error] Aborted by user")
    await stored_kit.drain()
    [text] = await inbox_of(stored_kit)
    assert "<result>Aborted by user</result>" in text


async def test_tasks_that_are_no_agents_are_nobodys_to_see_or_to_stop(app: Ade, kit: TestKit, tool: TaskTool) -> None:
    @app.task
    async def payroll() -> str:
        return "salaries"

    task_id = (await payroll.enqueue()).id

    assert not (await tool.stop.run(task_id)).killed
    assert (await tool.output.run(task_id)).message == f"No background process found with ID: {task_id}"
    assert await app.handle(task_id).status() is Status.PENDING


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
