"""Many gates: those that decide stay in the record of a task, and many tasks that wait are listed quickly."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ade import Ade
from ade.accounts.model import Account, Directory
from ade.approvals import repository as approvals_repository
from ade.approvals import views as approvals_views
from ade.approvals.audit_check import LoggedRecords
from ade.approvals.decisions import is_bypassed
from ade.approvals.digest import digest_for
from ade.approvals.errors import TooManyApprovals
from ade.approvals.model import (
    AFTER_THE_FACT,
    MOST_GATES,
    Decision,
    Delegation,
    Gate,
    GateState,
    Policy,
    PolicyRule,
    PolicyStep,
    Review,
    Subject,
    Vote,
)
from ade.approvals.review_requests import ReviewerDirectory, Standings, requested
from ade.settings import load, runtime
from ade.tasks.model import Task
from tests.domain import ApprovalProof, Event, Role, Stores, User, add_user, read_rulebook
from tests.stores.urls import store_url

POLICY = Policy(
    id="one",
    rules=(PolicyRule(needed=1, roles=frozenset({"reviewer"})),),
    steps=(PolicyStep(after_ms=60_000, roles=frozenset({"admin"})),),
)
RULES: dict[str, Any] = {
    "guard": [{"do": "demand", "name": "pay", "policy": "two", "reason": "money"}],
    "policy": [{"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}],
}

Shop = tuple[Ade, Stores, Any]


def gate(number: int, **fields: Any) -> Gate:
    told = {"digest": f"d{number}", "subject": Subject(name="pay"), "policy": POLICY, "opened_at": number}
    return Gate(**{"id": f"t.{number}", "task_id": "t", "conflicts": frozenset({"ada"}), **told, **fields})


def with_gates(review: Review, *numbers: int, **fields: Any) -> Review:
    for number in numbers:
        review = review.with_gate(gate(number, **fields))
    return review


def test_a_rejected_bypass_stays_rejected_however_many_gates_follow() -> None:
    task = Task(id="t", name="pay")
    digest = digest_for(task, POLICY, 1)
    passed = gate(1, digest=digest, state=GateState.CANCELLED, is_bypassed=True)
    refused = gate(2, digest=digest, step=AFTER_THE_FACT, state=GateState.REJECTED)
    review = with_gates(Review(gates=(refused, passed)), *range(3, 3 + 2 * MOST_GATES), state=GateState.SUPERSEDED)

    assert not is_bypassed(structs.replace(task, review=review), passed)
    assert len(review.gates) <= MOST_GATES + 2


def test_that_people_were_asked_is_not_forgotten() -> None:
    asked = with_gates(Review(), 1, state=GateState.SUPERSEDED)
    automatic = {"state": GateState.SUPERSEDED, "is_automatic": True}
    review = with_gates(asked, *range(2, 2 + 2 * MOST_GATES), **automatic)

    assert (review.was_for_people, review.gates[0].number > 1) == (True, True)
    assert not with_gates(Review(), *range(1, 2 * MOST_GATES), **automatic).was_for_people


def test_a_request_for_changes_is_not_forgotten() -> None:
    vote = Vote(seq=1, voter="bob", decision=Decision.REQUEST_CHANGES, digest="d1", at=1)
    review = with_gates(Review(), 1, votes=(vote,), state=GateState.SUPERSEDED)

    assert with_gates(review, *range(2, 2 + 2 * MOST_GATES), state=GateState.STALE).gates[0].votes == (vote,)


def differences(review: Review, *logged: Gate) -> list[str]:
    records = LoggedRecords(ApprovalProof())
    for each in logged:
        assert records.add(requested(each, now=each.opened_at)) is None
    records.add(Event(type="task.edited", at=100, task_id="t"))  # so that no gate is the one for its arguments
    return list(records.task_differences(Task(id="t", name="pay", review=review)))


def test_an_audit_reports_missing_gates_unless_a_full_record_has_dropped_them() -> None:
    after = gate(1, step=AFTER_THE_FACT, state=GateState.REJECTED)
    logged = [after, *(gate(number, state=GateState.SUPERSEDED) for number in range(2, 2 + 2 * MOST_GATES))]
    review = with_gates(Review(gates=(after,)), *range(2, 2 + 2 * MOST_GATES), state=GateState.SUPERSEDED)
    assert len(review.gates) == MOST_GATES
    assert differences(review, *logged) == []

    few, missing = logged[:5], "is in the log, and missing in the record"
    for removed in few:
        rest = Review(gates=tuple(each for each in few if each is not removed))
        assert differences(rest, *few) == [f"task t: approval {removed.id} {missing}"]
    for removed in (review.gates[0], review.gates[-1]):
        fake = gate(99)  # it keeps the record full
        rest = Review(gates=(*(each for each in review.gates if each is not removed), fake))
        assert f"task t: approval {removed.id} {missing}" in differences(rest, *logged)


@pytest.mark.parametrize("change", [{"is_bypassed": True}, {"early": (0,)}, {"after_throttles": 3}])
def test_an_audit_reports_an_edited_gate(change: dict[str, Any]) -> None:
    [line] = differences(Review(gates=(gate(1, **change),)), gate(1))
    assert line.startswith("task t: approval t.1 ")


def test_gates_that_differ_only_in_their_task_are_evaluated_once() -> None:
    accounts = [Account(id=name, roles=frozenset({"reviewer"})) for name in ("ada", "bob", "cyd")]
    lent = Delegation(id="1", delegator="cyd", delegate="bob", starts_at=0, ends_at=10**9, task_id="alone")
    people = ReviewerDirectory(Directory([*accounts, Account(id="root", roles=frozenset({"admin"}))]), (lent,))
    alike = [gate(number, task_id=f"t{number}") for number in range(1, 1_000)]
    vote = Vote(seq=1, voter="bob", decision=Decision.REJECT, digest="d9", at=9)
    others = [
        gate(9, votes=(vote,)),
        gate(9, conflicts=frozenset({"bob"})),
        gate(9, early=(0,)),
        gate(9, task_id="alone", subject=Subject(name="pay", task_id="alone")),
        gate(9, opened_at=-60_000),
        gate(9, opened_at=-POLICY.expires_after_ms),
    ]
    standings = Standings(people, now=2_000)

    assert [standings.of(each) for each in (*alike, *others)] == [
        people.standing(each, 2_000) for each in (*alike, *others)
    ]
    assert standings.evaluations == 1 + len(others)


@pytest.fixture(params=["sqlite", "valkey"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    flags = {"store.url": store_url(request.param, tmp_path), "redis.allow_volatile": True}
    app = Ade(settings=load(flags=flags, files=[]).settings)

    @app.task(name="pay")
    async def pay(to: str) -> str:
        return to

    async with app:
        stores = (await app.open()).stores
        await add_user(stores, User(id="ada", roles=frozenset({Role.OPERATOR})))
        for number in range(20):
            await add_user(stores, User(id=f"r{number}", roles=frozenset({Role.REVIEWER})))
        await approvals_repository.apply(stores, read_rulebook(RULES), actor="root")
        yield app, stores, pay.with_options(author="ada")


async def test_the_python_api_is_limited_too(shop: Shop) -> None:
    app, stores, pay = shop
    await runtime.set_value(stores, "approval.max_open_per_author", 2, actor="root")
    await app.enqueue_many([pay.call("x"), pay.call("y")])
    with pytest.raises(TooManyApprovals):
        await pay.enqueue("z")
    assert len(await approvals_views.waiting(stores)) == 2


@pytest.mark.long
async def test_ten_thousand_that_wait_are_listed_quickly(shop: Shop) -> None:
    app, stores, pay = shop
    await runtime.set_value(stores, "approval.max_open_per_author", 20_000, actor="root")
    for _ in range(10):
        await app.enqueue_many([pay.call("x") for _ in range(1_000)])
    began = time.perf_counter()
    mine = await approvals_views.inbox(stores, "r1")
    took_s = time.perf_counter() - began

    assert len(mine) == 10_000
    assert took_s < 5  # about half a second on a machine that does nothing else
