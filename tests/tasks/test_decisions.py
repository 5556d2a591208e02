"""Decisions beside the end of a run: lost leases, cancelling, chains, deadlines, dead letters, drafts."""

import hashlib
from typing import Any

import pytest

from ade import Status
from ade.errors import IllegalTransition, InvalidTask
from ade.failures import FailureKind
from ade.tasks import admission, decisions
from tests.domain import FINAL, AfterFailure, ChangePrecondition, Verb
from tests.tasks.factories import NOW, TASK_ID, failed_task, new_task, raw, running_task

ALIVE = sorted(set(Status) - FINAL)
OTHER_ID = "01890a5d-ac96-774b-bcce-000000000000"


# --- coming in ---


def test_admission_stamps_the_task_and_starts_it_no_earlier_than_ever() -> None:
    admitted = admission.admit(new_task(run_after=-5), now=NOW)

    assert (admitted.created_at, admitted.updated_at, admitted.run_after) == (NOW, NOW, 0)


def test_arguments_are_digested_only_to_compare_requests_under_one_key() -> None:
    arguments = raw('{"to":"ann"}')

    keyed = admission.admit(new_task(args=arguments, idempotency_key="welcome-ann"), now=NOW)

    assert keyed.args_digest == hashlib.sha256(b'{"to":"ann"}').hexdigest()
    assert admission.admit(new_task(args=arguments), now=NOW).args_digest is None


def test_a_dependency_named_twice_is_waited_for_once() -> None:
    admitted = admission.admit(new_task(depends_on=("b", "a", "b")), now=NOW)

    assert admitted.depends_on == ("b", "a")


def test_what_is_not_valid_is_not_admitted() -> None:
    with pytest.raises(InvalidTask, match="priority 11"):
        admission.admit(new_task(priority=11), now=NOW)


def test_the_creation_event_says_what_came_in_and_from_whom() -> None:
    event = admission.creation_event(new_task(created_at=NOW, author_id="ann", parent_id=OTHER_ID))

    assert (event.type, event.at, event.task_id, event.actor) == ("task.created", NOW, TASK_ID, "ann")
    assert event.payload == {
        "queue": "default",
        "name": "send_mail",
        "status": "pending",
        "parent_id": OTHER_ID,
    }
    assert "parent_id" not in admission.creation_event(new_task()).payload


# --- a worker goes silent ---


def test_a_lost_lease_stalls_the_task_and_remembers_who_held_it() -> None:
    task = running_task(attempt=2, max_attempts=3)

    change = decisions.lose_lease(task, now=NOW)

    after = change.after
    assert (change.verb, after.status, after.attempt) == (Verb.STALL, Status.STALLED, 2)
    assert (after.worker_id, after.lease_until) == ("worker-1", None)
    assert change.events[0].payload == {"attempt": 2, "run_id": "run-1", "worker": "worker-1"}


def test_a_task_that_silenced_its_last_worker_fails_so_that_it_kills_no_more() -> None:
    task = running_task(attempt=3, max_attempts=3)

    change = decisions.lose_lease(task, now=NOW)

    after = change.after
    assert (change.verb, after.status, after.finished_at) == (Verb.FAIL, Status.FAILED, NOW)
    assert (after.worker_id, after.lease_until) == (None, None)
    assert after.error is not None
    assert after.error.kind is FailureKind.WORKER_DIED
    assert after.error.message == "the worker worker-1 went silent during attempt 3 of 3"


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_renewal_in_between_saves_the_lease(attempt: int) -> None:
    task = running_task(attempt=attempt, max_attempts=3, version=6, lease_until=NOW - 1)

    assert decisions.lose_lease(task, now=NOW).guard == ChangePrecondition(version=6, lease_until=NOW - 1)


# --- cancelling ---


@pytest.mark.parametrize("status", ALIVE)
def test_whatever_is_not_final_can_be_cancelled_at_once(status: Status) -> None:
    task = running_task(status=status, version=5)

    change = decisions.cancel(task, "no longer wanted", now=NOW, actor="ann")

    after = change.after
    assert (after.status, after.reason, after.finished_at) == (Status.CANCELLED, "no longer wanted", NOW)
    assert (after.worker_id, after.lease_until) == (None, None)
    assert change.guard == ChangePrecondition(version=5)
    assert (change.events[0].actor, change.events[0].payload) == (
        "ann",
        {"reason": "no longer wanted", "attempt": 1},
    )


def test_a_reason_for_cancelling_is_welcome_but_not_needed() -> None:
    change = decisions.cancel(new_task(), None, now=NOW)

    assert (change.after.reason, change.events[0].payload) == (None, {"attempt": 0})


@pytest.mark.parametrize("status", sorted(FINAL))
def test_what_is_final_cannot_be_cancelled(status: Status) -> None:
    with pytest.raises(IllegalTransition, match=f"cannot cancel a task that is {status}"):
        decisions.cancel(new_task(status=status), None, now=NOW)


