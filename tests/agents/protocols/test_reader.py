"""Whatever a program prints, in whatever pieces it comes: it is read in one way, within bounds, and never raises."""

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.agents.protocols.base import TextEmitted, ToolCalled
from ade.agents.protocols.reader import LONGEST_STDERR, OutputReader
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import LONGEST_ARGUMENTS, MOST_TOOL_CALLS, RunEnding
from tests.agents.runs.streams import PROGRAMS, RECORDS, lines_of, plain, read, stream_of
from tests.depth import examples
from tests.domain import BUILT_IN, ProtocolName

PROTOCOLS = [*(BUILT_IN[program] for program in PROGRAMS), plain(ProtocolName.JSON), plain(ProtocolName.TEXT)]

WORDS = """
type subtype result error message usage item id text content is_error status stats tool_call tool_calls name system
init assistant auto_approval turn.completed turn.failed item.completed thread.started retry tool_use rate_limit_event
rate_limit_info rejected resetsAt deferred_tool_use errors api_error stop_reason
"""
words = st.sampled_from(WORDS.split())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=12,
)
records = st.dictionaries(words, values, max_size=8).map(lambda record: json.dumps(record).encode() + b"\n")
garbage = (
    st.binary(max_size=40) | records | st.sampled_from([b"{", b"}", b"\n", b'{"type":', b"\r\n", b'{"a":"\\ud83d"}\n'])
)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize("program", PROGRAMS)
@given(
    before=st.lists(garbage, max_size=4), cuts=st.lists(st.integers(0, 10_000), max_size=12), code=st.integers(-15, 60)
)
def test_the_same_bytes_mean_the_same_in_any_pieces(
    program: str, before: list[bytes], cuts: list[int], code: int
) -> None:
    data = b"".join(before) + b"\n" + stream_of(program)

    assert read(program, *in_pieces(data, cuts), exit_code=code) == read(program, data, exit_code=code)


@pytest.mark.parametrize("profile", PROTOCOLS, ids=lambda profile: profile.protocol)
@given(data=st.lists(garbage, max_size=12).map(b"".join), stderr=st.binary(max_size=100), code=st.integers(-15, 255))
def test_no_output_raises(profile: object, data: bytes, stderr: bytes, code: int) -> None:
    events, report = read(profile, data, exit_code=code, stderr=stderr)  # type: ignore[arg-type]

    json.dumps([report.result, report.error, report.stderr, str(events)]).encode()
    assert (report.failure is None) == (report.error is None)
    assert report.ended is RunEnding.FAILED or code == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_is_a_success_only_when_its_last_record_is_whole(program: str) -> None:
    data = stream_of(program)
    for end in range(len(data) - 1):
        _, report = read(program, data[:end])
        is_between_records = end == 0 or b"\n" in data[end - 1 : end + 1]
        assert report.failure is (RunFailure.NO_RESULT if is_between_records else RunFailure.OUTPUT_CUT)
    assert read(program, data[:-1])[1].ended is RunEnding.SUCCEEDED  # its line end alone is missing
    assert read(program, data)[1].result == "Grüße 🙂"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_whole_line_without_its_end_is_no_cut(program: str) -> None:
    *first, last = RECORDS[program]
    _, without_last = read(program, lines_of(*first).rstrip(b"\n"))
    _, in_last = read(program, lines_of(*first), lines_of(last)[:-3])

    assert (without_last.failure, in_last.failure) == (RunFailure.NO_RESULT, RunFailure.OUTPUT_CUT)


def test_half_characters_that_programs_leave_over_do_not_lose_a_line() -> None:
    line = b'{"type":"result","subtype":"success","is_error":false,"result":"cut \\ud83d and \xe2\x82 here"}\n'
    _, report = read("claude", line)

    assert (report.ended, report.result) == (RunEnding.SUCCEEDED, "cut ? and \ufffd here")


