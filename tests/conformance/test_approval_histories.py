"""Random histories of approvals: whatever people do, in whatever order, nothing runs that they have not agreed to.

After every step the event log is read by a judge who knows the rules by himself and believes no record.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec import Raw

from ade import Status, Task
from ade.approvals import audit_check, delegations, submission
from ade.approvals import service as approvals_service
from ade.approvals.decisions import whole_gate
from ade.approvals.digest import Preview, digest_at
from ade.approvals.model import Decision, Delegation, GateState, Review, StartMode
from ade.approvals.service import sweep_reviews
from ade.errors import AdeError
from ade.failures import FailureKind, TaskError
from ade.tasks import service as tasks_service
from ade.tasks.handlers import Handler
from ade.tasks.outcomes import Failed, Outcome, Succeeded, Withheld
from ade.worker.approval_check import ApprovalChecker
from tests.conformance.approval_judge import Judge
from tests.conformance.approval_shop import (
    PERSONS,
    PLAIN,
    POLICIES,
    PREVIEWED,
    PROGRAMS,
    ROLES,
    open_shop,
    register_worker,
    shop_registry,
    without_answers,
)
from tests.conformance.backends import BACKENDS
from tests.conformance.histories import StoreHistories, play, read_log
from tests.domain import (
    ApprovalProof,
    ClaimRequest,
    Payloads,
    Run,
    Stores,
    TaskQuery,
    UserChanges,
    VoteRequest,
    change_user,
    enqueue,
    settle,
    settle_due,
    uuid7,
)

REVIEWERS = ("bob", "bob2", "cy", "dee", "eve")
ANYBODY = (*ROLES, "bot", "nobody")
pick = st.integers(min_value=0, max_value=1_000)
anybody = st.sampled_from(ANYBODY)
mostly = st.sampled_from([True, True, True, False])
seldom = st.sampled_from([False, False, False, True])
authors = st.sampled_from(["ada", "ADA", "bot", "bob"])
decisions = st.sampled_from([*Decision, Decision.APPROVE, Decision.APPROVE])
afterwards = st.sampled_from(["work", "leave", "lose a role", "go home"])
GONE_BY = frozenset(
    {
        GateState.REJECTED,
        GateState.EXPIRED,
        GateState.CANCELLED,
        GateState.SUPERSEDED,
        GateState.STALE,
        GateState.REVOKED,
    }
)
UseCase = Callable[[Stores], Awaitable[object]]


class _NoPreviews:
    """No handler is called here, so nothing can be previewed again."""

    async def attempt(self, run: Run, handler: Handler) -> Outcome:
        return Withheld(reason="it cannot be previewed here")


class ApprovalHistories(StoreHistories):
    """One store; many people at it, some of whom never hear what came of what they did."""

    names = frozenset({PLAIN, PREVIEWED})

    def __init__(self) -> None:
        super().__init__()
        self.payloads = Payloads(self.stores.blobs)
        self.judge, self.proof, self.read_to = Judge(PERSONS, PROGRAMS), ApprovalProof(), 0
        self.ids: list[str] = []
        self.running: list[Task] = []
        self.over: dict[str, GateState] = {}
        self.registry = shop_registry()
        self.records = audit_check.LoggedRecords(self.proof)
        self.versions = {PLAIN: "1", PREVIEWED: "1"}  # of the code of the worker that claims
        self.reported = {"1"}  # versions that the store was ever told of
        self.gates = ApprovalChecker(self.stores, self.payloads, self.registry, self.versions)

    @initialize(policy=st.sampled_from(POLICIES), is_risky=st.booleans(), author=authors)
    def open(self, policy: dict[str, Any], is_risky: bool, author: str) -> None:
        self.do(open_shop(self.stores, self.registry, policy))
        self.do(self.gates.open())
        for name in (PLAIN, PREVIEWED):
            self.write(author, name, StartMode.AT_ONCE, is_risky, True)

    # what people do

    def attempt(self, use_case: UseCase, *, is_lost: bool = False) -> None:
        """Refusals are answers too. With `is_lost` the client dies before it hears, and somebody does it once more."""
        if is_lost:
            self._try(use_case, without_answers(self.stores))
        self._try(use_case, self.stores)

    def _try(self, use_case: UseCase, stores: Stores) -> None:
        with suppress(AdeError):
            self.do(use_case(stores))

    def some(self, number: int) -> Task | None:
        if not self.ids:
            return None
        [task] = self.do(self.stores.tasks.get([self.ids[number % len(self.ids)]]))
        return task

    @rule(
        author=authors,
        name=st.sampled_from([PLAIN, PLAIN, PREVIEWED]),
        start=st.sampled_from(StartMode),
        is_risky=st.booleans(),
        is_submitted=mostly,
    )
    def write(self, author: str, name: str, start: StartMode, is_risky: bool, is_submitted: bool) -> None:
        if len(self.ids) >= 6:
            return
        task = Task(
            id=uuid7(self.clock.now(), os.urandom(10)),
            name=name,
            args=Raw(msgspec.json.encode({"number": len(self.ids)})),
            author_id=author,
            status=Status.DRAFT,
            resources=("prod:*",) if is_risky else ("test:a",),
            review=Review(start=start),
        )
        self.do(enqueue(self.stores, self.payloads, [task]))
        self.ids.append(task.id)
        if is_submitted:
            self.submit(len(self.ids) - 1, author, False)

    @rule(number=pick, actor=anybody, is_lost=seldom)
    def submit(self, number: int, actor: str, is_lost: bool) -> None:
        if task := self.some(number):
            self.attempt(lambda stores: submission.submit(stores, self.payloads, task.id, actor=actor), is_lost=is_lost)
            self.preview(number, is_lost)

    @rule(number=pick, is_lost=seldom)
    def preview(self, number: int, is_lost: bool) -> None:
        task = self.some(number)
        if task and task.review and task.review.preview_id:
            seen, known = Raw(msgspec.json.encode(Preview(changes=["all"]))), task.review.preview_id
            self.attempt(
                lambda stores: submission.assess(stores, Payloads(stores.blobs), task.id, seen, preview_id=known),
                is_lost=is_lost,
            )

    @rule(
        number=pick,
        voter=anybody,
        decision=decisions,
        is_right=mostly,
        for_whom=st.sampled_from([None, None, None, *ROLES]),
        has_password=mostly,
        in_batch=seldom,
        is_lost=seldom,
    )
    def vote(
        self,
        number: int,
        voter: str,
        decision: Decision,
        is_right: bool,
        for_whom: str | None,
        has_password: bool,
        in_batch: bool,
        is_lost: bool,
    ) -> None:
        task = self.some(number)
        if task is None or task.review is None or task.review.gate is None:
            return
        gate = task.review.gate
        digest = gate.digest if is_right else "0" * 64
        ballot = VoteRequest(
            voter=voter,
            decision=decision,
            approval=gate.id,
            digest=digest,
            on_behalf_of=for_whom,
            authenticated_at=self.clock.now() if has_password else None,
        )
        if in_batch:
            self.attempt(lambda stores: approvals_service.vote_in_batch(stores, gate, digest, ballot), is_lost=is_lost)
        else:
            self.attempt(lambda stores: approvals_service.vote(stores, task.id, ballot), is_lost=is_lost)

    @rule(number=pick, voters=st.permutations(REVIEWERS), count=st.integers(1, 5), then=afterwards)
    def agree(self, number: int, voters: list[str], count: int, then: str) -> None:
        for voter in voters[:count]:
            self.vote(number, voter, Decision.APPROVE, True, None, True, False, False)
        if then == "leave":
            self.switch(voters[0], False)
        if then == "lose a role":
            self.change_roles(voters[0], "viewer")
        if then != "go home":
            self.work()

    @rule(
        number=pick,
        answers=st.lists(st.tuples(st.sampled_from((*REVIEWERS, "ada")), decisions, mostly), min_size=2, max_size=6),
    )
    def quarrel(self, number: int, answers: list[tuple[str, Decision, bool]]) -> None:
        for voter, decision, is_right in answers:
            self.vote(number, voter, decision, is_right, None, True, False, False)

    @rule(number=pick, delegator=st.sampled_from(["bob", "cy", "ada", "eve"]), delegate=st.sampled_from([*ROLES]))
    def agree_by_delegate(self, number: int, delegator: str, delegate: str) -> None:
        self.delegate(delegator, delegate, True)
        self.vote(number, delegate, Decision.APPROVE, True, delegator, True, False, False)

    @rule(number=pick, voter=anybody)
    def vote_after_the_fact(self, number: int, voter: str) -> None:
        task = self.some(number)
        for gate in task.review.gates if task and task.review else ():
            ballot = VoteRequest(
                voter=voter,
                decision=Decision.REJECT,
                approval=gate.id,
                digest=gate.digest,
                authenticated_at=self.clock.now(),
            )
            self.attempt(partial(approvals_service.vote, task_id=gate.task_id, ballot=ballot))

    @rule(number=pick, editor=anybody, is_lost=seldom)
    def edit(self, number: int, editor: str, is_lost: bool) -> None:
        if task := self.some(number):
            args = Raw(msgspec.json.encode({"number": number % 3}))
            self.attempt(
                lambda stores: tasks_service.edit(stores, self.payloads, task.id, actor=editor, args=args),
                is_lost=is_lost,
            )

    @rule(delegator=st.sampled_from([*ROLES]), delegate=st.sampled_from([*ROLES]), cascades=st.booleans())
    def delegate(self, delegator: str, delegate: str, cascades: bool) -> None:
        now = self.clock.now()
        wanted = Delegation(
            id="", delegator=delegator, delegate=delegate, starts_at=now, ends_at=now + 1_200_000, cascades=cascades
        )
        self.attempt(lambda stores: delegations.create(stores, wanted, actor=delegator))

    @rule(number=pick, delegator=st.sampled_from([*ROLES]), delegate=st.sampled_from([*ROLES]))
    def delegate_one_approval(self, number: int, delegator: str, delegate: str) -> None:
        if task := self.some(number):
            self.attempt(lambda stores: approvals_service.delegate_approval(stores, task.id, delegate, actor=delegator))
            self.vote(number, delegate, Decision.APPROVE, True, delegator, True, False, False)

    @rule(number=pick)
    def withdraw(self, number: int) -> None:
        known = self.do(delegations.list_delegations(self.stores))
        if known:
            chosen = known[number % len(known)]
            self.attempt(lambda stores: delegations.revoke(stores, chosen.id, actor=chosen.delegator))

    @rule(account=st.sampled_from([*ROLES]), roles=st.sampled_from(["reviewer", "reviewer dba", "viewer"]))
    def change_roles(self, account: str, roles: str) -> None:
        changes = UserChanges(roles=frozenset(roles.split()))
        self.attempt(lambda stores: change_user(stores, account, changes, actor="eve"))

    @rule(account=st.sampled_from([*ROLES]), is_active=mostly)
    def switch(self, account: str, is_active: bool) -> None:
        self.attempt(lambda stores: change_user(stores, account, UserChanges(is_active=is_active), actor="eve"))

    @rule(number=pick, actor=anybody, is_lost=seldom)
    def revoke(self, number: int, actor: str, is_lost: bool) -> None:
        if task := self.some(number):
            self.attempt(lambda stores: approvals_service.revoke(stores, task.id, "no", actor=actor), is_lost=is_lost)

    @rule(number=pick, actor=st.sampled_from(["eve", "eve", "ada", "bot"]), is_lost=seldom)
    def break_glass(self, number: int, actor: str, is_lost: bool) -> None:
        if number % 4 == 0 and (task := self.some(number)):
            now = self.clock.now()
            self.attempt(
                lambda stores: approvals_service.break_glass(
                    stores, task.id, "fire", actor=actor, authenticated_at=now
                ),
                is_lost=is_lost,
            )

    @rule(number=pick, voter=anybody, actor=st.sampled_from(["eve", "ada"]))
    def dismiss(self, number: int, voter: str, actor: str) -> None:
        if task := self.some(number):
            self.attempt(
                lambda stores: approvals_service.dismiss(stores, task.id, voter, "asked too much", actor=actor)
            )

    @rule(number=pick, actor=st.sampled_from(["ada", "bot", "eve", "vic"]), is_lost=seldom)
    def start(self, number: int, actor: str, is_lost: bool) -> None:
        if task := self.some(number):
            self.attempt(lambda stores: approvals_service.start(stores, task.id, actor=actor), is_lost=is_lost)

    @rule(version=st.sampled_from(["1", "2", ""]), is_told=st.booleans())
    def deploy(self, version: str, is_told: bool) -> None:
        """Other code is there. Unless the store is told of it, some worker still has the old one."""
        self.versions.update(dict.fromkeys(self.registry.names(), version))
        if is_told:
            self.reported.add(version)
            self.do(register_worker(self.stores, self.registry, version))

    @rule(number=pick)
    def cancel(self, number: int) -> None:
        if number % 5 == 0 and (task := self.some(number)):
            self.attempt(lambda stores: tasks_service.cancel(stores, task.id, "enough"))

    @rule(number=pick)
    def replay(self, number: int) -> None:
        if task := self.some(number):
            args = Raw(msgspec.json.encode({"number": 77})) if number % 2 else None
            self.attempt(lambda stores: submission.replay(stores, self.payloads, task.id, args=args))

    # what time and workers do

    @rule(minutes=st.sampled_from([0.1, 0.1, 1, 1, 6, 11, 31, 61]), is_lost=seldom)
    def pass_time(self, minutes: float, is_lost: bool) -> None:
        self.clock.advance(minutes * 60)
        self.attempt(settle_due)
        self.attempt(lambda stores: sweep_reviews(stores, self.payloads), is_lost=is_lost)

    @rule()
    def work(self) -> None:
        """As a worker does: claim, look once more, and begin or put it back before people."""
        request = ClaimRequest(worker_id="w", run_ids=[os.urandom(16).hex()], names=self.names, lease_ms=120_000)
        for task in self.do(self.stores.tasks.claim(request)):
            outcome = self.do(self._look(task))
            if outcome is None:
                self.begin(task)
                self.running.append(task)
            else:
                self._finish(task, outcome)

    def begin(self, task: Task) -> None:
        gate = whole_gate(task)
        assert gate is not None
        assert digest_at(task, gate) == gate.digest == task.digest
        if gate.code or "" not in self.reported:  # an approval before any version was reported covers all of them
            assert gate.code == self.versions[task.name], "another version of the code was approved"

    async def _look(self, task: Task) -> Outcome | None:
        looking = self.gates.check(Run(task, self.registry.by_name[task.name]), _NoPreviews())
        return None if looking is None else await looking

    @rule(number=pick, is_good=st.booleans())
    def finish(self, number: int, is_good: bool) -> None:
        if self.running:
            error = TaskError(kind=FailureKind.RAISED, type="E", message="no")
            outcome = Succeeded(Raw(b"1")) if is_good else Failed(error)
            self._finish(self.running.pop(number % len(self.running)), outcome)

    def _finish(self, task: Task, outcome: Outcome) -> None:
        change = settle(task, outcome, now=self.clock.now(), randomness=0.5)
        self.do(self.stores.tasks.commit_each([change]))

    # what must hold

    @invariant()
    def the_log_tells_of_nothing_that_must_not_be(self) -> None:
        self.do(self._read_on())
        assert self.judge.complaints == []
        assert self.proof.unproven_votes() == []

    async def _read_on(self) -> None:
        """Hear what the log says since the last step, and look at the records of the tasks that it names.

        The records of all others are looked at when the history is over: nobody repairs what was written past the log.
        """
        events = await read_log(self.stores, self.read_to)
        for event in events:
            self.judge.hear(event)
            assert self.records.add(event) is None
            self.read_to = event.seq
        named = {event.task_id: None for event in events if event.task_id is not None}
        if named:
            self._look_at(await self.stores.tasks.get([*named]))

    def _look_at(self, tasks: Sequence[Task | None]) -> None:
        """The records say what the log says, and what is over stays over."""
        for task in tasks:
            assert task is not None
            assert list(self.records.task_differences(task)) == []
            for gate in task.review.gates if task.review else ():
                assert self.over.get(gate.id, gate.state) is gate.state
                if gate.state in GONE_BY:
                    self.over[gate.id] = gate.state

    async def faults(self) -> list[str]:
        await self._read_on()  # should the last step have failed
        tasks = (await self.stores.tasks.find(TaskQuery(limit=100))).tasks
        self._look_at(tasks)
        missing = {*self.ids} - {task.id for task in tasks}
        return [*missing, *await self.records.document_differences(self.stores), *await super().faults()]


@pytest.mark.deep
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_whatever_people_do_nothing_runs_that_they_have_not_agreed_to(backend_name: str) -> None:
    assert play(ApprovalHistories, backend_name, in_depth=12, steps=40) > 0
