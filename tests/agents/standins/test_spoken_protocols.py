"""Each program's success, error, rate-limit and cut-off case, spoken by a real process and read into an outcome."""

import json
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from ade.agents.protocols.base import (
    ErrorReported,
    RetryReported,
    SessionIdentified,
    TextEmitted,
    ToolCalled,
    UsageReported,
)
from ade.agents.runs.command_line import RunAssignment, fallback_of
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunEnding
from tests.agents.standins.running import profile_of, run

PROGRAMS = ("letta", "claude", "codex", "gemini")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_that_goes_well_succeeds_with_its_answer(program: str, tmp_path: Path) -> None:
    events, report = run(program, "what is the capital of Österreich? 🙂", folder=tmp_path)

    assert (report.ended, report.failure, report.error) == (RunEnding.SUCCEEDED, None, None)
    assert report.result == "You said: what is the capital of Österreich? 🙂"
    assert report.session_id is not None
    assert "".join(event.text for event in events if isinstance(event, TextEmitted)).endswith(report.result)


@pytest.mark.parametrize("program", PROGRAMS)
def test_lines_that_are_no_records_mean_nothing(program: str, tmp_path: Path) -> None:
    _, report = run(program, "hello [[noise]]", folder=tmp_path)

    assert (report.ended, report.result) == (RunEnding.SUCCEEDED, "You said: hello")


def test_letta_tells_who_ran_and_what_it_took(tmp_path: Path) -> None:
    events, report = run("letta", "hello [[tools]] [[retry delay_ms=2500]]", folder=tmp_path)

    assert report.agent_id == "agent-11111111-2222-4333-8444-555555555555"
    assert report.conversation_id == "conv-66666666-7777-4888-8999-000000000000"
    assert (report.spent.tokens, report.spent.turns, report.spent.cost_usd) == (1234, 2, None)
    assert (report.duration_ms, report.model) == (4321, "anthropic/claude-sonnet-4-5")
    assert [(call.id, call.name) for call in report.tool_calls] == [("call_1", "Bash"), ("call_2", "Read")]
    assert RetryReported(reason="llm_api_error", attempt=1, max_attempts=3, delay_ms=2500) in events
    assert report.retries == 1


def test_claude_tells_who_ran_and_what_it_took(tmp_path: Path) -> None:
    events, report = run("claude", "hello [[tools]] [[retry]]", folder=tmp_path)

    assert report.session_id == "5c2b8f7e-1111-4222-8333-444455556666"
    assert (report.spent.tokens, report.spent.cost_usd, report.spent.turns) == (9750, 0.0125, 3)
    assert (report.spent.input_tokens, report.spent.output_tokens, report.spent.cached_tokens) == (9630, 120, 9000)
    assert report.tool_calls[0] == ToolCalled(id="toolu_1", name="Bash", arguments='{"command":"ls"}')
    assert report.tool_call_count == 2
    on_the_way = [event.tokens for event in events if isinstance(event, UsageReported)]
    assert on_the_way == [3250, 6500, 9750, 9750]  # each message once; the last tells of the cost
    assert RetryReported(reason="overloaded", attempt=1, max_attempts=10, delay_ms=600) in events


def test_codex_tells_who_ran_and_what_it_took(tmp_path: Path) -> None:
    events, report = run("codex", "hello [[tools]] [[retry]]", folder=tmp_path)

    assert report.session_id == "0199a213-81c0-7800-8aa1-bbab2a035a53"
    assert (report.spent.tokens, report.spent.cached_tokens, report.spent.turns) == (24885, 24448, 1)
    assert [(call.name, call.arguments) for call in report.tool_calls] == [
        ("command_execution", "bash -lc ls"),
        ("docs.search", '{"q":"é"}'),
    ]
    assert [event.attempt for event in events if isinstance(event, RetryReported)] == [1]


def test_gemini_tells_who_ran_and_what_it_took(tmp_path: Path) -> None:
    events, report = run("gemini", "hello [[tools]] [[warning]]", folder=tmp_path)

    assert report.result == "Let me look. You said: hello"
    assert SessionIdentified(session_id="9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", model="gemini-3-pro") in events
    assert (report.spent.tokens, report.spent.turns, report.duration_ms) == (900, 2, 1500)
    assert [call.name for call in report.tool_calls] == ["read_file"]
    assert ErrorReported("Loop detected, stopping execution") in events


