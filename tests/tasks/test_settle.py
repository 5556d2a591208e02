"""settle(): what the end of a run means for its task, for every kind of failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade import Status, Task
from ade.errors import IllegalTransition
from ade.failures import FAILURES, MAX_THROTTLES, Backoff, FailureKind
from ade.tasks.decisions import run_timeout_ms, settle
from ade.tasks.outcomes import Failed, Outcome, Released, Succeeded
from tests.domain import LAST_MOMENT, Change, ChangePrecondition, Verb
from tests.tasks.factories import MIDDLE, NOW, failure, raw, running_task

# What the failure table promises, written down a second time.
RETRIED = {"raised", "retry_asked", "worker_died", "timed_out", "rate_limited", "deadlock"}
FREE = {"rate_limited"}
GROWS = {"timed_out"}
ALERTS = {"out_of_memory"}
FINE = Succeeded(raw('{"sent":1}'), output_ref="out-1")


def settled(task: Task, outcome: Outcome, randomness: float = MIDDLE) -> Change:
    return settle(task, outcome, now=NOW, randomness=randomness)


def run_again(change: Change) -> Task:
    """The task of a retry or release, claimed once more."""
    after = change.after
    return running_task(
        attempt=after.attempt + 1,
        throttles=after.throttles,
        timeouts=after.timeouts,
        timeout_ms=after.timeout_ms,
        max_attempts=after.max_attempts,
    )


def test_every_kind_of_failure_has_its_line_in_the_table() -> None:
    assert set(FAILURES) == set(FailureKind)


@pytest.mark.parametrize("kind", FailureKind)
def test_with_attempts_left_the_table_decides_between_another_run_and_the_end(kind: FailureKind) -> None:
    task = running_task(attempt=1, max_attempts=3)

    change = settled(task, failure(kind))

    if kind in RETRIED:
        assert (change.verb, change.after.status) == (Verb.RETRY, Status.PENDING)
        assert change.after.run_after == NOW + 1000
        assert change.after.attempt == (0 if kind in FREE else 1)
        assert change.after.throttles == (1 if kind in FREE else 0)
        assert change.after.timeouts == (1 if kind in GROWS else 0)
        assert change.after.finished_at is None
    else:
        assert (change.verb, change.after.status) == (Verb.FAIL, Status.FAILED)
        assert change.after.attempt == 1
        assert change.after.finished_at == NOW
    assert change.after.error == failure(kind).error
    assert change.guard == ChangePrecondition(run_id="run-1")
    assert (change.after.worker_id, change.after.lease_until) == (None, None)


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - FREE))
def test_the_last_attempt_is_the_last_whatever_went_wrong(kind: FailureKind) -> None:
    change = settled(running_task(attempt=3, max_attempts=3), failure(kind))

    assert (change.verb, change.after.status, change.after.attempt) == (Verb.FAIL, Status.FAILED, 3)


@pytest.mark.parametrize("kind", FailureKind)
def test_a_dead_letter_is_announced_and_running_out_of_memory_alerts(kind: FailureKind) -> None:
    change = settled(running_task(attempt=3, throttles=MAX_THROTTLES), failure(kind))

    expected = ["task.failed", "task.dlq", *(["alert"] if kind in ALERTS else [])]
    assert [event.type for event in change.events] == expected
    assert all(event.payload["kind"] == kind for event in change.events)
    assert all(event.payload["error"] == "Oops: no luck" for event in change.events)


@pytest.mark.parametrize("kind", sorted(RETRIED))
def test_an_error_marked_as_not_retryable_ends_the_task_even_so(kind: str) -> None:
    change = settled(running_task(), failure(FailureKind(kind), retryable=False))

    assert change.after.status is Status.FAILED


def test_success_keeps_the_result_and_forgets_the_earlier_error() -> None:
    change = settled(running_task(error=failure(FailureKind.RAISED).error), FINE)

    after = change.after
    assert (after.status, after.result, after.output_ref) == (Status.COMPLETED, FINE.result, "out-1")
    assert (after.error, after.finished_at, after.worker_id, after.lease_until) == (None, NOW, None, None)
    assert change.guard == ChangePrecondition(run_id="run-1")
    assert change.events[0].payload == {"attempt": 1, "run_id": "run-1", "worker": "worker-1"}


def test_release_hands_the_task_back_and_does_not_use_an_attempt() -> None:
    task = running_task(attempt=2, run_after=NOW - 50)

    change = settled(task, Released("the worker shuts down"))

    after = change.after
    assert (after.status, after.attempt, after.run_after) == (Status.PENDING, 1, NOW - 50)
    assert (after.worker_id, after.lease_until) == (None, None)
    assert change.guard == ChangePrecondition(run_id="run-1")
    assert change.events[0].type == "task.released"
    assert change.events[0].payload["reason"] == "the worker shuts down"


def test_a_task_may_be_released_any_number_of_times() -> None:
    task = running_task(max_attempts=1)
    for _ in range(50):
        task = run_again(settled(task, Released("restart")))

    assert (task.attempt, settled(task, FINE).after.status) == (1, Status.COMPLETED)


def test_each_retry_waits_longer_and_says_so_in_its_event() -> None:
    delays = []
    for attempt in range(1, 12):
        change = settled(running_task(attempt=attempt, max_attempts=99), failure(FailureKind.RAISED))
        delays.append(change.after.run_after - NOW)
        assert change.events[0].payload == {
            "attempt": attempt,
            "run_id": "run-1",
            "delay_ms": delays[-1],
            "error": "Oops: no luck",
        }

    assert delays == [1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000, 300000]


def test_the_dice_spread_the_retry() -> None:
    task = running_task(backoff=Backoff())

    assert settled(task, failure(FailureKind.RAISED), randomness=0.0).after.run_after == NOW + 900
    assert settled(task, failure(FailureKind.RAISED), randomness=0.75).after.run_after == NOW + 1050


def test_a_very_long_message_does_not_swell_the_event() -> None:
    change = settled(running_task(), failure(FailureKind.RAISED, message="x" * 100_000))

    assert len(str(change.events[0].payload["error"])) == 500
    assert change.after.error is not None
    assert len(change.after.error.message) == 100_000


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(None, 1000), (0, 1000), (400, 1000), (60_000, 60_000)])
def test_a_rate_limit_waits_the_longer_of_what_it_asks_and_the_backoff(asked_ms: int | None, waits_ms: int) -> None:
    change = settled(running_task(), failure(FailureKind.RATE_LIMITED, retry_after_ms=asked_ms))

    assert change.after.run_after == NOW + waits_ms


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(None, 1000), (0, 0), (400, 400), (60_000, 60_000)])
def test_a_handler_that_asks_for_a_retry_gets_exactly_the_time_it_names(asked_ms: int | None, waits_ms: int) -> None:
    change = settled(running_task(), failure(FailureKind.RETRY_ASKED, retry_after_ms=asked_ms))

    assert change.after.run_after == NOW + waits_ms


@pytest.mark.parametrize("kind", [FailureKind.RATE_LIMITED, FailureKind.RETRY_ASKED])
def test_no_time_a_handler_names_leads_out_of_the_calendar(kind: FailureKind) -> None:
    """A date past the year 9999 could be neither stored nor shown, and one in the past would jump the queue."""
    for_ever = settled(running_task(), failure(kind, retry_after_ms=10**30))
    before_now = settled(running_task(backoff=Backoff(base_ms=0)), failure(kind, retry_after_ms=-5000))

    assert (for_ever.after.run_after, before_now.after.run_after) == (LAST_MOMENT, NOW)
    assert for_ever.events[0].payload["delay_ms"] == LAST_MOMENT - NOW


def test_twenty_rate_limits_are_free_and_the_twenty_first_counts() -> None:
    task = running_task(max_attempts=2)
    for throttle in range(1, 21):
        change = settled(task, failure(FailureKind.RATE_LIMITED))
        assert (change.verb, change.after.attempt, change.after.throttles) == (Verb.RETRY, 0, throttle)
        task = run_again(change)

    counted = settled(task, failure(FailureKind.RATE_LIMITED))
    assert (counted.verb, counted.after.attempt, counted.after.throttles) == (Verb.RETRY, 1, 20)
    assert settled(run_again(counted), failure(FailureKind.RATE_LIMITED)).after.status is Status.FAILED


def test_a_rate_limit_on_the_last_attempt_still_gives_it_back() -> None:
    change = settled(running_task(attempt=3, max_attempts=3), failure(FailureKind.RATE_LIMITED))

    assert (change.verb, change.after.attempt) == (Verb.RETRY, 2)


def test_rate_limits_back_off_by_their_own_count() -> None:
    change = settled(running_task(attempt=1, throttles=4), failure(FailureKind.RATE_LIMITED))

    assert change.after.run_after == NOW + 16_000


def test_each_time_out_gives_the_next_run_half_as_much_again_up_to_four_times() -> None:
    task, limits = running_task(timeout_ms=10_000, max_attempts=99), []
    for _ in range(6):
        limits.append(run_timeout_ms(task))
        task = run_again(settled(task, failure(FailureKind.TIMED_OUT)))

    assert limits == [10_000, 15_000, 22_500, 33_750, 40_000, 40_000]


def test_other_failures_do_not_change_the_time_limit() -> None:
    change = settled(running_task(timeout_ms=10_000, timeouts=1), failure(FailureKind.RAISED))

    assert run_timeout_ms(change.after) == 15_000


def test_a_task_without_a_time_limit_never_gets_one() -> None:
    assert run_timeout_ms(running_task(timeout_ms=None, timeouts=5)) is None


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.RUNNING}))
@pytest.mark.parametrize("outcome", [FINE, failure(FailureKind.RAISED), failure(FailureKind.BAD_RESULT), Released("x")])
def test_only_a_running_task_can_be_settled(status: Status, outcome: Outcome) -> None:
    with pytest.raises(IllegalTransition):
        settled(running_task(status=status), outcome)


@given(
    kind=st.sampled_from(FailureKind),
    attempts=st.tuples(st.integers(1, 4), st.integers(0, 3)),
    throttles=st.integers(0, MAX_THROTTLES),
    asked_ms=st.one_of(st.none(), st.integers(0, 10_000), st.sampled_from([-(10**30), -1, 10**30])),
    roll=st.floats(0, 1, exclude_max=True),
)
def test_whatever_a_run_reports_the_record_stays_within_its_bounds(
    kind: FailureKind, attempts: tuple[int, int], throttles: int, asked_ms: int | None, roll: float
) -> None:
    attempt, max_attempts = attempts[0], sum(attempts)
    task = running_task(attempt=attempt, max_attempts=max_attempts, throttles=throttles)

    change = settled(task, Failed(failure(kind).error, asked_ms), roll)

    after = change.after
    assert 0 <= after.attempt <= max_attempts
    assert after.throttles <= MAX_THROTTLES
    assert (after.status is Status.FAILED) == (after.finished_at is not None)
    if after.status is Status.PENDING:
        assert after.attempt < max_attempts
        assert NOW <= after.run_after <= LAST_MOMENT
