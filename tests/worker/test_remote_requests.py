"""What the words of workers behind HTTP mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade import Status, Task
from ade.errors import PayloadTooLarge
from ade.tasks.decisions import fail_run
from ade.worker.api.requests import GRACE_MS, FailRun, RunError, end_of, failure_of, has_failed_so, is_late, run_ids
from tests.domain import Failed, uuid7

NOW = 1_760_000_000_000
texts = st.text(max_size=30)


def running(**more: object) -> Task:
    given: dict[str, object] = {"status": Status.RUNNING, "attempt": 1, "run_id": "r1", "started_at": NOW, **more}
    return Task(id=uuid7(NOW, bytes(10)), name="t", **given)  # type: ignore[arg-type]


@given(st.lists(st.tuples(texts, texts, st.integers(0, 3)), unique=True, max_size=6), st.integers(1, 20))
def test_no_two_claims_have_a_run_id_in_common(claims: list[tuple[str, str, int]], count: int) -> None:
    made = [run_id for claim in claims for run_id in run_ids(*claim, count)]
    if all("\n" not in account for account, _, _ in claims):  # no account has one
        assert len(set(made)) == len(made)
    for claim in claims:
        assert run_ids(*claim, count) == run_ids(*claim, count + 5)[:count]


def test_a_run_is_late_after_its_time_and_some_grace() -> None:
    task = running(timeout_ms=5_000)
    assert not is_late(task, now=NOW + 5_000 + GRACE_MS)
    assert is_late(task, now=NOW + 5_001 + GRACE_MS)
    assert not is_late(running(), now=NOW * 2)


def test_a_failure_is_known_again_when_it_is_repeated() -> None:
    task = running()
    body = FailRun(task_id=task.id, error=RunError(type="X", message="no"), retry_after_s=1.5)
    failed = failure_of(body, details_size=0)
    assert (failed.error.type, failed.retry_after_ms) == ("X", 1_500)
    after = fail_run(task, failed, now=NOW, randomness=0.5).after
    assert has_failed_so(after, "r1", failed)
    assert not has_failed_so(after, "r2", failed)
    assert not has_failed_so(task, "r1", failed)
    other = failure_of(FailRun(task_id=task.id, error=RunError(type="Y", message="no")), details_size=0)
    assert isinstance(other, Failed)
    assert not has_failed_so(after, "r1", other)
    assert end_of(after).run_after == after.run_after > NOW
    with pytest.raises(PayloadTooLarge):
        failure_of(body, details_size=16_001)
