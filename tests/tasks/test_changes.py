"""change(): the one way to make a Change. The table decides, the version moves, events come along."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.errors import IllegalTransition
from ade.tasks.changes import EVENT_OF, ChangePrecondition, change
from ade.tasks.lifecycle import RULES, Status, Verb, verbs_from
from tests.domain import Event
from tests.tasks.factories import NOW, new_task, running_task

LEGAL = [(status, verb, target) for status in Status for verb in verbs_from(status) for target in RULES[verb].targets]
ILLEGAL = [(status, verb) for status, verb in product(Status, Verb) if verb not in verbs_from(status)]


@pytest.mark.parametrize(("status", "verb", "target"), LEGAL)
def test_a_change_moves_the_status_and_the_version_and_tells_the_verbs_events(
    status: Status, verb: Verb, target: Status
) -> None:
    task = new_task(status=status, version=4, updated_at=NOW - 5)

    made = change(task, verb, now=NOW, target=target, actor="ann", payload={"why": "so"})

    assert made.after == structs.replace(task, status=target, version=5, updated_at=NOW)
    assert made.before is task
    assert made.task_id == task.id
    assert made.verb is verb
    assert made.events == tuple(
        Event(type=name, at=NOW, task_id=task.id, actor="ann", payload={"why": "so"}) for name in EVENT_OF[verb]
    )


@pytest.mark.parametrize(("status", "verb"), ILLEGAL)
def test_no_change_is_made_against_the_table(status: Status, verb: Verb) -> None:
    with pytest.raises(IllegalTransition):
        change(new_task(status=status), verb, now=NOW)


def test_a_change_is_guarded_by_the_version_that_was_read_unless_it_names_another_guard() -> None:
    task = running_task(version=9)

    assert change(task, Verb.CANCEL, now=NOW).guard == ChangePrecondition(version=9)
    assert change(task, Verb.SUCCEED, now=NOW, guard=ChangePrecondition(run_id="run-1")).guard == ChangePrecondition(
        run_id="run-1"
    )


def test_a_change_says_which_fields_it_sets_whether_given_by_name_or_in_a_mapping() -> None:
    made = change(running_task(), Verb.RETRY, now=NOW, run_after=NOW + 1, also={"attempt": 3})

    assert made.fields == {"run_after", "attempt"}
    assert (made.after.run_after, made.after.attempt) == (NOW + 1, 3)


def test_more_events_follow_those_of_the_verb() -> None:
    alert = Event(type="alert", at=NOW)

    made = change(running_task(), Verb.FAIL, now=NOW, more_events=(alert,))

    assert [event.type for event in made.events] == ["task.failed", "task.dlq", "alert"]


def test_an_event_without_payload_or_actor_has_neither() -> None:
    (event,) = change(new_task(), Verb.CLAIM, now=NOW).events

    assert (event.actor, event.payload, event.seq) == (None, {}, 0)


def test_a_change_cannot_set_the_status_past_the_table() -> None:
    with pytest.raises(TypeError):
        change(new_task(), Verb.CLAIM, now=NOW, also={"status": Status.COMPLETED})


@given(cell=st.sampled_from(LEGAL), version=st.integers(1, 2**62), now=st.integers(0, 2**62))
def test_the_version_rises_by_one_whatever_it_was(cell: tuple[Status, Verb, Status], version: int, now: int) -> None:
    status, verb, target = cell

    made = change(new_task(status=status, version=version), verb, now=now, target=target)

    assert (made.after.version, made.after.updated_at) == (version + 1, now)
