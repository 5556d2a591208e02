"""Random histories of approvals under attack: authors choose policies, roll back, replay, write schedules, and let runs
enqueue children. Whatever they combine, nothing runs that the rules do not let pass.

It adds attacks to the histories of approvals, and facts that only the machine knows: which arguments a run began with,
and who wrote a schedule.
"""

import os
from typing import Any, cast

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec import Raw, structs

from ade import Task
from ade.approvals import repository as approvals_repository
from ade.approvals import rollback, submission
from ade.approvals.model import Review, StartMode
from ade.tasks import schedules
from ade.tasks import service as tasks_service
from ade.tasks.admission import ROLLBACK_SUFFIX, admit
from ade.worker.approval_check import ApprovalChecker
from ade.worker.context_backend import StoreContextBackend
from ade.worker.messages import EnqueueChildren
from tests.conformance.approval_shop import PLAIN, POLICIES, PREVIEWED, add_people, handler_of
from tests.conformance.histories import ATTACK_SHARES, PER_SHARE, play, shares
from tests.conformance.test_approval_histories import REVIEWERS, ApprovalHistories, anybody, authors, pick, seldom
from tests.depth import examples
from tests.domain import Definition, Run, Schedule, Stores, TaskSettings, Worker, read_rulebook, uuid7

PAY = "pay"
UNDO = f"{PAY}{ROLLBACK_SUFFIX}"
# What an author would like to choose: a vote of anyone, also of the author, and no vote at all.
EASY = {"id": "easy", "rules": [{"needed": 1, "roles": ["viewer", "reviewer", "agent"]}], "authors_may_vote": True}
NO_VOTE = {"id": "no_vote", "rules": [{"needed": 1, "roles": ["viewer"]}], "auto_approve": "medium"}
GUARD = [{"do": "demand", "name": name, "reason": "money"} for name in (PLAIN, PAY)]
choices = st.sampled_from([(), ("easy",), ("no_vote",), ("easy", "no_vote")])
MOST_TASKS = 9


