"""How an end is told, whatever is known about it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ade import Status, Task
from ade.agents.protocols.base import UsageReported
from ade.agents.runs.messages import duration_of, error_of, notification_of, report_of, spent_by
from tests.domain import FINAL, AgentProgress, AgentResult
from tests.tasks.factories import NOW, failed_task, new_task

counts = st.none() | st.integers(0, 10**9)
spendings = st.builds(UsageReported, tokens=counts, turns=counts, cost_usd=st.none() | st.floats(0, 1000))


def ended(status: Status, **fields: object) -> Task:
    known = {"name": "agent:coder", "status": status, "started_at": NOW, "finished_at": NOW + 1500}
    return new_task(**(known | fields))


@pytest.mark.parametrize("status", sorted(FINAL))
def test_every_end_is_one_of_two(status: Status) -> None:
    result = AgentResult(report="ok", subagent_type="coder") if status is Status.COMPLETED else None
    text = notification_of(ended(status, description="Fix it"), result)

    word = "completed" if status is Status.COMPLETED else "failed"
    assert f"<status>{word}</status>" in text
    assert f'<summary>Agent "Fix it" {word}</summary>' in text


def test_without_a_description_the_type_stands_for_it() -> None:
    assert 'Agent "coder" failed' in notification_of(ended(Status.CANCELLED), None)


def test_a_result_that_is_gone_is_told_so() -> None:
    assert report_of(ended(Status.COMPLETED), None).endswith("\n\n(the result was kept for its time and is gone)")


def test_why_it_did_not_complete() -> None:
    assert error_of(failed_task()) == "no luck"
    assert error_of(ended(Status.REJECTED, reason="too risky")) == "rejected: too risky"
    assert error_of(ended(Status.CANCELLED)) == "cancelled"
    assert error_of(ended(Status.CANCELLED, reason="Aborted by user")) == "Aborted by user"
    assert error_of(ended(Status.FAILED)) == "it failed for an unknown reason"


def test_progress_of_a_failed_run_tells_what_all_attempts_have_taken() -> None:
    progress = AgentProgress(
        subagent_type="coder", tokens=5, earlier=UsageReported(tokens=70), tool_call_count=2, output_file="/t/2.log"
    )
    text = notification_of(ended(Status.CANCELLED, progress=Raw(msgspec.json.encode(progress))), None)

    assert "<usage>total_tokens: 75\ntool_uses: 2\nduration_ms: 1500</usage>" in text
    assert text.endswith("Full transcript available at: /t/2.log")


def test_progress_of_another_kind_is_left_out() -> None:
    text = notification_of(ended(Status.CANCELLED, progress=Raw(b"[1,2]")), None)

    assert "<usage>duration_ms: 1500</usage>" in text


@given(now=spendings, earlier=spendings)
def test_what_was_spent_is_never_less_than_any_part_of_it(now: UsageReported, earlier: UsageReported) -> None:
    progress = AgentProgress(
        subagent_type="x", tokens=now.tokens, turns=now.turns, cost_usd=now.cost_usd, earlier=earlier
    )
    total = spent_by(progress)

    for name in ("tokens", "turns", "cost_usd"):
        parts = [part for part in (getattr(now, name), getattr(earlier, name)) if part is not None]
        assert (getattr(total, name) is None) == (not parts)
        assert all(getattr(total, name) >= part for part in parts)


def test_a_run_that_never_began_took_no_time() -> None:
    assert duration_of(ended(Status.CANCELLED, started_at=None)) is None
    assert duration_of(ended(Status.COMPLETED), AgentResult(report="", subagent_type="x", duration_ms=7)) == 7