@pytest.mark.parametrize(
    ("program", "prompt", "failure", "said"),
    [
        ("letta", "[[error]]", RunFailure.REPORTED, "the model answered with nonsense"),
        ("letta", "[[max-steps]]", RunFailure.TURN_LIMIT, "Maximum turns"),
        ("letta", "[[error-flag]]", RunFailure.REPORTED, "it did not work out"),
        ("letta", "[[interrupted]]", RunFailure.INTERRUPTED, "Interrupted by user"),
        ("claude", "[[error-flag]]", RunFailure.REPORTED, "API Error: 500"),
        ("claude", "[[max-turns]]", RunFailure.TURN_LIMIT, "error_max_turns"),
        ("claude", "[[execution-error]]", RunFailure.REPORTED, "giving up"),
        ("codex", "[[turn-failed]]", RunFailure.REPORTED, "the turn could not be ended"),
        ("codex", "[[error]]", RunFailure.REPORTED, "unexpected status 500"),
        ("gemini", "[[error]]", RunFailure.NOT_AUTHENTICATED, "it does not work like this"),
        ("gemini", "[[error type=FatalToolError code=54]]", RunFailure.REPORTED, "it does not work like this"),
        ("gemini", "[[turn-limit]]", RunFailure.TURN_LIMIT, "max session turns"),
        ("gemini", "[[error-line]]", RunFailure.REPORTED, "could not be reached"),
        ("gemini", "[[error-flag]]", RunFailure.REPORTED, "not in the mood"),
    ],
)
def test_an_error_is_told_in_the_words_of_the_agent(
    program: str, prompt: str, failure: RunFailure, said: str, tmp_path: Path
) -> None:
    _, report = run(program, prompt, folder=tmp_path)

    assert report.failure is failure
    assert said in (report.error or "")


@pytest.mark.parametrize("program", ["letta", "claude", "gemini"])
def test_exit_code_0_does_not_make_an_error_a_success(program: str, tmp_path: Path) -> None:
    _, report = run(program, "[[error-flag]]", folder=tmp_path)

    assert (report.exit_code, report.ended) == (0, RunEnding.FAILED)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_bad_exit_code_undoes_a_success(program: str, tmp_path: Path) -> None:
    _, report = run(program, "hello [[exit code=3]]", folder=tmp_path)

    assert (report.failure, report.result) == (RunFailure.EXITED, "You said: hello")
    assert report.error == "the agent exited with code 3 although it had reported success"


@pytest.mark.parametrize(
    ("program", "prompt", "failure", "after_ms", "at"),
    [
        ("letta", "[[rate-limit retry_after=45]]", RunFailure.RATE_LIMITED, 45_000, None),
        ("claude", "[[rate-limit]]", RunFailure.RATE_LIMITED, None, None),
        ("claude", "[[rate-limit resets_at=1900000000]]", RunFailure.RATE_LIMITED, None, 1_900_000_000_000),
        ("claude", "[[rate-limit status=529]]", RunFailure.OVERLOADED, None, None),
        ("codex", "[[rate-limit]]", RunFailure.RATE_LIMITED, (3 * 60 + 5) * 60_000, None),
        ("codex", "[[rate-limit text=Rate_limit._Try_again_in_6.5s]]", RunFailure.RATE_LIMITED, 6_500, None),
        ("gemini", "[[rate-limit retry_after=34]]", RunFailure.RATE_LIMITED, 34_000, None),
    ],
)  # fmt: skip
def test_a_provider_that_wants_to_be_left_alone_is_understood(
    program: str, prompt: str, failure: RunFailure, after_ms: int | None, at: int | None, tmp_path: Path
) -> None:
    _, report = run(program, prompt, folder=tmp_path)

    assert (report.failure, report.retry_after_ms, report.retry_at) == (failure, after_ms, at)