@pytest.mark.parametrize("depth", [100, 900, 940, 960, 970, 980, 990, 5_000])
def test_arguments_that_go_too_deep_do_no_harm(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    line = b'{"type":"tool_use","tool_id":"t","tool_name":"x","parameters":%b}\n' % nested
    _, report = read("gemini", line, stream_of("gemini"))

    assert (report.ended, report.tool_call_count in (0, 1)) == (RunEnding.SUCCEEDED, True)


def test_a_line_that_is_too_long_is_passed_over_with_a_mark() -> None:
    long_line = lines_of({"type": "user", "padding": "x" * 5_000})
    events, report = read("claude", long_line, stream_of("claude"), longest_line=1_000)

    assert (report.ended, report.long_lines) == (RunEnding.SUCCEEDED, 1)
    marked = next(event for event in events if isinstance(event, TextEmitted))
    assert marked.text.startswith('{"type": "user"')
    assert marked.text.endswith("bytes cut ...]")


def test_a_result_that_is_too_long_to_be_read_is_told_as_such() -> None:
    _, report = read("claude", lines_of({"type": "result", "result": "x" * 5_000}), longest_line=1_000)

    assert (report.failure, report.result) == (RunFailure.NO_RESULT, None)
    assert "too long lines: 1" in (report.error or "")


def test_a_long_result_keeps_its_beginning_and_its_end() -> None:
    answer = "a" * 3_000 + "b" * 3_000
    whole = lines_of({"type": "result", "subtype": "success", "result": answer})
    pieces = [{"type": "message", "role": "assistant", "content": char} for char in answer]
    in_pieces = lines_of(*pieces, {"type": "result", "status": "success"})

    for program, data in (("claude", whole), ("gemini", in_pieces)):
        _, report = read(program, data, longest_text=100)
        assert report.result == "a" * 50 + "[... 5,900 characters cut ...]" + "b" * 50


def test_tool_calls_are_counted_all_and_kept_in_part() -> None:
    calls = (
        {"type": "tool_use", "tool_id": f"t{number // 2}", "tool_name": "x", "parameters": {"long": "y" * 9_000}}
        for number in range(2 * MOST_TOOL_CALLS + 200)
    )
    _, report = read("gemini", lines_of(*calls))

    assert (report.tool_call_count, len(report.tool_calls)) == (MOST_TOOL_CALLS + 100, MOST_TOOL_CALLS)
    assert len(report.tool_calls[0].arguments) < LONGEST_ARGUMENTS + 100


def test_a_tool_call_is_told_when_it_is_made_and_only_then() -> None:
    call = {"type": "tool_use", "tool_id": "t", "tool_name": "x", "parameters": {}}
    events, _ = read("gemini", lines_of(call, call))

    assert [event for event in events if isinstance(event, ToolCalled)] == [
        ToolCalled(id="t", name="x", arguments="{}")
    ]


def test_what_agents_of_an_agent_say_is_not_its_answer_and_their_turns_are_not_its_turns() -> None:
    def message(number: int, **more: str) -> dict[str, object]:
        said = {"id": f"m{number}", "content": [{"type": "text", "text": str(number)}], "usage": {"output_tokens": 5}}
        return {"type": "assistant", "message": said, **more}

    events, report = read("claude", lines_of(message(1), message(2, parent_tool_use_id="t1"), message(3)))

    assert [event.text for event in events if isinstance(event, TextEmitted)] == ["1", "3"]
    assert (report.spent.turns, report.spent.tokens) == (2, 15)


def test_a_run_of_very_many_steps_takes_no_more_memory_than_one_of_many() -> None:
    def peak(steps: range) -> int:
        reader = OutputReader(BUILT_IN["claude"])
        tracemalloc.start()
        try:
            for number in steps:
                block = {"type": "tool_use", "id": f"t{number}", "name": "x", "input": {}}
                reader.feed(lines_of({"type": "assistant", "message": {"id": f"m{number}", "content": [block]}}))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert peak(range(6_000)) < 1.5 * peak(range(3_000))


def test_lines_may_end_as_they_do_on_windows() -> None:
    assert read(plain(ProtocolName.TEXT), b"one\r\ntwo\r\n")[1].result == "one\ntwo"
    assert read("claude", stream_of("claude").replace(b"\n", b"\r\n"))[1].ended is RunEnding.SUCCEEDED


def test_only_the_end_of_stderr_is_kept_and_no_half_of_a_secret() -> None:
    reader = OutputReader(BUILT_IN["claude"], secrets=["correct-horse-battery"])
    for _ in range(2_000):
        reader.feed_stderr(b"correct-horse-battery ")
    _, report = reader.finish(1)

    assert len(report.stderr) <= LONGEST_STDERR
    assert "horse" not in report.stderr


def test_an_id_that_could_be_taken_for_a_flag_is_not_kept() -> None:
    _, report = read("codex", lines_of({"type": "thread.started", "thread_id": "--dangerously-bypass"}))

    assert report.session_id is None


@settings(max_examples=examples(30))
@given(lines=st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=20), max_size=20))
def test_a_plain_command_answers_with_all_that_it_prints(lines: list[str]) -> None:
    _, report = read(plain(ProtocolName.TEXT), "\n".join(lines).encode())

    assert (report.ended, report.result) == (RunEnding.SUCCEEDED, "\n".join(lines).removesuffix("\n"))


def test_a_plain_command_fails_by_its_exit_code() -> None:
    _, report = read(plain(ProtocolName.TEXT), b"half of it\n", exit_code=2, stderr=b"boom: rate of things\n")

    assert (report.failure, report.result) == (RunFailure.EXITED, "half of it")
    assert report.error == "the program exited with code 2: boom: rate of things"


JSON_ANSWER = {"session_id": "s-1", "response": "done", "stats": {"total_tokens": 5}, "num_turns": 2}


@pytest.mark.parametrize("indent", [None, 2])
def test_one_json_object_is_read_on_one_line_or_many(indent: int | None) -> None:
    _, report = read(plain(ProtocolName.JSON), b"Loading...\n", json.dumps(JSON_ANSWER, indent=indent).encode())

    assert (report.ended, report.result, report.session_id) == (RunEnding.SUCCEEDED, "done", "s-1")
    assert (report.spent.tokens, report.spent.turns) == (5, 2)


@pytest.mark.parametrize(
    ("document", "failure"),
    [
        ({"is_error": True, "result": "no"}, RunFailure.REPORTED),
        ({"error": {"type": "ApiError", "message": "slow down", "code": 429}}, RunFailure.RATE_LIMITED),
        ({"error": "it broke"}, RunFailure.REPORTED),
        ({"subtype": "error_max_turns", "result": ""}, RunFailure.TURN_LIMIT),
    ],
)
def test_an_error_in_a_json_object_is_a_failure_at_exit_code_0(
    document: dict[str, object], failure: RunFailure
) -> None:
    assert read(plain(ProtocolName.JSON), json.dumps(document).encode())[1].failure is failure


def test_a_json_object_that_breaks_off_is_cut_and_none_at_all_is_no_result() -> None:
    whole = json.dumps(JSON_ANSWER, indent=2).encode()

    assert read(plain(ProtocolName.JSON), whole[:-5])[1].failure is RunFailure.OUTPUT_CUT
    assert read(plain(ProtocolName.JSON), b"nothing\n")[1].failure is RunFailure.NO_RESULT
    too_long = read(plain(ProtocolName.JSON), whole, longest_line=20)[1]
    assert (too_long.failure, too_long.long_lines) == (RunFailure.NO_RESULT, 1)
