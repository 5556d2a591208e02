"""Every cell of the state table: every status by every verb, each allowed with its target or refused.

The table is written down here a second time, as a reader would, so that a slip in the code shows.
"""

from itertools import product

import pytest

from ade.errors import IllegalTransition
from ade.tasks.changes import EVENT_OF
from ade.tasks.lifecycle import BIRTHS, CLAIMABLE, FINAL, RULES, Status, Verb, step, verbs_from
from tests.domain import FINAL_EVENTS

ALLOWED = {
    Status.DRAFT: "edit submit review reject respond reopen cancel",
    Status.SUBMITTED: "assess review fail cancel",
    Status.REVIEWING: "review approve reject request_changes respond break_glass expire fail cancel",
    Status.APPROVED: "review revoke expire start fail cancel",
    Status.PENDING: "review revoke claim fail recall reschedule cancel",
    Status.RUNNING: "succeed retry fail hold stall release defer cancel",
    Status.STALLED: "claim fail cancel",
    Status.COMPLETED: "review",
    Status.FAILED: "review replay discard",
    Status.REJECTED: "review",
    Status.CANCELLED: "review",
}
TARGETS = {
    Verb.EDIT: "draft",
    Verb.SUBMIT: "submitted",
    Verb.ASSESS: "reviewing approved pending draft",
    Verb.APPROVE: "approved pending",
    Verb.REJECT: "rejected",
    Verb.REQUEST_CHANGES: "draft",
    Verb.RESPOND: "pending",
    Verb.REOPEN: "reviewing approved pending",
    Verb.REVOKE: "reviewing",
    Verb.BREAK_GLASS: "pending",
    Verb.EXPIRE: "rejected",
    Verb.START: "pending",
    Verb.CLAIM: "running",
    Verb.SUCCEED: "completed",
    Verb.RETRY: "pending",
    Verb.FAIL: "failed",
    Verb.HOLD: "reviewing submitted",
    Verb.STALL: "stalled",
    Verb.RELEASE: "pending",
    Verb.DEFER: "pending",
    Verb.RECALL: "pending",
    Verb.RESCHEDULE: "pending",
    Verb.CANCEL: "cancelled",
    Verb.REPLAY: "pending submitted",
    Verb.DISCARD: "failed",
}
CELLS = list(product(Status, Verb))


@pytest.mark.parametrize(("status", "verb"), [cell for cell in CELLS if cell[1] in ALLOWED[cell[0]].split()])
def test_an_allowed_verb_leads_where_the_table_says(status: Status, verb: Verb) -> None:
    first, *others = TARGETS.get(verb, status).split()  # one that is not listed leaves the status as it is

    assert step(status, verb) == first
    for target in (first, *others):
        assert step(status, verb, Status(target)) == target


@pytest.mark.parametrize(("status", "verb"), [cell for cell in CELLS if cell[1] not in ALLOWED[cell[0]].split()])
def test_any_other_verb_is_refused_and_the_refusal_names_the_allowed_ones(status: Status, verb: Verb) -> None:
    with pytest.raises(IllegalTransition) as refusal:
        step(status, verb)

    allowed = ALLOWED[status].replace(" ", ", ") or "nothing"
    assert refusal.value.detail == f"cannot {verb} a task that is {status}; allowed from here: {allowed}"


@pytest.mark.parametrize(
    ("status", "verb"), [cell for cell in CELLS if cell[1] in ALLOWED[cell[0]].split() and cell[1] in TARGETS]
)
def test_a_verb_leads_to_no_other_status(status: Status, verb: Verb) -> None:
    for target in set(Status) - {Status(name) for name in TARGETS[verb].split()}:
        with pytest.raises(IllegalTransition, match=f"{verb} does not lead to {target}; it leads to"):
            step(status, verb, target)


def test_every_verb_has_its_rule_and_its_events() -> None:
    assert list(RULES) == list(Verb) == list(EVENT_OF)


def test_verbs_from_a_status_come_in_the_order_of_the_table() -> None:
    assert {status: " ".join(verbs_from(status)) for status in Status} == ALLOWED


def test_a_task_is_born_pending_draft_or_reviewing_and_never_created_twice() -> None:
    assert RULES[Verb.CREATE].targets == BIRTHS == (Status.PENDING, Status.DRAFT, Status.SUBMITTED, Status.REVIEWING)
    assert RULES[Verb.CREATE].sources == frozenset()


def test_final_are_those_that_only_an_operator_can_move() -> None:
    assert {Status.COMPLETED, Status.FAILED, Status.REJECTED, Status.CANCELLED} == FINAL
    assert all(set(verbs_from(status)) <= {Verb.REPLAY, Verb.DISCARD, Verb.REVIEW} for status in FINAL)


def test_everything_that_is_not_final_can_be_cancelled() -> None:
    assert RULES[Verb.CANCEL].sources == frozenset(Status) - FINAL


def test_workers_claim_pending_and_stalled_tasks() -> None:
    assert {Status.PENDING, Status.STALLED} == CLAIMABLE


def test_every_status_can_be_reached_from_a_birth() -> None:
    reached = set(BIRTHS)
    while new := {t for s in reached for v in verbs_from(s) for t in RULES[v].targets} - reached:
        reached |= new

    assert reached == set(Status)


def test_every_living_status_has_a_way_to_completion() -> None:
    hopeful = {Status.COMPLETED}
    while new := {s for s in Status for v in verbs_from(s) if hopeful & {*RULES[v].targets}} - hopeful:
        hopeful |= new

    assert hopeful >= set(Status) - FINAL


@pytest.mark.parametrize("verb", Verb)
def test_a_verb_has_one_final_event_exactly_when_it_ends_a_task(verb: Verb) -> None:
    ends = bool(set(RULES[verb].targets) & FINAL) and not RULES[verb].sources <= FINAL

    assert len(FINAL_EVENTS & set(EVENT_OF[verb])) == (1 if ends else 0)