@pytest.mark.parametrize("program", PROGRAMS)
def test_words_about_rate_limits_in_the_work_of_an_agent_mean_nothing(program: str, tmp_path: Path) -> None:
    question = "explain 429 too many requests, rate limit exceeded, retry after 30 seconds [[tools]]"
    _, report = run(program, question + (" [[recovered]]" if program == "codex" else ""), folder=tmp_path)

    assert report.ended is RunEnding.SUCCEEDED
    assert report.retry_after_ms is None


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("end", ["", " [[exit code=1]]", " [[signal number=9]]"])
def test_a_stream_that_breaks_off_in_mid_line_is_a_failure_of_its_own(program: str, end: str, tmp_path: Path) -> None:
    _, report = run(program, f"hello [[cut]]{end}", folder=tmp_path)

    assert report.failure is RunFailure.OUTPUT_CUT
    assert report.session_id is not None  # so that the next attempt can go on from there
    assert "middle of a line" in (report.error or "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stream_without_an_end_is_no_success(program: str, tmp_path: Path) -> None:
    _, ended_well = run(program, "hello [[no-result]]", folder=tmp_path)
    _, ended_badly = run(program, "hello [[no-result]] [[exit code=7]] [[stderr text=out_of_luck]]", folder=tmp_path)
    _, was_killed = run(program, "hello [[no-result]] [[signal number=11]]", folder=tmp_path)

    assert ended_well.failure is RunFailure.NO_RESULT
    assert (ended_badly.failure, ended_badly.error) == (
        RunFailure.EXITED,
        "the agent exited with code 7 without a result: out of luck",
    )
    assert (was_killed.failure, was_killed.exit_code) == (RunFailure.KILLED, -11)


def test_claude_waits_for_a_tool_call_to_be_allowed(tmp_path: Path) -> None:
    _, report = run("claude", "hello [[defer]]", folder=tmp_path)

    assert (report.ended, report.failure) == (RunEnding.DEFERRED, None)
    assert report.deferred == ToolCalled(id="toolu_9", name="Bash", arguments='{"command":"rm -rf build"}')


@pytest.mark.parametrize(
    ("program", "assignment", "words"),
    [
        ("letta", RunAssignment(prompt="", conversation_id="conv-7"), ["--conv", "conv-7"]),
        ("claude", RunAssignment(prompt="", session_id="s-7"), ["--resume=s-7"]),
        ("codex", RunAssignment(prompt="", session_id="s-7"), ["resume", "s-7", "-"]),
        ("gemini", RunAssignment(prompt="", session_id="s-7"), ["-r", "s-7"]),
    ],
)
def test_a_resumed_run_goes_on_in_its_session(
    program: str, assignment: RunAssignment, words: list[str], tmp_path: Path
) -> None:
    _, report = run(program, replace(assignment, prompt="[[argv]]"), folder=tmp_path)

    argv = json.loads(report.result or "")
    assert words == [word for word in argv if word in words]
    assert "s-7" in (report.session_id or "") or report.conversation_id == "conv-7"


def test_a_model_that_is_not_to_be_had_is_replaced_once(tmp_path: Path) -> None:
    profile = replace(profile_of("letta"), fallback_model="anthropic/claude-haiku-4-5")
    assignment = RunAssignment(prompt="hello [[unsupported-provider]]", model="nobody/nothing", agent_id=None)
    _, refused = run(profile, assignment, folder=tmp_path)
    second = fallback_of(profile, assignment, refused)

    assert refused.failure is RunFailure.MODEL_UNSUPPORTED
    assert second is not None
    _, report = run(profile, second, folder=tmp_path)
    assert (report.ended, report.model) == (RunEnding.SUCCEEDED, "anthropic/claude-haiku-4-5")
    assert fallback_of(profile, second, refused) is None


@pytest.mark.parametrize(
    ("program", "variable"),
    [
        ("letta", "LETTA_API_KEY"),
        ("claude", "ANTHROPIC_API_KEY"),
        ("codex", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
    ],
)
def test_secrets_that_a_program_prints_are_hidden(program: str, variable: str, tmp_path: Path) -> None:
    environment = {variable: "correct-horse-battery", "AWS_SECRET_ACCESS_KEY": "not for agents"}
    _, report = run(program, "[[secrets]] [[no-result]] [[exit code=1]]", folder=tmp_path, environment=environment)

    assert f"{variable}=[hidden]" in report.stderr
    assert "correct-horse" not in report.stderr + (report.error or "")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("line", [1_000, 0])
def test_much_output_takes_little_memory(program: str, line: int, tmp_path: Path) -> None:
    peak, report = peak_of(program, f"hello [[flood bytes=12000000 line={line}]]", tmp_path)

    assert (report, peak < 20_000_000) == (RunEnding.SUCCEEDED, True), peak


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("line", [1_000, 0])
def test_100_mb_of_output_take_no_more_memory_than_a_little(program: str, line: int, tmp_path: Path) -> None:
    peak, report = peak_of(program, f"hello [[flood bytes=100000000 line={line}]]", tmp_path)

    assert (report, peak < 20_000_000) == (RunEnding.SUCCEEDED, True), peak


def peak_of(program: str, prompt: str, folder: Path) -> tuple[int, RunEnding]:
    """Most bytes in use at once while the output is read, and how the run ended."""
    run(program, "to have everything imported", folder=folder)
    tracemalloc.start()
    try:
        report = run(program, prompt, folder=folder, keep_events=False)[1]
        return tracemalloc.get_traced_memory()[1], report.ended
    finally:
        tracemalloc.stop()
