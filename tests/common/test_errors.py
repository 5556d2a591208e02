"""Errors and control values: what they say, and that they survive the way out of another process."""

import pickle

import msgspec
import pytest

from ade import RateLimited, Retry, Unrecoverable
from ade.errors import AdeError, EffectUnknown, QueueFull, StaleLease, StaleWrite, UnknownTask
from ade.failures import FAILURES, FailureKind, TaskError


def test_an_error_without_detail_says_what_its_kind_means() -> None:
    assert UnknownTask().detail == "No task with this id exists. It may have been pruned."
    assert (
        str(UnknownTask())
        == "No task with this id exists. It may have been pruned. `ade tasks` lists the stored tasks."
    )
    assert str(EffectUnknown()).splitlines()[-1].startswith("Find out, then settle it")


def test_a_detail_replaces_the_general_sentence() -> None:
    error = UnknownTask("no task 42")

    assert (error.detail, str(error), error.code) == ("no task 42", "no task 42", "unknown_task")


def test_what_helps_at_a_command_line_is_said_apart() -> None:
    error = UnknownTask("no task 42", advice="`ade tasks` lists the stored tasks")

    assert (error.detail, error.advice) == ("no task 42", "`ade tasks` lists the stored tasks")
    assert str(error) == "no task 42; `ade tasks` lists the stored tasks"
    assert UnknownTask("no task 42").advice == ""  # who says something says all of it


def test_a_full_queue_says_when_to_come_back() -> None:
    assert (QueueFull().retry_after, QueueFull("full", retry_after=7.5).retry_after) == (1.0, 7.5)


def test_whoever_handles_a_stale_write_also_handles_a_lost_lease() -> None:
    with pytest.raises(StaleWrite):
        raise StaleLease


def test_control_values_carry_the_time_they_ask_for() -> None:
    assert (Retry().after, Retry("later", after=3).after) == (None, 3)
    assert (RateLimited().retry_after, RateLimited(retry_after=60).retry_after) == (0.0, 60)
    assert (str(Retry()), str(RateLimited())) == ("retry asked for", "rate limited")


def test_control_values_are_no_ade_errors_so_that_nobody_catches_them_by_chance() -> None:
    assert not any(issubclass(kind, AdeError) for kind in (Retry, RateLimited, Unrecoverable))


@pytest.mark.parametrize(
    "raised",
    [
        Retry("later", after=3.5),
        RateLimited("slow down", retry_after=60),
        Unrecoverable("no such account"),
        QueueFull("full", retry_after=7.5),
        UnknownTask("no task 42", advice="look"),
        StaleLease(),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_what_a_handler_raises_in_another_process_arrives_whole(raised: Exception) -> None:
    arrived = pickle.loads(pickle.dumps(raised))

    assert (type(arrived), arrived.args, vars(arrived)) == (type(raised), raised.args, vars(raised))


@pytest.mark.parametrize("kind", FailureKind)
def test_what_is_never_tried_again_does_not_call_itself_retryable(kind: FailureKind) -> None:
    error = TaskError(kind=kind, type="Error", message="no")

    assert error.retryable is FAILURES[kind].retry
    assert msgspec.json.decode(msgspec.json.encode(error), type=TaskError) == error
