"""A task that runs an agent: what it is told, what it keeps, and what the queue makes of how it ends."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ade import Ade, Status, Task
from ade.agents.runs.model import AgentResult, progress_in, result_in
from ade.failures import FailureKind
from tests.agents.runs.fake_agent_app import app as house
from tests.agents.runs.fake_agent_app import profiles
from tests.domain import OutputLine

SESSION = "5c2b8f7e-1111-4222-8333-444455556666"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Ade]:
    async with house(tmp_path) as opened:
        yield opened


async def run(app: Ade, agent_type: str, prompt: str, /, *, attempts: int = 1, **arguments: Any) -> Task:
    """The task when it has ended, whatever its end."""
    async with app.worker():
        given = {"prompt": prompt, **arguments}
        handle = await app.enqueue(f"agent:{agent_type}", given, max_attempts=attempts)
        return await handle.wait(timeout=90)


async def lines_of(app: Ade, task: Task) -> list[OutputLine]:
    opened = await app.open()
    return await opened.stores.outputs.read_output(task.id, 0, 20_000)


def result_of(task: Task) -> AgentResult:
    assert task.status is Status.COMPLETED, task.error
    found = result_in(task.result)
    assert found is not None
    return found


def failure_of(task: Task) -> tuple[FailureKind, str, object]:
    assert task.error is not None
    assert task.error.details is not None
    return task.error.kind, task.error.type, task.error.details["failure"]


@pytest.mark.parametrize("agent_type", ["letta", "claude", "codex", "gemini"])
async def test_the_result_of_each_program_is_kept_with_what_it_took(app: Ade, agent_type: str) -> None:
    task = await run(app, agent_type, "what is up? [[tools]]", description="a question")

    result = result_of(task)
    assert result.report.endswith("You said: what is up?")
    assert result.subagent_type == agent_type
    assert result.tokens
    assert result.tool_calls >= 1
    assert result.session_id or result.conversation_id
    assert result.output_file is not None
    transcript = Path(result.output_file).read_text()
    assert transcript.startswith(f"[Task started: a question]\n[subagent_type: {agent_type}]\n\n")
    assert transcript.endswith("You said: what is up?\n\n[Task completed]\n")
    shown = [line.text for line in await lines_of(app, task)]
    assert any(line.startswith("[tool]") for line in shown)
    assert any(line.endswith("You said: what is up?") for line in shown)


@pytest.mark.parametrize(
    ("agent_type", "direction", "kind", "failure"),
    [
        ("letta", "[[error]]", FailureKind.RAISED, "reported"),
        ("claude", "[[error-flag]]", FailureKind.RAISED, "reported"),
        ("claude", "[[max-turns]]", FailureKind.UNRECOVERABLE, "turn_limit"),
        ("claude", "[[cut]]", FailureKind.RAISED, "output_cut"),
        ("claude", "[[no-result]]", FailureKind.BAD_RESULT, "no_result"),
        ("codex", "[[signal number=9]]", FailureKind.RAISED, "killed"),
    ],
)
async def test_a_failed_run_says_how_it_failed_and_is_tried_again_if_that_helps(
    app: Ade, agent_type: str, direction: str, kind: FailureKind, failure: str
) -> None:
    task = await run(app, agent_type, f"do it {direction}", attempts=2)

    assert task.status is Status.FAILED
    assert failure_of(task)[0] is kind
    assert failure_of(task)[2] == failure
    assert task.attempt == (2 if kind is FailureKind.RAISED else 1)
    assert len(transcripts_of(app, task)) == task.attempt
    assert all(path.read_text().endswith("[Task failed]\n") for path in transcripts_of(app, task))


def transcripts_of(app: Ade, task: Task) -> list[Path]:
    return sorted(Path(app.settings.agents.transcripts, task.id).glob("*.log"))


async def test_another_attempt_goes_on_in_the_session_of_the_first(app: Ade) -> None:
    task = await run(app, "claude", "do it [[argv]] [[cut]]", attempts=2)

    shown = [line.text for line in await lines_of(app, task) if line.attempt == 2]
    assert any(f"--resume={SESSION}" in line for line in shown)
    assert not any(f"--resume={SESSION}" in line.text for line in await lines_of(app, task) if line.attempt == 1)


async def test_a_run_goes_on_in_a_session_that_is_named(app: Ade) -> None:
    task = await run(app, "claude", "go on [[argv]]", session_id="an-earlier-one")

    assert "--resume=an-earlier-one" in result_of(task).report
    assert result_of(task).session_id == "an-earlier-one"


async def test_a_model_that_is_not_to_be_had_is_replaced_once(tmp_path: Path) -> None:
    refused = "[[stderr text=Provider_x_is_not_supported,_supported_providers:_y]] [[exit code=1]] [[no-result]]"
    async with house(tmp_path, profiles=profiles(letta={"fallback_model": "other/model"})) as app:
        task = await run(app, "letta", f"hello {refused}", attempts=3, model="some/model")

        assert failure_of(task)[2] == "model_unsupported"
        assert task.attempt == 1
        changes = [line.text for line in await lines_of(app, task) if line.text.startswith("[model]")]
        assert changes == ["[model] some/model is not to be had; now other/model"]


async def test_a_provider_that_wants_a_pause_gets_it_from_all_runs(app: Ade) -> None:
    async with app.worker():
        first = await app.enqueue("agent:claude", {"prompt": "hi [[rate-limit status=429 resets_at=4102444800]]"})
        throttled = await until(first, lambda task: task.throttles == 1)
        second = await app.enqueue("agent:claude", {"prompt": "hi"})
        waiting = await until(second, lambda task: task.throttles == 1)

    assert throttled.attempt == 0  # it costs no attempt
    assert waiting.run_after > throttled.updated_at + 3_600_000
    assert waiting.error is not None
    assert "asked for a pause" in waiting.error.message
    assert transcripts_of(app, waiting) == []  # no program was started for it


async def until(handle: Any, holds: Any) -> Task:
    """The task as soon as it is so; its events tell when to look."""
    async with asyncio.timeout(60):
        async for _ in handle.events(follow=True):
            task: Task = await handle.get()
            if holds(task):
                return task
    raise AssertionError("it ended before it was so")


async def test_a_run_beyond_its_budget_is_stopped_for_good(app: Ade) -> None:
    task = await run(app, "claude", "spend [[tools]] [[hang]]", attempts=3, max_tokens=100)

    assert failure_of(task) == (FailureKind.UNRECOVERABLE, "AgentBudgetExceeded", "budget_exceeded")
    assert task.error is not None
    assert "the budget of the task is 100 tokens" in task.error.message
    assert task.attempt == 1


async def test_a_result_that_is_there_is_kept_whatever_it_cost(app: Ade) -> None:
    task = await run(app, "claude", "hi", max_cost_usd=0.001)

    assert result_of(task).cost_usd == 0.0125


async def test_all_attempts_share_one_budget(app: Ade) -> None:
    task = await run(app, "claude", "spend [[tools]] [[cut]]", attempts=5, max_tokens=6_000)

    assert failure_of(task)[2] == "budget_exceeded"
    assert task.attempt < 5
    progress = progress_in(task.progress)
    assert progress is not None
    assert progress.earlier.tokens is not None
    assert progress.earlier.tokens > 6_000


async def test_an_author_has_a_budget_for_all_his_runs(tmp_path: Path) -> None:
    async with house(tmp_path, author_cost_usd=0.02) as app, app.worker():
        ended = []
        for _ in range(3):
            handle = await app.enqueue("agent:claude", {"prompt": "hi"}, author="ann", max_attempts=1)
            ended.append(await handle.wait(timeout=90))
        other = await (await app.enqueue("agent:claude", {"prompt": "hi"}, author="bob")).wait(timeout=90)

    assert [task.status for task in ended] == [Status.COMPLETED, Status.COMPLETED, Status.FAILED]
    assert failure_of(ended[2])[2] == "budget_exceeded"
    assert ended[2].error is not None
    assert "the budget of the author is used up" in ended[2].error.message
    assert other.status is Status.COMPLETED


async def test_a_task_may_only_set_what_its_type_allows(app: Ade) -> None:
    task = await run(app, "claude", "hi", attempts=3, env={"ANTHROPIC_BASE_URL": "http://elsewhere"})

    assert task.status is Status.FAILED
    assert task.attempt == 1
    assert task.error is not None
    assert task.error.kind is FailureKind.BAD_ARGUMENTS
    assert "may not set ANTHROPIC_BASE_URL" in task.error.message


async def test_secrets_of_the_worker_are_seen_nowhere(app: Ade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sesame-open-yourself")
    monkeypatch.setenv("DATABASE_PASSWORD", "never-passed-on")
    task = await run(app, "claude", "hi [[secrets]] [[error-flag]]")

    kept = "".join(path.read_text() for path in Path(app.settings.agents.transcripts, task.id).iterdir())
    shown = "".join(line.text for line in await lines_of(app, task))
    assert "sesame" not in kept + shown + str(task.error)
    assert "ANTHROPIC_API_KEY=[hidden]" in shown


async def test_a_program_is_told_the_trace_of_its_task(tmp_path: Path) -> None:
    tell = [sys.executable, "-c", "import os; print(os.environ.get('TRACEPARENT'))"]
    async with house(tmp_path, types=("teller",), profiles={"teller": {"command": tell}}) as app, app.worker():
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        handle = await app.enqueue("agent:teller", {"prompt": "hi"}, max_attempts=1, trace=trace)
        task = await handle.wait(timeout=90)

    assert result_of(task).report == trace


async def test_a_program_that_is_not_there_is_no_reason_to_try_again(tmp_path: Path) -> None:
    async with house(tmp_path, types=("ghost",), profiles={"ghost": {"command": ["no-such-program"]}}) as app:
        task = await run(app, "ghost", "hi", attempts=3)

    assert task.attempt == 1
    assert task.error is not None
    assert task.error.type == "ProgramNotStarted"
    assert "was not found in PATH" in task.error.message


async def test_much_output_is_cut_with_a_mark(app: Ade) -> None:
    task = await run(app, "codex", "hi [[flood bytes=3000000 line=100]]")

    assert result_of(task).report == "You said: hi"
    shown = await lines_of(app, task)
    assert len(shown) <= 5_001


async def test_a_directory_of_its_own_is_kept_for_all_attempts(app: Ade, tmp_path: Path) -> None:
    own = await run(app, "claude", "hi")
    elsewhere = tmp_path / "given"
    elsewhere.mkdir()
    given = await run(app, "claude", "hi", cwd=str(elsewhere))
    missing = await run(app, "claude", "hi", cwd=str(tmp_path / "missing"))

    assert (tmp_path / "work" / own.id).is_dir()
    assert not (tmp_path / "work" / given.id).exists()
    assert missing.error is not None
    assert "cannot be used" in missing.error.message


async def test_it_is_known_where_to_look_at_an_agent_while_it_runs(tmp_path: Path) -> None:
    url = "https://agents.example/{agent_id}"
    async with house(tmp_path, profiles=profiles(letta={"url": url})) as app, app.worker():
        handle = await app.enqueue("agent:letta", {"prompt": "hi [[hang]]"}, max_attempts=1)
        async with asyncio.timeout(60):
            async for _ in handle.output(follow=True):
                break
        running = progress_in((await handle.get()).progress)
        await handle.cancel()

    assert running is not None
    assert running.url == f"https://agents.example/{running.agent_id}"


async def test_a_program_that_counts_its_whole_session_is_not_charged_twice(app: Ade) -> None:
    first = await run(app, "codex", "hi")
    taken = result_of(first)
    second = await run(app, "codex", "hi", session_id=taken.session_id, session_tokens=taken.session_tokens)

    assert taken.tokens == taken.session_tokens
    assert result_of(second).tokens == 0  # the stand-in says the same number again: nothing came to it


async def test_a_limit_that_cannot_be_kept_is_told(app: Ade) -> None:
    task = await run(app, "codex", "hi", max_cost_usd=0.5)

    shown = [line.text for line in await lines_of(app, task)]
    assert "[budget] codex does not report its dollars: that limit cannot be enforced" in shown


@pytest.mark.parametrize("cwd", ["", "relative/folder", "~nobody-of-this-name/x"])
async def test_a_folder_that_nobody_can_know_is_refused_at_once(app: Ade, cwd: str) -> None:
    task = await run(app, "claude", "hi", attempts=3, cwd=cwd)

    assert task.attempt == 1
    assert task.error is not None
    assert task.error.kind is FailureKind.BAD_ARGUMENTS
