"""Random lives of a task: whatever happens to it in whatever order, the promises hold after every step."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ade import Task
from ade.errors import IllegalTransition
from ade.failures import MAX_THROTTLES, FailureKind
from ade.tasks import admission, decisions
from ade.tasks.changes import EVENT_OF, Change, change
from ade.tasks.lifecycle import CLAIMABLE, FINAL, RULES, Status, Verb, verbs_from
from tests.depth import examples
from tests.domain import FINAL_EVENTS, AfterFailure, Released, Succeeded
from tests.tasks.factories import NOW, claim, failure, new_task, raw

REPAIRS = {Verb.REPLAY, Verb.DISCARD}
Rule = TypeVar("Rule", bound=Callable[..., Any])
rolls = st.floats(0, 1, exclude_max=True)


def in_status(*statuses: Status) -> Callable[[Rule], Rule]:
    return precondition(lambda walk: walk.task.status in statuses)


class TaskLife(RuleBasedStateMachine):
    """One task, moved only by the decisions of the core and by claims as a store makes them."""

    task: Task

    @initialize(
        max_attempts=st.integers(1, 4),
        after_failure=st.sampled_from([AfterFailure.CANCEL, AfterFailure.FAIL]),
    )
    def create(self, max_attempts: int, after_failure: AfterFailure) -> None:
        self.now = NOW
        self.claims = 0
        self.finals: Counter[int] = Counter()
        self.free_runs: Counter[int] = Counter()  # by generation: released or throttled
        self.runs: Counter[int] = Counter()
        self.task = admission.admit(
            new_task(max_attempts=max_attempts, after_failure=after_failure, timeout_ms=1000), now=NOW
        )

    def write(self, made: Change) -> None:
        before, after = made.before, made.after
        assert before is self.task
        assert after.version == before.version + 1
        assert made.verb in verbs_from(before.status)
        assert after.status in RULES[made.verb].targets
        assert before.status not in FINAL or made.verb in REPAIRS
        assert made.guard.version is not None or made.guard.run_id is not None
        assert [event.type for event in made.events][: len(EVENT_OF[made.verb])] == [*EVENT_OF[made.verb]]
        self.finals[before.generation] += sum(event.type in FINAL_EVENTS for event in made.events)
        self.task = after
        self.now += 1

    @in_status(*CLAIMABLE)
    @rule()
    def be_claimed(self) -> None:
        self.claims += 1
        self.runs[self.task.generation] += 1
        self.write(claim(self.task, run_id=f"run-{self.claims}", now=self.now))

    @in_status(Status.RUNNING)
    @rule()
    def succeed(self) -> None:
        self.write(decisions.settle(self.task, Succeeded(raw("null")), now=self.now, randomness=0.5))

    @in_status(Status.RUNNING)
    @rule(
        kind=st.sampled_from(FailureKind),
        asked_ms=st.one_of(st.none(), st.integers(-1000, 10**15)),
        retryable=st.booleans(),
        randomness=rolls,
    )
    def fail(self, kind: FailureKind, asked_ms: int | None, retryable: bool, randomness: float) -> None:
        outcome = failure(kind, retry_after_ms=asked_ms, retryable=retryable)
        throttles, generation = self.task.throttles, self.task.generation
        self.write(decisions.settle(self.task, outcome, now=self.now, randomness=randomness))
        self.free_runs[generation] += self.task.throttles - throttles

    @in_status(Status.RUNNING)
    @rule()
    def be_released(self) -> None:
        self.free_runs[self.task.generation] += 1
        self.write(decisions.settle(self.task, Released("shutdown"), now=self.now, randomness=0.5))

    @in_status(Status.RUNNING)
    @rule()
    def lose_its_worker(self) -> None:
        self.write(decisions.lose_lease(self.task, now=self.now))

    @in_status(*CLAIMABLE)
    @rule()
    def miss_its_deadline(self) -> None:
        self.write(decisions.miss_deadline(self.task, now=self.now))

    @in_status(Status.PENDING)
    @rule()
    def lose_its_dependency(self) -> None:
        self.write(decisions.break_chain(self.task, failed_ids=("other",), now=self.now))

    @precondition(lambda walk: not walk.task.is_final)
    @rule()
    def be_cancelled(self) -> None:
        self.write(decisions.cancel(self.task, "enough", now=self.now))

    @in_status(Status.FAILED)
    @rule()
    def be_replayed(self) -> None:
        self.write(decisions.replay(self.task, now=self.now))

    @in_status(Status.FAILED)
    @rule()
    def be_discarded(self) -> None:
        self.write(decisions.discard(self.task, "noise", now=self.now))

    @in_status(*FINAL)
    @rule(kind=st.sampled_from(FailureKind))
    def resist_everything_that_comes_late(self, kind: FailureKind) -> None:
        late: tuple[Callable[[], Change], ...] = (
            lambda: decisions.settle(self.task, Succeeded(raw("null")), now=self.now, randomness=0.5),
            lambda: decisions.settle(self.task, failure(kind), now=self.now, randomness=0.5),
            lambda: decisions.settle(self.task, Released("shutdown"), now=self.now, randomness=0.5),
            lambda: decisions.lose_lease(self.task, now=self.now),
            lambda: decisions.miss_deadline(self.task, now=self.now),
            lambda: decisions.break_chain(self.task, failed_ids=("other",), now=self.now),
            lambda: decisions.cancel(self.task, "enough", now=self.now),
            lambda: claim(self.task, run_id="late", now=self.now),
        )
        for decision in late:
            with pytest.raises(IllegalTransition):
                decision()

    @invariant()
    def no_generation_has_two_final_events(self) -> None:
        assert all(count <= 1 for count in self.finals.values())
        assert self.finals[self.task.generation] == (1 if self.task.is_final else 0)

    @invariant()
    def attempts_are_the_runs_that_count_and_never_too_many(self) -> None:
        generation = self.task.generation
        assert 0 <= self.task.attempt <= self.task.max_attempts
        assert self.task.attempt == self.runs[generation] - self.free_runs[generation]
        assert self.task.throttles <= MAX_THROTTLES

    @invariant()
    def a_claimable_task_has_an_attempt_left(self) -> None:
        assert self.task.status not in CLAIMABLE or self.task.attempt < self.task.max_attempts

    @invariant()
    def only_a_running_task_has_a_lease(self) -> None:
        running = self.task.status is Status.RUNNING
        assert (self.task.lease_until is not None) == running
        assert (self.task.worker_id is not None) == (running or self.task.status is Status.STALLED)

    @invariant()
    def what_is_final_has_an_end_and_nothing_else_has(self) -> None:
        assert (self.task.finished_at is not None) == self.task.is_final
        assert (self.task.result is not None) == (self.task.status is Status.COMPLETED)
        assert not self.task.discarded or self.task.status is Status.FAILED


TestTaskLife = TaskLife.TestCase
TestTaskLife.settings = settings(max_examples=examples(100), stateful_step_count=40)


@given(data=st.data(), birth=st.sampled_from(RULES[Verb.CREATE].targets))
def test_any_walk_through_the_whole_table_ends_each_generation_once(data: st.DataObject, birth: Status) -> None:
    """All verbs, those of review included, as the table alone allows them."""
    task, finals = new_task(status=birth), Counter[int]()
    for _ in range(30):
        verbs = verbs_from(task.status)
        if not verbs:
            break
        verb = data.draw(st.sampled_from(verbs))
        target = data.draw(st.sampled_from(RULES[verb].targets or (task.status,)))
        generation = task.generation + (verb is Verb.REPLAY)
        made = change(task, verb, now=NOW, target=target, generation=generation)
        finals[task.generation] += sum(event.type in FINAL_EVENTS for event in made.events)
        assert made.after.version == task.version + 1
        task = made.after

    assert set(finals.values()) <= {0, 1}
    assert finals[task.generation] == (1 if task.is_final else 0)