# --- what it waited for did not complete, or its time has passed ---


def test_a_broken_chain_cancels_by_default_and_says_what_it_waited_for() -> None:
    change = decisions.break_chain(new_task(version=2), failed_ids=(OTHER_ID,), now=NOW)

    assert change.after.status is Status.CANCELLED
    assert change.after.reason == f"dependency failed: it waits for {OTHER_ID}, which did not complete"
    assert change.guard == ChangePrecondition(version=2)


def test_a_broken_chain_fails_the_task_that_asked_for_it() -> None:
    task = new_task(version=2, after_failure=AfterFailure.FAIL)

    change = decisions.break_chain(task, failed_ids=("a", "b"), now=NOW)

    error = change.after.error
    assert (change.after.status, change.guard) == (Status.FAILED, ChangePrecondition(version=2))
    assert error is not None
    assert (error.kind, error.retryable) == (FailureKind.DEPENDENCY_FAILED, False)
    assert error.message == "it waits for a, b, which did not complete"


@pytest.mark.parametrize("status", [Status.PENDING, Status.STALLED])
def test_a_task_that_did_not_run_before_its_deadline_fails(status: Status) -> None:
    change = decisions.miss_deadline(new_task(status=status, version=2, deadline=NOW - 1), now=NOW)

    error = change.after.error
    assert (change.after.status, change.guard) == (Status.FAILED, ChangePrecondition(version=2))
    assert error is not None
    assert (error.kind, error.retryable) == (FailureKind.DEADLINE_PASSED, False)


# --- dead letters ---


def test_replay_begins_a_new_generation_with_everything_that_was_used_up_restored() -> None:
    dead = failed_task(timeouts=2, throttles=20, deadline=NOW - 1, started_at=NOW - 9, discarded=True, reason="noise")

    change = decisions.replay(dead, now=NOW, actor="ann")

    after = change.after
    assert (after.status, after.generation, after.version) == (Status.PENDING, 2, 8)
    assert (after.attempt, after.timeouts, after.throttles) == (0, 0, 0)
    assert (after.run_after, after.deadline) == (NOW, None)
    assert (after.started_at, after.finished_at, after.error) == (None, None, None)
    assert (after.discarded, after.reason) == (False, None)
    assert after.args == dead.args
    assert change.guard == ChangePrecondition(version=7)
    assert (change.events[0].type, change.events[0].actor) == ("task.replayed", "ann")
    assert change.events[0].payload == {"generation": 2, "edited": False}


def test_replay_may_correct_the_arguments() -> None:
    change = decisions.replay(failed_task(), now=NOW, args=raw('{"to":"bob"}'))

    assert change.after.arguments() == {"to": "bob"}
    assert "args" in change.fields
    assert change.events[0].payload == {"generation": 2, "edited": True}


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.FAILED}))
def test_only_dead_letters_can_be_replayed_or_discarded(status: Status) -> None:
    with pytest.raises(IllegalTransition):
        decisions.replay(new_task(status=status), now=NOW)
    with pytest.raises(IllegalTransition):
        decisions.discard(new_task(status=status), "noise", now=NOW)


def test_discarding_leaves_the_task_failed_with_the_reason_on_record() -> None:
    change = decisions.discard(failed_task(), "a known outage", now=NOW, actor="ann")

    after = change.after
    assert (after.status, after.discarded, after.reason) == (Status.FAILED, True, "a known outage")
    assert after.error is not None
    assert change.events[0].payload == {"reason": "a known outage"}


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_nothing_is_discarded_without_a_reason(reason: str) -> None:
    with pytest.raises(InvalidTask, match="give a reason for discarding the task"):
        decisions.discard(failed_task(), reason, now=NOW)


# --- drafts ---


def test_a_draft_can_be_edited_and_the_event_names_what_changed() -> None:
    draft = new_task(status=Status.DRAFT)

    change = decisions.edit(draft, now=NOW, actor="ann", priority=1, description="urgent")

    assert (change.after.status, change.after.priority, change.after.description) == ("draft", 1, "urgent")
    assert change.fields >= {"priority", "description"}
    assert change.events[0].payload == {"fields": ["description", "priority"]}


@pytest.mark.parametrize("fields", [{"priority": 11}, {"queue": "no spaces"}, {"max_attempts": 0}])
def test_an_edited_draft_is_checked_like_a_new_task(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask):
        decisions.edit(new_task(status=Status.DRAFT), now=NOW, **fields)


@pytest.mark.parametrize("fields", [{"depends_on": ()}, {"after_failure": AfterFailure.RUN}])
def test_what_a_draft_waits_for_is_settled_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask, match="make a new draft"):
        decisions.edit(new_task(status=Status.DRAFT), now=NOW, **fields)


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.DRAFT}))
def test_only_drafts_can_be_edited(status: Status) -> None:
    with pytest.raises(IllegalTransition, match=f"cannot edit a task that is {status}"):
        decisions.edit(new_task(status=status), now=NOW, priority=1)
