"""Random histories of responses: a run does only what enough other people approved, whatever was responded before.

The judge reads who voted from the event log, and counts by rules of its own.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec import Raw

from ade import HoldResponse, Status, StepDenied, Task
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.approvals.run_gates import RunStep, request_step_approval
from ade.errors import AdeError
from ade.failures import FailureKind, TaskError
from tests.conformance.histories import PER_SHARE, RESPONSE_SHARES, StoreHistories, play, read_log, shares
from tests.depth import examples
from tests.domain import (
    ApprovalProof,
    ClaimRequest,
    Decision,
    Failed,
    Gate,
    Payloads,
    Succeeded,
    User,
    VoteRequest,
    add_user,
    enqueue,
    read_rulebook,
    settle,
    uuid7,
)

PERSONS = {"bob2": "bob"}
REVIEWERS = ("ada", "bob", "bob2", "cy", "dee")
NAME, STEP, NEEDED = "careful", "do it", 2
DENIALS = ("reject", "respond")
pick = st.integers(min_value=0, max_value=1_000)
subjects = st.integers(min_value=0, max_value=2)


def who(account: str) -> str:
    return PERSONS.get(account, account)


class ResponseHistories(StoreHistories):
    """Runs that ask about one step, and people who approve, reject, edit, and respond."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads, self.proof, self.read_to = Payloads(self.stores.blobs), ApprovalProof(), 0
        self.ids: list[str] = []
        self.votes: dict[str, list[dict[str, Any]]] = {}  # by gate, from the log
        self.threshold = 1

    @initialize(threshold=st.sampled_from([1, 2]))
    def open(self, threshold: int) -> None:
        self.threshold = threshold
        self.do(self._open())
        self.write(True)

    async def _open(self) -> None:
        users = [User(id=each, roles=frozenset({"reviewer"}), person=PERSONS.get(each, "")) for each in REVIEWERS]
        await asyncio.gather(*(add_user(self.stores, user) for user in users))
        rules = [{"needed": NEEDED, "roles": ["reviewer"]}]
        policy = {"id": "ours", "names": [NAME], "rules": rules, "deny_threshold": self.threshold}
        await approvals_repository.apply(self.stores, read_rulebook({"policy": [policy]}), actor="dee")

    @rule(reads=st.booleans())
    def write(self, reads: bool) -> None:
        if len(self.ids) < 4:
            args = Raw(msgspec.json.encode({"reads": reads}))
            task = Task(id=uuid7(self.clock.now(), os.urandom(10)), name=NAME, args=args, author_id="ada")
            self.do(enqueue(self.stores, self.payloads, [task]))
            self.ids.append(task.id)

    @rule(
        number=pick,
        voter=st.sampled_from(REVIEWERS),
        decision=st.sampled_from([*Decision, Decision.APPROVE, Decision.APPROVE, Decision.RESPOND]),
        subject=subjects,
        edits=st.booleans(),
        go_on=st.booleans(),
        is_old=st.sampled_from([False, False, False, True]),
    )
    def vote(
        self, number: int, voter: str, decision: Decision, subject: int, edits: bool, go_on: bool, is_old: bool
    ) -> None:
        gates = self.gates(number)
        if not gates:
            return
        seen = gates[0] if is_old else gates[-1]  # an old gate, or its digest, is for nothing
        responds = decision is Decision.RESPOND
        ballot = VoteRequest(
            voter=voter,
            decision=decision,
            approval=seen.id,
            digest=seen.digest,
            text="why" if responds else "",
            args={"subject": subject} if responds and edits else None,
            go_on=go_on and decision is Decision.REJECT,
            authenticated_at=self.clock.now(),
        )
        for gate_id in (seen.id, gates[-1].id):
            with suppress(AdeError):
                self.do(
                    approvals_service.vote(self.stores, seen.task_id, msgspec.structs.replace(ballot, approval=gate_id))
                )

    @rule(number=pick, voter=st.sampled_from(REVIEWERS), subject=subjects, voters=st.permutations(REVIEWERS))
    def edit(self, number: int, voter: str, subject: int, voters: list[str]) -> None:
        self.work(False)
        self.vote(number, voter, Decision.RESPOND, subject, True, False, False)
        self.agree(number, voters, len(voters) - 1)

    @rule(number=pick, voters=st.permutations(REVIEWERS), count=st.integers(1, 4))
    def agree(self, number: int, voters: list[str], count: int) -> None:
        for voter in voters[:count]:
            self.vote(number, voter, Decision.APPROVE, 0, False, False, False)
        self.work(True)

    @rule(fails=st.booleans())
    def work(self, fails: bool) -> None:
        """A run gets to its step and does it, does it as it was edited, continues without it, or waits."""
        request = ClaimRequest(worker_id="w", run_ids=[os.urandom(16).hex()], names=frozenset({NAME}), lease_ms=120_000)
        for task in self.do(self.stores.tasks.claim(request)):
            reads, about = bool(msgspec.json.decode(task.args)["reads"]), {"subject": 0}
            step = RunStep(step=STEP, about=Raw(msgspec.json.encode(about)), responses=reads)
            try:
                decided = self.do(request_step_approval(self.stores, task, step))
            except StepDenied:
                decided = HoldResponse(is_approved=False)
            if isinstance(decided, HoldResponse):
                self.read_on()
                if decided:
                    self.judge(task, decided.args or about)
                error = TaskError(kind=FailureKind.RETRY_ASKED, type="Retry", message="again")
                outcome: Any = Failed(error, 1) if fails else Succeeded(Raw(b"1"))
            else:
                outcome = decided
            change = settle(task, outcome, now=self.clock.now(), randomness=0.5)
            self.do(self.stores.tasks.commit_each([change]))
            self.clock.advance(1)

    def gates(self, number: int) -> tuple[Gate, ...]:
        [task] = self.do(self.stores.tasks.get([self.ids[number % len(self.ids)]])) if self.ids else [None]
        is_waiting = task is not None and task.review is not None and task.status in (Status.REVIEWING, Status.DRAFT)
        return task.review.gates if task is not None and task.review is not None and is_waiting else ()

    def judge(self, task: Task, done: dict[str, int]) -> None:
        """Enough people approved exactly this, none of them wrote the task or an edit, and not too many denied it."""
        assert task.review is not None
        gate = next(gate for gate in reversed(task.review.gates) if gate.about == done)
        newest = {who(vote["voter"]): vote for vote in self.votes.get(gate.id, ())}
        approving = {person for person, vote in newest.items() if vote["decision"] == "approve"}
        denying = {person for person, vote in newest.items() if vote["decision"] in DENIALS}
        earlier = [vote for each in task.review.gates if each.number < gate.number for vote in self.votes[each.id]]
        writers = {"ada", *(who(vote["voter"]) for vote in earlier if vote.get("edited"))}
        assert len(approving) >= NEEDED
        assert not approving & writers
        assert len(denying) < self.threshold
        assert all(vote["digest"] == gate.digest for vote in newest.values())

    @invariant()
    def read_on(self) -> None:
        for event in self.do(read_log(self.stores, self.read_to)):
            assert self.proof.add(event) is None
            if event.type == "approval.requested":
                self.votes.setdefault(str(event.payload["approval"]), [])
            if isinstance(vote := event.payload.get("vote"), dict):
                self.votes[str(event.payload["approval"])].append(vote)
            self.read_to = event.seq


@pytest.mark.deep
@pytest.mark.parametrize(("store", "share"), shares(RESPONSE_SHARES))
def test_whatever_is_responded_a_run_does_only_what_others_approved(store: str, share: int) -> None:
    assert play(ResponseHistories, store, in_depth=PER_SHARE, steps=40, share=share) >= examples(PER_SHARE)
