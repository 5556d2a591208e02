"""`ade run --agent`: a prompt goes in, the report comes out, and Ctrl-C leaves nothing behind."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ade import Ade
from ade.agents.commands.agents import HEAD
from ade.app.agents import Agents
from ade.approvals import repository as approvals_repository
from ade.approvals.guard import GuardRule, GuardRulesVerdict
from ade.settings import load
from tests.agents.runs.fake_agent_app import profiles
from tests.cli.conftest import Call, make_store, with_stores
from tests.cli.processes import Terminal, call_json, ended, eventually, started
from tests.domain import AgentProgress, ClaimRequest, DurableInbox, Rulebook, Stores
from tests.faults.workers import state_of

SESSION = "5c2b8f7e-1111-4222-8333-444455556666"
URL = "sqlite:///ade.db"


@pytest.fixture
def desk(folder: Path, ade: Call) -> Call:
    """A folder whose settings know a coder and a counter, and no store yet."""
    tables = ""
    for name, base in {"coder": "claude", "counter": "codex"}.items():
        command = msgspec.json.encode(profiles()[base]["command"]).decode()
        tables += f"[agents.profiles.{name}]\nbase = '{base}'\ncommand = {command}\n"
    (folder / "ade.toml").write_text(f"[store]\nurl = '{URL}'\n{tables}")
    return ade


def test_the_report_goes_to_stdout_and_the_rest_to_stderr(desk: Call) -> None:
    answer = desk("run", "--agent", "coder", "what is up? [[tools]]")

    assert (answer.code, answer.out) == (0, "You said: what is up?\n")
    assert "no worker runs agents of type coder, so it runs here" in answer.err
    assert '[tool] Bash {"command":"ls"}' in answer.err
    assert re.search(
        r"done in .+ tokens, \$0\.0125\. Continue with `ade run --agent coder --resume [0-9a-f-]{36}", answer.err
    )


def test_quiet_is_the_report_alone(desk: Call) -> None:
    answer = desk("run", "--agent", "coder", "--quiet", "hello")

    assert (answer.out, answer.err) == ("You said: hello\n", "")


def test_a_prompt_from_stdin(desk: Call) -> None:
    assert desk("run", "--agent", "coder", "-", stdin="from afar").out == "You said: from afar\n"
    assert desk("run", "--agent", "coder", "-", stdin=" \n").code == 2


def test_what_is_said_about_the_run_is_kept_with_its_task(desk: Call, folder: Path) -> None:
    options = ("--model", "opus", "--max-turns", "3", "--max-cost", "0.5", "--max-tokens", "1000000", "--tag", "a,b")
    more = ("--description", "Say hello", "--priority", "2", "--timeout", "5m", "--as", "ann")
    answer = desk("run", "--agent", "coder", *options, *more, "--json", "hello")

    *lines, task = answer.json_lines
    assert [line["text"] for line in lines] == ["You said: hello"]
    assert task["args"] == {
        "prompt": "hello",
        "description": "Say hello",
        "model": "opus",
        "max_turns": 3,
        "max_cost_usd": 0.5,
        "max_tokens": 1_000_000,
        "cwd": str(folder),
    }
    assert (task["tags"], task["priority"], task["timeout_ms"], task["author_id"]) == (["a", "b"], 2, 300_000, "ann")
    assert task["result"]["report"] == "You said: hello"


def test_a_run_that_fails_ends_the_command_with_its_error(desk: Call) -> None:
    answer = desk("run", "--agent", "coder", "[[max-turns]]")
    assert (answer.code, answer.out) == (1, "")
    assert "error[task_failed]" in answer.err

    as_json = desk("run", "--agent", "coder", "--json", "[[max-turns]]")
    assert (as_json.code, as_json.json_lines[-1]["status"]) == (1, "failed")


def test_a_session_goes_on(desk: Call) -> None:
    first = desk("run", "--agent", "coder", "--json", "hello").json_lines[-1]

    for earlier in (first["id"], first["id"][-12:], SESSION):
        answer = desk("run", "--agent", "coder", "--quiet", "--resume", earlier, "[[argv]]")
        assert f"--resume={SESSION}" in answer.out, answer.err


def test_a_session_goes_on_in_its_folder_with_what_it_has_taken(desk: Call, folder: Path) -> None:
    (folder / "there").mkdir()
    first = desk("run", "--agent", "counter", "--cwd", "there", "--json", "hello").json_lines[-1]
    taken = first["result"]["session_tokens"]

    second = desk("run", "--agent", "counter", "--resume", first["id"], "--json", "on").json_lines[-1]
    assert (second["args"]["cwd"], second["args"]["session_tokens"]) == (str(folder / "there"), taken)
    elsewhere = desk("run", "--agent", "counter", "--resume", first["id"], "--cwd", ".", "--json", "on").json_lines[-1]
    assert elsewhere["args"]["cwd"] == str(folder)


def test_a_session_that_a_worker_ran_goes_on_in_its_workspace(desk: Call) -> None:
    async def worked() -> str:
        app = Ade(settings=load().settings)
        app.agents.serve("coder")
        async with app, app.worker():
            handle = await app.agents.run("coder", "hello")
            await handle.result()
            return handle.id

    earlier = asyncio.run(worked())

    second = desk("run", "--agent", "coder", "--resume", earlier, "--json", "on").json_lines[-1]
    third = desk("run", "--agent", "coder", "--resume", second["id"], "--json", "on").json_lines[-1]
    for task in (second, third):
        assert (task["args"]["workspace"], "cwd" in task["args"]) == (earlier, False)


def test_an_agent_of_another_type_cannot_go_on(desk: Call) -> None:
    first = desk("run", "--agent", "coder", "--json", "hello").json_lines[-1]

    answer = desk("run", "--agent", "counter", "--resume", first["id"], "on")

    assert answer.code == 2
    assert "was done by an agent of type coder: counter cannot continue it" in answer.err


def test_a_task_without_a_session_cannot_be_gone_on_with(desk: Call) -> None:
    task_id = desk("run", "--agent", "coder", "--detach", "later").out.strip()

    answer = desk("run", "--agent", "coder", "--resume", task_id, "now")

    assert answer.code == 2
    assert "has no session to continue" in answer.err


def test_a_session_in_which_a_task_still_works_is_left_to_it(desk: Call) -> None:
    task_id = desk("run", "--agent", "coder", "--detach", "later").out.strip()

    async def begins(stores: Stores) -> None:
        [task] = await stores.tasks.claim(
            ClaimRequest(worker_id="w", run_ids=["r"], names=frozenset({"agent:coder"}), lease_ms=60_000)
        )
        progress = AgentProgress(subagent_type="coder", session_id="s-1")
        await stores.tasks.report_progress(task.id, "r", msgspec.Raw(msgspec.json.encode(progress)))

    with_stores(begins, URL)
    answer = desk("run", "--agent", "coder", "--resume", task_id, "now")

    assert answer.code == 2
    assert "is still running in that session" in answer.err


@pytest.mark.parametrize("prompt", ["hello", "[[max-turns]]"])
def test_a_conversation_is_told_of_the_end_before_the_command_ends(desk: Call, prompt: str) -> None:
    desk("run", "--agent", "coder", "--conversation", "main", prompt)

    async def told(stores: Stores) -> list[str]:
        return [item.text or "" for item in await DurableInbox(stores, "main").peek()]

    [text] = with_stores(told, URL)
    assert text.startswith("<task-notification>")


def test_tasks_and_conversations_of_others_are_left_alone(desk: Call) -> None:
    others = [desk("run", "--agent", "coder", "--detach", "--priority", "0", "older").out.strip()]
    arguments = ("enqueue", "agent:coder", "prompt=older", "--queue", "ade-run", "--allow-unknown", "--priority", "0")
    others.append(desk(*arguments).out.strip())
    assert desk("inbox", "send", "talk", "hello", "--consumer", "agent:coder").code == 0

    answer = desk("run", "--agent", "coder", "--conversation", "main", "hello")

    assert answer.out == "You said: hello\n"
    seen = [desk("show", task_id, "--json").json for task_id in others]
    assert [(task["status"], task["attempt"]) for task in seen] == [("pending", 0)] * 2
    assert seen[0]["version"] == 1  # not even claimed: it waits in the queue for all
    assert [desk("logs", task_id).out for task_id in others] == ["", ""]

    async def waiting(stores: Stores) -> list[int]:
        return [await DurableInbox(stores, name).length() for name in ("talk", "main")]

    assert with_stores(waiting, URL) == [1, 1]


def test_a_worker_of_another_run_serves_nobody_else(desk: Call, folder: Path) -> None:
    with started(folder, "run", "--agent", "coder", "[[hang]]") as process:
        assert process.stderr is not None
        while "hanging" not in process.stderr.readline():
            pass
        answer = desk("run", "--agent", "coder", "hello")

    assert answer.out == "You said: hello\n"
    assert "so it runs here" in answer.err


def test_detached_it_waits_for_a_worker(desk: Call) -> None:
    answer = desk("run", "--agent", "coder", "--detach", "later")

    assert answer.code == 0
    assert re.fullmatch(r"[0-9a-f-]{36}\n", answer.out)
    assert "`ade worker --agents coder` starts one" in answer.err
    [seen] = desk("subagents", "--json", "--status", "pending").json["items"]
    assert seen["id"] == answer.out.strip()


def test_a_type_that_nobody_knows_makes_no_store(desk: Call, folder: Path) -> None:
    answer = desk("run", "--agent", "poet", "hello")

    assert answer.code == 3
    assert "there is no agent type 'poet'; types are claude, coder" in answer.err
    assert not (folder / "ade.db").exists()


def test_a_program_that_is_not_installed_is_told_of(desk: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = desk("run", "--agent", "gemini", "hello")

    assert answer.code == 1
    assert "ProgramNotStarted" in answer.err


def test_ctrl_c_cancels_the_task_and_ends_its_agent(desk: Call, folder: Path) -> None:
    with started(folder, "run", "--agent", "coder", "[[hang]] [[fork]]") as process:
        assert process.stderr is not None
        pids: list[int] = []
        while len(pids) < 2:
            found = re.search(r"(?:hanging|grandchild) (\d+)", process.stderr.readline())
            pids += [int(found[1])] if found else []
        code, out, err = ended(process, signal.SIGINT)

    assert (code, out) == (130, "")
    assert re.search(r"Cancelled task [0-9a-f-]{36}\.", err)
    eventually(lambda: all(state_of(pid) in ("", "Z") for pid in pids), "the end of the agent and its child")
    [task] = call_json(folder, "tasks")["items"]
    assert (task["status"], task["reason"]) == ("cancelled", "interrupted by Ctrl-C")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_moment_is_too_early_to_cancel_the_task(
    desk: Call, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_run = Agents.enqueue_run

    async def stored_and_told_to_end(*given: Any) -> Any:
        handle = await enqueue_run(*given)
        os.kill(os.getpid(), number)
        return handle

    monkeypatch.setattr(Agents, "enqueue_run", stored_and_told_to_end)
    before = signal.signal(number, signal.SIG_DFL)  # it is ignored below `nohup`
    try:
        answer = desk("run", "--agent", "coder", "[[hang]]")
    finally:
        signal.signal(number, before)

    assert answer.code == 130
    [task] = desk("tasks", "--json").json["items"]
    assert task["status"] == "cancelled"


def test_a_worker_that_serves_the_type_gets_the_task(desk: Call, folder: Path) -> None:
    with started(folder, "worker", "--agents", "coder"):
        eventually(lambda: (folder / "ade.db").exists() and bool(call_json(folder, "workers")["items"]), "a worker")
        answer = desk("run", "--agent", "coder", "hello")

    assert answer.out == "You said: hello\n"
    assert "runs here" not in answer.err


def test_on_a_terminal_the_report_is_shown_once(desk: Call, folder: Path) -> None:
    terminal = Terminal(folder, "run", "--agent", "coder", "hello")

    assert terminal.finish() == 0
    assert terminal.seen.count("You said: hello") == 1


def test_subagents_are_listed_and_shown(desk: Call) -> None:
    desk("run", "--agent", "coder", "--description", "Say hello", "hello [[tools]]")

    listed = desk("subagents")
    assert listed.lines[0].split() == [title.upper() for title in HEAD]
    assert " Coder  completed  2 " in listed.lines[1]
    [seen] = desk("subagents", "--json").json["items"]
    assert (seen["type"], seen["status"], seen["tool_calls"], seen["session_id"]) == ("Coder", "completed", 2, SESSION)
    assert seen["started_at"].endswith("Z")
    one = desk("subagents", seen["id"][-12:])
    assert "description  Say hello" in one.out
    assert "[tool] Bash" in one.out
    assert desk("subagents", seen["id"], "--json").json["id"] == seen["id"]
    assert (
        desk("subagents", "--parent", seen["id"]).err == "No agent matches. `ade run --agent TYPE PROMPT` starts one.\n"
    )


def test_a_run_that_waits_for_people_says_so(desk: Call, folder: Path) -> None:
    make_store(URL)

    async def demand(stores: Stores) -> None:
        rules = (GuardRule(do=GuardRulesVerdict.DEMAND, name="agent:coder", reason="look first"),)
        await approvals_repository.apply(stores, Rulebook(guard=rules), actor=None)

    with_stores(demand, URL)
    with started(folder, "run", "--agent", "coder", "hello") as process:
        assert process.stderr is not None
        said = ""
        while "It waits for approval" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        code, _, err = ended(process, signal.SIGTERM)

    assert code == 130
    assert "Cancelled task" in err
