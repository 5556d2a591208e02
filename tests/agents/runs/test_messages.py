"""What agents get to read is of one shape, whatever the texts in it are, and never longer than they can take."""

import html
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ade.agents.runs import messages
from ade.agents.runs.files import Transcript
from ade.agents.runs.messages import MAX_OUTPUT_TEXT, RunUsage, notification

texts = st.text(max_size=200)
counts = st.none() | st.integers(0, 10**12)
usages = st.builds(RunUsage, total_tokens=counts, tool_uses=counts, duration_ms=counts)


def test_a_notification_in_full() -> None:
    text = notification(
        "task_7",
        is_completed=True,
        summary=messages.summary_of("Fix the <login> test", is_completed=True),
        result=messages.header("coder", "agent-1", "conv-2") + "\n\nDone & pushed.",
        usage=RunUsage(total_tokens=1200, tool_uses=3, duration_ms=4500),
        output_file="/var/ade/task_7.log",
    )

    assert text == (
        "<task-notification>\n"
        "<task-id>task_7</task-id>\n"
        "<status>completed</status>\n"
        '<summary>Agent "Fix the &lt;login&gt; test" completed</summary>\n'
        "<result>subagent_type=coder agent_id=agent-1 conversation_id=conv-2\n\nDone &amp; pushed.</result>\n"
        "<usage>total_tokens: 1200\ntool_uses: 3\nduration_ms: 4500</usage>\n"
        "</task-notification>\n"
        "Full transcript available at: /var/ade/task_7.log"
    )


def test_a_notification_of_which_little_is_known() -> None:
    text = notification("task_1", is_completed=False, summary='Agent "x" failed', result="it was cancelled")

    assert text == (
        "<task-notification>\n"
        "<task-id>task_1</task-id>\n"
        "<status>failed</status>\n"
        '<summary>Agent "x" failed</summary>\n'
        "<result>it was cancelled</result>\n"
        "</task-notification>"
    )


@given(summary=texts, result=texts, usage=usages, is_completed=st.booleans())
def test_no_text_breaks_out_of_its_element(summary: str, result: str, usage: RunUsage, is_completed: bool) -> None:
    text = notification("task_1", is_completed=is_completed, summary=summary, result=result, usage=usage)

    for element in ("task-notification", "task-id", "status", "summary", "result"):
        assert (text.count(f"<{element}>"), text.count(f"</{element}>")) == (1, 1)
    assert html.unescape(_between(text, "summary")) == html.unescape(html.escape(summary, quote=False))
    assert html.unescape(_between(text, "result")) == html.unescape(html.escape(result, quote=False))


@given(usage=usages)
def test_each_line_of_usage_stands_there_if_it_is_known(usage: RunUsage) -> None:
    text = notification("task_1", is_completed=True, summary="", result="", usage=usage)

    known = {name: value for name in RunUsage.__struct_fields__ if (value := getattr(usage, name)) is not None}
    assert ("<usage>" in text) == bool(known)
    if known:
        assert _between(text, "usage") == "\n".join(f"{name}: {value}" for name, value in known.items())


@given(text=st.text(alphabet="ab\n", max_size=50), times=st.integers(0, 3_000))
def test_what_is_told_is_bounded(text: str, times: int) -> None:
    told = messages.capped(text * times)

    assert len(told) <= MAX_OUTPUT_TEXT
    assert told == text * times or "cut ...]" in told


def test_what_was_cut_is_marked_between_the_beginning_and_the_end() -> None:
    told = messages.foreground_result("subagent_type=coder", "a" * 40_000 + "the end", "/tmp/1.log")

    assert told.startswith("subagent_type=coder\n\naaa")
    assert told.endswith("the end\nOutput file: /tmp/1.log")
    assert "characters cut ...]" in told


@given(texts, texts, texts)
def test_a_header_is_one_line_and_leaves_out_what_is_empty(kind: str, agent_id: str, conversation_id: str) -> None:
    assert len(messages.header(kind, agent_id, conversation_id).splitlines()) <= 1
    assert messages.header("coder", "", None) == "subagent_type=coder"
    assert messages.header("coder", None, "conv-1") == "subagent_type=coder conversation_id=conv-1"


def test_transcripts_begin_and_end_in_a_fixed_form(tmp_path: Path) -> None:
    good, bad = Transcript(tmp_path / "good.log"), Transcript(tmp_path / "bad.log")
    good.start("Fix\nit", "coder")
    good.succeed("subagent_type=coder", "ok")
    bad.fail("no luck")

    begin = "[Task started: Fix it]\n[subagent_type: coder]\n\n"
    assert good.path.read_text() == f"{begin}subagent_type=coder\n\nok\n\n[Task completed]\n"
    assert bad.path.read_text() == "[error] no luck\n\n[Task failed]\n"


def test_answers_of_the_task_tool() -> None:
    assert messages.foreground_result("subagent_type=coder", "ok", "/t.log") == (
        "subagent_type=coder\n\nok\nOutput file: /t.log"
    )
    assert messages.foreground_error("no luck", "/t.log") == "Error: no luck\nOutput file: /t.log"
    assert messages.foreground_error("no luck") == "Error: no luck"
    assert messages.background_started("task_1", agent_id="agent-1", output_file="/t.log").splitlines()[:3] == [
        "Task running in background with task ID: task_1",
        "Agent ID: agent-1",
        "Output file: /t.log",
    ]
    assert "You will be notified" in messages.background_started("task_1")


def test_output_is_told_with_its_error_after_it() -> None:
    assert messages.output_text("") == "(no output yet)"
    assert messages.output_text("half done", "no luck") == "half done\n[error] no luck"
    assert messages.output_text("", "no luck") == "[error] no luck"


def _between(text: str, element: str) -> str:
    return text.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
