"""Random histories: whatever is done in whatever order, the store holds what a few dictionaries hold."""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec import structs

from ade import Status, Task
from ade.errors import StaleLease
from ade.failures import FailureKind
from ade.tasks.decisions import break_chain, cancel, discard, lose_lease, replay, reschedule, settle
from tests.conformance.histories import StoreHistories, play
from tests.conformance.model import Model
from tests.conformance.scene import MIDDLE, Scene
from tests.domain import CLAIMABLE, FINAL, AfterFailure, Change, Definition, Queue, Released

pick = st.integers(min_value=0, max_value=1_000_000)  # one of those there are, whatever their number
ends = st.sampled_from(["succeed", "fail", "fail for good", "throttle", "release"])
queues = st.sampled_from(["a", "b"])
limit_keys = st.sampled_from([None, "x", "x", "y"])
maybe_limit = st.sampled_from([None, 1, 2])
needs = st.sampled_from([(), (), ("gpu",), ("gpu", "net")])
abilities = st.sampled_from([frozenset[str](), frozenset({"gpu"}), frozenset({"gpu", "net", "more"})])


class TaskHistories(StoreHistories):
    """What people, workers and sweeps do."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.lost: list[Task] = []  # runs that no longer hold their task
        self.scene = Scene(self.stores, self.clock)

    # people

    @initialize(concurrency=maybe_limit, per_key=maybe_limit, keys=st.lists(limit_keys, min_size=4, max_size=12))
    def begin_with_work(self, concurrency: int | None, per_key: int | None, keys: list[str | None]) -> None:
        self.define("send", concurrency, per_key)
        for number, key in enumerate(keys):
            self.add_plain("ab"[number % 2], key)

    @rule(queue=queues, limit_key=limit_keys)
    def add_plain(self, queue: str, limit_key: str | None) -> None:
        self.store(self.scene.task(queue=queue, concurrency_key=limit_key))

    @rule(queue=queues, limit_key=limit_keys, needs=needs)
    def add_asking(self, queue: str, limit_key: str | None, needs: tuple[str, ...]) -> None:
        self.store(self.scene.task(queue=queue, concurrency_key=limit_key, needs=needs))

    @precondition(lambda self: self.model.entries)
    @rule(number=pick, spec=st.sampled_from(AfterFailure))
    def add_link(self, number: int, spec: AfterFailure) -> None:
        known = list(self.model.entries)
        self.store(self.scene.task(depends_on=(known[number % len(known)],), after_failure=spec))

    @rule(
        name=st.sampled_from(["send", "send", "build"]),
        queue=queues,
        priority=st.sampled_from([0, 5, 5]),
        delay_s=st.sampled_from([0, 0, 3]),
        max_attempts=st.integers(min_value=1, max_value=3),
        key=st.sampled_from([None, None, "k"]),
        limit_key=limit_keys,
        copies=st.integers(min_value=1, max_value=4),
        waits_for=st.just([]) | st.lists(pick, max_size=2),
        spec=st.sampled_from(AfterFailure),
        needs=needs,
    )
    def add(
        self,
        name: str,
        queue: str,
        priority: int,
        delay_s: int,
        max_attempts: int,
        key: str | None,
        limit_key: str | None,
        waits_for: list[int],
        spec: AfterFailure,
        copies: int,
        needs: tuple[str, ...],
    ) -> None:
        known = list(self.model.entries)
        tasks = [
            self.scene.task(
                name,
                queue=queue,
                priority=priority,
                run_after=self.clock.now() + delay_s * 1000,
                max_attempts=max_attempts,
                idempotency_key=key,
                concurrency_key=limit_key,
                depends_on=tuple(known[number % len(known)] for number in waits_for if known),
                after_failure=spec,
                needs=needs,
            )
            for _ in range(copies)
        ]
        self.store(*tasks)

    def store(self, *tasks: Task) -> None:
        stored = self.do(self.scene.add_all(*tasks))
        assert [task.id for task in stored] == [self.model.add(task) for task in tasks]

    @rule(number=pick)
    def cancel(self, number: int) -> None:
        unfinished = self.model.with_status(*(frozenset(Status) - FINAL))
        if unfinished:
            task = self.model.shown(unfinished[number % len(unfinished)])
            self.commit(cancel(task, "enough", now=self.clock.now()))
            self.lose(task)

    @precondition(lambda self: self.model.with_status(Status.PENDING))
    @rule(number=pick, priority=st.sampled_from([None, 0, 5, 9]), delay_s=st.sampled_from([None, 0, 2, 3]))
    def reschedule(self, number: int, priority: int | None, delay_s: int | None) -> None:
        pending, now = self.model.with_status(Status.PENDING), self.clock.now()
        start = None if delay_s is None else now + delay_s * 1000
        change = reschedule(
            self.model.shown(pending[number % len(pending)]), now=now, priority=priority, run_after=start
        )
        if change is not None:
            self.commit(change)

    @precondition(lambda self: self.model.with_status(Status.FAILED))
    @rule(number=pick, again=st.booleans())
    def settle_dead_letter(self, number: int, again: bool) -> None:
        failed = self.model.with_status(Status.FAILED)
        task, now = self.model.shown(failed[number % len(failed)]), self.clock.now()
        self.commit(replay(task, now=now) if again else discard(task, "known", now=now))

    @rule(name=st.sampled_from(["send", "build"]), concurrency=maybe_limit, per_key=maybe_limit)
    def define(self, name: str, concurrency: int | None, per_key: int | None) -> None:
        self.do(self.scene.define(name, concurrency=concurrency, concurrency_per_key=per_key))
        self.model.definitions[name] = Definition(name=name, concurrency=concurrency, concurrency_per_key=per_key)

    @rule(queue=queues, paused=st.sampled_from([True, False, False]))
    def pause(self, queue: str, paused: bool) -> None:
        self.do(self.scene.stores.queues.configure(Queue(name=queue, paused=paused)))
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    @rule()
    def prune(self) -> None:
        final = self.model.with_status(*FINAL)
        gone = self.model.prune()
        assert self.do(self.scene.stores.sweeps.prune(final)) == len(gone)

    # workers

    @rule(count=st.integers(min_value=1, max_value=4), queues=st.sampled_from([(), ("a",), ("a", "b")]), can=abilities)
    def claim(self, count: int, queues: tuple[str, ...], can: frozenset[str]) -> None:
        expected = self.model.claimable(count, queues, self.clock.now(), can)
        claimed = self.do(self.scene.claim(count, queues=queues, can=can))
        if [task.id for task in claimed] != expected:
            assert self.backend_name == "cluster"
            self.check_order_of_queues(claimed, expected, queues, can)
        for task in claimed:
            self.model.take(task)

    def check_order_of_queues(
        self, claimed: Sequence[Task], expected: Sequence[str], queues: tuple[str, ...], can: frozenset[str]
    ) -> None:
        """On a cluster tasks that wait for others are given an age a little ahead, so that the order of their call
        holds in all partitions: what comes to another queue right after them may go first. Each queue keeps its order.
        """
        assert any(entry.task.depends_on for entry in self.model.entries.values())
        assert len(claimed) == len(expected)
        in_order = self.model.claimable(len(self.model.entries), queues, self.clock.now(), can)
        if self.model.definitions:  # with limits, who goes first also decides who goes at all
            return
        for queue in {task.queue for task in claimed}:
            mine = [task.id for task in claimed if task.queue == queue]
            theirs = [each for each in in_order if self.model.entries[each].task.queue == queue]
            assert mine == theirs[: len(mine)]

    @rule(count=st.integers(min_value=1, max_value=4), ends=st.lists(ends, min_size=4, max_size=4), can=abilities)
    def work(self, count: int, ends: list[str], can: frozenset[str]) -> None:
        self.claim(count, (), can)
        for number, end in enumerate(ends):
            if self.model.with_status(Status.RUNNING):
                self.finish(number, end)

    @precondition(lambda self: self.model.with_status(Status.RUNNING))
    @rule(number=pick, end=ends)
    def finish(self, number: int, end: str) -> None:
        running = self.model.with_status(Status.RUNNING)
        task = self.model.shown(running[number % len(running)])
        kinds = {
            "fail": FailureKind.RAISED,
            "fail for good": FailureKind.UNRECOVERABLE,
            "throttle": FailureKind.RATE_LIMITED,
        }
        if end == "succeed":
            self.commit(self.scene.success(task, "1"))
        elif end == "release":
            self.commit(settle(task, Released("shutdown"), now=self.clock.now(), randomness=MIDDLE))
        else:
            self.commit(self.scene.failure(task, kinds[end]))

    @precondition(lambda self: self.lost)
    @rule(number=pick)
    def finish_late(self, number: int) -> None:
        """A run whose lease expired can end until another one claims its task."""
        late = self.lost[number % len(self.lost)]
        change = self.scene.success(late, "2")
        [answer] = self.do(self.scene.stores.tasks.commit_each([change]))
        if late.id not in self.model.entries:  # pruned
            assert isinstance(answer, StaleLease)
            return
        known = self.model.shown(late.id)
        if known.run_id == late.run_id and known.status is Status.STALLED:
            assert answer is None
            after = structs.replace(change.after, version=known.version + 1)
            self.model.apply(structs.replace(change, after=after))
        elif known.run_id != late.run_id or known.status is not Status.COMPLETED:  # else it repeats its own write
            assert isinstance(answer, StaleLease)

    @rule()
    def renew(self) -> None:
        running = [self.model.shown(task_id) for task_id in self.model.with_status(Status.RUNNING)]
        assert self.scene.renew(*running) == {}
        for task in running:
            self.model.entries[task.id].task = self.do(self.scene.get(task.id))

    # time

    @rule(seconds=st.sampled_from([0.5, 1, 3, 20, 31]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        now = self.clock.now()
        due = self.do(self.scene.stores.sweeps.due(1000))
        running = [self.model.shown(task_id) for task_id in self.model.with_status(Status.RUNNING)]
        silent = {task.id for task in running if (task.lease_until or 0) < self.clock.steady()}
        assert {task.id for task in due.expired} == silent
        assert {task.id: set(failed) for task, failed in due.broken} == self.model.broken()
        for task in due.expired:
            self.lose(task)
        self.commit(*(lose_lease(task, now=now) for task in due.expired))
        self.commit(*(break_chain(task, failed_ids=failed, now=now) for task, failed in due.broken))

    def commit(self, *changes: Change) -> None:
        answers = self.do(self.scene.stores.tasks.commit_each(changes))
        assert answers == [None] * len(changes)
        for change in changes:
            self.model.apply(change)

    def lose(self, task: Task) -> None:
        if task.status is Status.RUNNING:
            self.lost.append(task)

    # what must hold

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        ids = list(self.model.entries)
        stored = self.do(self.scene.stores.tasks.get(ids))
        assert stored == [self.model.shown(task_id) for task_id in ids]

    @invariant()
    def the_counters_are_right(self) -> None:
        tallies = self.do(self.scene.stores.queues.tallies())
        assert {(tally.queue, tally.name, tally.status): tally.count for tally in tallies} == self.model.tallies()

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.do(self.scene.stores.maintenance.check_invariants()) == []

    @invariant()
    def the_next_due_time_is_known(self) -> None:
        delayed = [
            entry.task.run_after
            for entry in self.model.entries.values()
            if entry.task.status in CLAIMABLE and not entry.waits and entry.task.run_after > self.clock.now()
        ]
        due = self.do(self.scene.stores.sweeps.next_due())
        assert due is None or due <= min(delayed, default=due)
        assert due is not None or not delayed


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "examples"), [("memory", 100), ("sqlite", 6), ("valkey", 25), ("cluster", 15)])
def test_random_histories(backend: str, examples: int) -> None:
    assert play(TaskHistories, backend, in_depth=examples, steps=40) > 0