class AttackedApprovals(ApprovalHistories):
    """The same people, and authors who try every way around them."""

    names = frozenset({PLAIN, PREVIEWED, PAY, UNDO})

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[str, set[bytes]] = {}
        self.writers: set[str] = set()
        for name in (PAY, UNDO):
            self.registry.add(handler_of(Definition(name=name, has_rollback=name == PAY)))
        self.versions = dict.fromkeys((PLAIN, PREVIEWED, PAY), "1")  # of the code that the worker runs
        self.gates = ApprovalChecker(self.stores, self.payloads, self.registry, self.versions)

    @initialize(policy=st.sampled_from(POLICIES), is_risky=st.booleans(), author=authors)
    def open(self, policy: dict[str, Any], is_risky: bool, author: str) -> None:
        self.do(self._open(policy))
        self.write(author, PREVIEWED, StartMode.AT_ONCE, is_risky, True)
        self.enqueue(author, PAY, (), is_risky)

    async def _open(self, policy: dict[str, Any]) -> None:
        await add_people(self.stores)
        ours = {"id": "ours", "names": [PLAIN, PREVIEWED], **policy}
        rules = {"policy": [ours, EASY, NO_VOTE], "guard": GUARD, "criticality": {"prod:*": 100}}
        rulebook = read_rulebook(rules)
        await approvals_repository.apply(self.stores, rulebook, actor="eve")
        [required] = [msgspec.to_builtins(entry.policy) for entry in rulebook.policies if entry.policy.id == "ours"]
        usual = {**required, "rules": [{"needed": 1, "users": [], "roles": ["reviewer", "admin"]}], "steps": []}
        self.judge.required = {PLAIN: required, PREVIEWED: required, PAY: usual}
        await self._register()
        await self.gates.open()

    async def _register(self) -> None:
        """The worker reports what it can run, and in which version."""
        worker = Worker(id="w", hostname="h", pid=1, started_at=self.clock.now(), version="1")
        definitions = [
            structs.replace(handler.definition, version=self.versions.get(handler.name, ""))
            for handler in self.registry
        ]
        await self.stores.workers.register(worker, definitions, 30_000)
        self.reported.update(self.versions.values())

    # what authors try

    def _task(self, name: str, author: str | None, **fields: Any) -> Task:
        return Task(
            id=uuid7(self.clock.now(), os.urandom(10)),
            name=name,
            args=Raw(msgspec.json.encode({"number": len(self.ids)})),
            author_id=author,
            max_attempts=1,
            **fields,
        )

    async def _stored(self, stores: Stores, *tasks: Task) -> list[Task]:
        admitted = [admit(task, now=self.clock.now()) for task in tasks]
        stored = await submission.enqueue_guarded(stores, self.payloads, admitted)
        self.ids += [task.id for task in stored]
        return stored

    @rule(author=authors, name=st.sampled_from([PLAIN, PAY]), chosen=choices, is_risky=st.booleans())
    def enqueue(self, author: str, name: str, chosen: tuple[str, ...], is_risky: bool) -> None:
        """Not a draft: the guard alone demands approval, and the author asks for policies of their own."""
        if len(self.ids) < MOST_TASKS:
            resources = ("prod:*",) if is_risky else ("test:a",)
            review = Review(policies=chosen) if chosen else None
            self.attempt(
                lambda stores: self._stored(stores, self._task(name, author, resources=resources, review=review))
            )

    @rule(number=pick, actor=anybody, is_lost=seldom)
    def roll_back(self, number: int, actor: str, is_lost: bool) -> None:
        if task := self.some(number):
            self.attempt(
                lambda stores: rollback.roll_back(stores, self.payloads, task.id, actor=actor), is_lost=is_lost
            )

    @rule(number=pick, actor=authors, by_edit=st.booleans())
    def undo_other_arguments(self, number: int, actor: str, by_edit: bool) -> None:
        """A task that has ended gets other arguments, is cancelled before anyone approves it, and is rolled back."""
        task = self.some(number)
        if task is None or task.name != PAY or not task.is_final:
            return
        self.replay(number, actor, not by_edit)
        if by_edit:
            self.edit(number, actor, False)
        self.attempt(lambda stores: tasks_service.cancel(stores, task.id, "never mind"))
        self.roll_back(number, actor, False)
        self.work()

    @rule(number=pick, voters=st.permutations(REVIEWERS))
    def run_and_fail(self, number: int, voters: list[str]) -> None:
        """A payment is approved, runs, and fails."""
        self.agree(number, voters, 4, "work")
        self.finish(number, False)

    @rule(number=pick, actor=anybody, is_edited=st.booleans())
    def replay(self, number: int, actor: str, is_edited: bool) -> None:
        if task := self.some(number):
            args = Raw(msgspec.json.encode({"number": 77})) if is_edited else None
            self.attempt(lambda stores: submission.replay(stores, self.payloads, task.id, args=args, actor=actor))

    @rule(number=pick, name=st.sampled_from([PLAIN, PAY]), author=st.sampled_from([None, "vic", "dee"]))
    def enqueue_child(self, number: int, name: str, author: str | None) -> None:
        """A run enqueues a task, and may claim that somebody else wrote it."""
        if not self.running or len(self.ids) >= MOST_TASKS:
            return
        parent = self.running[number % len(self.running)]
        run = Run(parent, self.registry.by_name[parent.name])
        child = self._task(name, author, parent_id=parent.id)

        async def enqueue(stores: Stores) -> None:
            backend = StoreContextBackend(stores, cast(Any, None), self.gates)
            stored = await backend.ask(run, EnqueueChildren([child]))
            self.ids.extend(task.id for task in stored)

        self.attempt(enqueue)

    @rule(name=st.sampled_from([PLAIN, PREVIEWED, PAY]), version=st.sampled_from(["1", "2"]), is_reported=st.booleans())
    def change_code(self, name: str, version: str, is_reported: bool) -> None:
        """The worker gets other code, and may run it before it has reported that."""
        self.versions[name] = version
        if is_reported:
            self.do(self._register())

    @rule(actor=authors)
    def save_schedule(self, actor: str) -> None:
        schedule = Schedule(name="rent", cron="*/5 * * * *", task_name=PAY, args=Raw(b'{"number":5}'))
        self.attempt(lambda stores: schedules.put(stores, schedule, actor=actor))
        self.writers.add(actor)

    @rule(actor=st.sampled_from(["bob", "cy", "dee"]))
    def fire_schedule(self, actor: str) -> None:
        if not self.writers or len(self.ids) >= MOST_TASKS:
            return

        async def fire(stores: Stores) -> None:
            task = await schedules.fire_now(
                stores, TaskSettings(), "rent", lambda tasks: self._stored(stores, *tasks), actor=actor
            )
            self.judge.involve(task.id, *self.writers, actor)

        self.attempt(fire)

    # what must hold

    def begin(self, task: Task) -> None:
        self.began.setdefault(task.id, set()).add(bytes(task.args))
        if task.name == UNDO:
            assert bytes(task.args) in self.began.get(task.parent_id or "", set()), "it undoes what never ran"
        else:
            super().begin(task)


@pytest.mark.deep
@pytest.mark.parametrize(("store", "share"), shares(ATTACK_SHARES))
def test_whatever_authors_try_nothing_runs_that_the_rules_do_not_let_pass(store: str, share: int) -> None:
    assert play(AttackedApprovals, store, in_depth=PER_SHARE, steps=40, share=share) >= examples(PER_SHARE)
