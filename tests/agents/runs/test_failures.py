"""Which failure it was: what counts more, what is only noise, and what the queue makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.failures import RATE_LIMIT_MARKS, RUN_FAILURES, RunFailure, moment_in, pause_in, read_error
from ade.agents.runs.outcome import LONGEST_WAIT_MS, RunEnding, RunReport, failed_outcome, wait_ms
from ade.failures import FAILURES, FailureKind
from tests.agents.runs.streams import lines_of, read, stream_of
from tests.domain import BUILT_IN

NOW = 1_900_000_000_000


def test_an_error_line_of_letta_stays_an_error_whatever_follows() -> None:
    failed = lines_of({"type": "error", "message": "the stream broke", "stop_reason": "error"})
    _, report = read("letta", failed, stream_of("letta"))

    assert (report.failure, report.error) == (RunFailure.REPORTED, "the stream broke")


def test_an_error_line_of_codex_is_forgiven_when_the_turn_completes() -> None:
    _, report = read("codex", lines_of({"type": "error", "message": "429 Too Many Requests"}), stream_of("codex"))

    assert report.ended is RunEnding.SUCCEEDED


def test_a_turn_of_codex_that_fails_after_one_that_completed_is_a_failure_at_exit_code_0() -> None:
    _, report = read("codex", stream_of("codex"), lines_of({"type": "turn.failed", "error": {"message": "no more"}}))

    assert (report.failure, report.error, report.result) == (RunFailure.REPORTED, "no more", "Grüße 🙂")


def test_gemini_need_not_say_which_error_it_was() -> None:
    assert read("gemini", lines_of({"type": "result", "status": "error"}))[1].failure is RunFailure.REPORTED


def test_an_error_that_was_got_over_is_not_what_a_later_end_is_blamed_on() -> None:
    error, turn = {"type": "error", "message": "429 Too Many Requests"}, {"type": "item.started", "item": {}}

    assert read("codex", lines_of(error), exit_code=1)[1].failure is RunFailure.RATE_LIMITED
    assert read("codex", lines_of(error, turn), exit_code=1)[1].failure is RunFailure.EXITED


def test_a_nested_error_of_the_api_tells_what_letta_itself_does_not() -> None:
    api_error = {"message": "Rate limited", "error_type": "llm_rate_limit", "detail": "retry-after: 12"}
    _, report = read(
        "letta", lines_of({"type": "error", "message": "Turn failed", "api_error": api_error}), exit_code=1
    )

    assert (report.failure, report.retry_after_ms) == (RunFailure.RATE_LIMITED, 12_000)


def test_letta_tells_on_stderr_that_its_output_was_lost() -> None:
    lost = b"headless stdout stream failed before the final result was written: EPIPE\n"

    assert read("letta", stream_of("letta")[:50], exit_code=1, stderr=lost)[1].failure is RunFailure.OUTPUT_CUT
    assert read("letta", b"", exit_code=1, stderr=lost)[1].failure is RunFailure.OUTPUT_CUT
    assert read("claude", b"", exit_code=1, stderr=lost)[1].failure is RunFailure.EXITED


def test_agents_that_an_agent_has_started_count_in_what_it_spent() -> None:
    models = {"opus": {"inputTokens": 10, "outputTokens": 5}, "haiku": {"cacheReadInputTokens": 100}, "x": None}
    usage = {"input_tokens": 10, "output_tokens": 5}
    _, report = read("claude", lines_of({"type": "result", "usage": usage, "modelUsage": models}))

    assert (report.spent.tokens, report.spent.cached_tokens) == (115, 100)


def test_a_retry_that_never_ended_says_why_a_run_was_lost() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded", "attempt": 1}
    answer = {"type": "assistant", "message": {"id": "m", "content": []}}

    assert read("claude", lines_of(retry), exit_code=1)[1].failure is RunFailure.OVERLOADED
    assert read("claude", lines_of(retry, answer), exit_code=1)[1].failure is RunFailure.EXITED


def test_a_run_that_ade_stopped_failed_of_that_unless_it_was_done() -> None:
    def stopped(data: bytes, code: int) -> RunReport:
        reader = OutputReader(BUILT_IN["claude"])
        reader.feed(data)
        return reader.finish(code, stopped_for=RunFailure.TIMED_OUT, stop_message="longer than 1h")[1]

    assert stopped(stream_of("claude"), 0).ended is RunEnding.SUCCEEDED
    half = stopped(stream_of("claude")[:-9], -15)
    assert (half.failure, half.error, half.session_id) == (RunFailure.TIMED_OUT, "longer than 1h", "s-1")


def test_exit_codes_of_a_profile_say_what_they_mean() -> None:
    profile = replace(BUILT_IN["command"], exit_codes={75: RunFailure.RATE_LIMITED}, rate_limit_marks=("slow down",))

    assert read(profile, b"", exit_code=75)[1].failure is RunFailure.RATE_LIMITED
    assert read(profile, b"", exit_code=1, stderr=b"Slow down, 30 a minute")[1].failure is RunFailure.RATE_LIMITED
    assert read(profile, b"", exit_code=1, stderr=b"overloaded, unauthorized")[1].failure is RunFailure.EXITED
    gemini = {code: read("gemini", b"", exit_code=code)[1].failure for code in (1, 41, 42, 53, 130)}
    assert gemini == {
        1: RunFailure.EXITED,
        41: RunFailure.NOT_AUTHENTICATED,
        42: RunFailure.BAD_REQUEST,
        53: RunFailure.TURN_LIMIT,
        130: RunFailure.INTERRUPTED,
    }


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("HTTP 429", RunFailure.RATE_LIMITED),
        ("Error: status code 529", RunFailure.OVERLOADED),
        ("insufficient_quota: check your plan", RunFailure.QUOTA_EXHAUSTED),
        ("You exceeded your current quota, retry after 20s", RunFailure.RATE_LIMITED),
        ("Your credit balance is too low", RunFailure.QUOTA_EXHAUSTED),
        ("prompt is too long: 250000 tokens", RunFailure.CONTEXT_TOO_LONG),
        ("API Error: 401 authentication_error", RunFailure.NOT_AUTHENTICATED),
        ("{'type':'overloaded_error'}", RunFailure.OVERLOADED),
        ("Claude AI usage limit reached|1900000000", RunFailure.RATE_LIMITED),
        ("line 429 of the file is wrong", None),
        ("the tests do not pass", None),
    ],
)
def test_the_text_of_an_error_tells_its_kind(text: str, failure: RunFailure | None) -> None:
    assert read_error(text, rate_limit_marks=RATE_LIMIT_MARKS, model_marks=()).failure is failure


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("retry after 30", 30_000),
        ("retry-after: 1.5", 1_500),
        ("retry-after-ms: 250", 250),
        ("retry after 2 minutes", 120_000),
        ('"retrydelay": "34.07s"', 34_070),
        ("please try again in 6m0s", 360_000),
        ("try again in 22 hours, 2 minutes and 3 seconds", (22 * 3600 + 2 * 60 + 3) * 1_000),
        ("try again in 3 days", 24 * 3_600_000),  # no longer than a day: words may be about something else
        ("please try again in 120ms", 120),
        ("try again later", None),
        ("wait for it", None),
    ],
)
def test_the_pause_that_is_asked_for_is_found(text: str, ms: int | None) -> None:
    assert pause_in(text) == ms


def test_the_moment_at_which_a_limit_ends_is_found() -> None:
    assert moment_in("usage limit reached|1900000000") == NOW
    assert moment_in('"resets_at": 1900000000000') == NOW
    assert moment_in("limit reached") is None


@given(text=st.text(max_size=300) | st.from_regex(r"(retry after [0-9]{1,30}(s|m| )*){1,4}"))
def test_no_text_of_an_error_raises(text: str) -> None:
    pause = pause_in(text.lower())

    assert pause is None or pause >= 0
    moment_in(text)


def test_every_failure_of_a_run_has_a_policy_that_the_queue_can_follow() -> None:
    assert set(RUN_FAILURES) == set(RunFailure)
    for failure, policy in RUN_FAILURES.items():
        assert not policy.is_retryable or FAILURES[policy.kind].retry, failure


def test_a_failed_run_becomes_a_failure_of_the_task() -> None:
    report = RunReport(exit_code=0, failure=RunFailure.OUTPUT_CUT, error="cut", session_id="s-1", stderr="oops")
    failed = failed_outcome(report, NOW)

    assert (failed.error.kind, failed.error.type, failed.error.retryable) == (
        FailureKind.RAISED,
        "AgentOutputCut",
        True,
    )
    assert failed.error.details == {"failure": "output_cut", "exit_code": 0, "session_id": "s-1", "stderr": "oops"}
    assert failed.retry_after_ms is None
    with pytest.raises(ValueError, match="only a failed run"):
        failed_outcome(RunReport(exit_code=0), NOW)


def test_the_longer_wait_counts_and_none_is_longer_than_a_week() -> None:
    limited = RunReport(exit_code=1, failure=RunFailure.RATE_LIMITED, retry_after_ms=5_000)

    assert wait_ms(limited, NOW) == 5_000
    assert wait_ms(replace(limited, retry_at=NOW + 60_000), NOW) == 60_000
    assert wait_ms(replace(limited, retry_at=NOW - 60_000), NOW) == 5_000
    assert wait_ms(replace(limited, retry_at=10 * NOW), NOW) == LONGEST_WAIT_MS
    assert failed_outcome(limited, NOW).error.kind is FailureKind.RATE_LIMITED


@pytest.mark.parametrize(
    "prose",
    [
        "tests/test_throttling.py failed",
        "FAILED test_unauthorized_user - assert False",
        "npm ERR! code 400",
        "see docs/rate-limit.md",
    ],
)
def test_names_of_files_and_tests_mean_nothing(prose: str) -> None:
    assert read_error(prose, rate_limit_marks=RATE_LIMIT_MARKS, model_marks=()).failure is None
