"""Workers behind HTTP: they claim, keep, end and lose runs, and everything is decided for them."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec import structs

from ade import Status, Task
from ade.accounts.model import SYSTEM, Role, User
from ade.agents.registry import register as register_agent
from ade.approvals import repository as approvals_repository
from ade.approvals.guard import GuardOccasion, GuardRule, GuardRulesVerdict
from ade.errors import (
    InvalidTask,
    NotPermitted,
    PayloadTooLarge,
    StaleLease,
    StoreUnavailable,
    UnknownTask,
    UnknownWorker,
)
from ade.failures import FailureKind
from ade.locks.model import DEFAULT_NAMESPACE, LockLimits, LockRule, write
from ade.locks.requests import request_id, validate_request
from ade.server.request_types import Nothing
from ade.tasks.api import create, lifecycle, tasks
from ade.tasks.api.requests import Cancel, ListLines
from ade.tasks.identifiers import DELIVER, NOTIFY
from ade.tasks.service import last_run, requeue_granted
from ade.worker.api import runs as api_runs
from ade.worker.api import workers
from ade.worker.api.requests import (
    AppendOutput,
    Claim,
    Claimed,
    CompletedRun,
    CompleteRun,
    CompleteRuns,
    FailRun,
    GoneRun,
    HoldRun,
    OutputText,
    Progress,
    RegisterWorker,
    ReleaseRun,
    RenewRuns,
    RunError,
    RunGrant,
)
from tests.domain import (
    Definition,
    LockQuery,
    NewDefinition,
    NewTask,
    RequestContext,
    Rulebook,
    admit,
    fresh_id,
    from_wire,
    settle_due,
    to_wire,
)
from tests.server.operations import LOCAL, Operations
from tests.tasks.finished_tasks import approved

RAISED = RunError(type="ValueError", message="no luck")


class Hand:
    """A worker of an account."""

    def __init__(self, ops: Operations, user: User, name: str = "one") -> None:
        self.ops = ops
        self.user = user
        self.name = name

    def request(self, operation: str) -> RequestContext:
        return self.ops.request(self.user, operation)

    async def register(self, **more: Any) -> "Hand":
        form = RegisterWorker(definitions=[NewDefinition(name="greet")], **more)
        await workers.register_worker(self.ops.services, self.request("register_worker"), self.name, form)
        return self

    async def claim(self, **more: Any) -> list[RunGrant]:
        claim = Claim(worker=self.name, **more)
        return (await api_runs.claim_tasks(self.ops.services, self.request("claim_tasks"), claim)).runs

    async def complete(self, run: RunGrant, result: object = None) -> Status:
        body = CompleteRun(task_id=run.task.id, result=result)
        answer = await api_runs.complete_run(self.ops.services, self.request("complete_run"), run.run_id, body)
        return answer.status

    async def fail(self, run: RunGrant, error: RunError = RAISED, **more: Any) -> Status:
        body = FailRun(task_id=run.task.id, error=error, **more)
        return (await api_runs.fail_run(self.ops.services, self.request("fail_run"), run.run_id, body)).status

    async def renew(self, *runs: RunGrant, **more: Any) -> Any:
        body = RenewRuns(worker=self.name, runs={run.run_id: run.task.id for run in runs}, **more)
        return await api_runs.renew_runs(self.ops.services, self.request("renew_runs"), body)

    async def hold(self, run: RunGrant, step: str) -> Any:
        body = HoldRun(task_id=run.task.id, step=step, about={"of": "two"})
        return await api_runs.hold_run(self.ops.services, self.request("hold_run"), run.run_id, body)


async def hand(ops: Operations, account: str = "hand", **more: Any) -> Hand:
    return await Hand(ops, await ops.account(account, Role.WORKER)).register(**more)


async def new(ops: Operations, **options: Any) -> Task:
    return await create.create_task(ops.services, LOCAL, NewTask(name="greet", **options))


async def written(ops: Operations, **options: Any) -> tuple[Task, User]:
    """A task whose author has an account, as people can approve no other."""
    ann = await ops.account("ann")
    new_task = NewTask(name="greet", **options)
    return await create.create_task(ops.services, ops.request(ann, "create_task"), new_task), ann


async def now_there(ops: Operations, task_id: str) -> Task:
    [task] = await ops.services.stores.tasks.get([task_id])
    assert task is not None
    return task


async def test_a_task_is_claimed_worked_on_and_completed(ops: Operations) -> None:
    made, ada = await new(ops, args={"name": "x" * 300_000}, timeout=30), await hand(ops)
    [run] = await ada.claim()
    assert (run.task.id, run.task.worker_id, run.timeout_ms) == (made.id, "http:hand:one", 30_000)
    assert run.task.arguments() == {"name": "x" * 300_000}  # whole, wherever it is kept

    told = Progress(task_id=made.id, progress={"done": 1})
    await api_runs.report_progress(ops.services, ada.request("report_progress"), run.run_id, told)
    said = AppendOutput(task_id=made.id, lines=[OutputText(text="hello"), OutputText(text="oh", stream="stderr")])
    await api_runs.append_output(ops.services, ada.request("append_output"), run.run_id, said)
    assert await ada.complete(run, {"said": "y" * 300_000}) is Status.COMPLETED

    result = await tasks.get_task_result(ops.services, LOCAL, made.id)
    assert bytes(result.result or b"") == b'{"said":"' + b"y" * 300_000 + b'"}'
    lines = await tasks.get_task_output(ops.services, LOCAL, made.id, ListLines())
    assert [(line.text, line.stream, line.run_id) for line in lines.items] == [
        ("hello", "log", run.run_id),
        ("oh", "stderr", run.run_id),
    ]
    assert bytes((await now_there(ops, made.id)).progress or b"") == b'{"done":1}'


async def test_of_two_who_race_for_a_task_one_has_it(ops: Operations) -> None:
    hands = [await hand(ops, f"hand-{number}") for number in range(4)]
    ids = {(await new(ops)).id for _ in range(20)}

    async def work_off(each: Hand) -> list[str]:
        done = []
        while runs := await each.claim(count=3):
            for run in runs:
                await each.complete(run)
                done.append(run.task.id)
        return done

    done = Counter(task_id for part in await asyncio.gather(*map(work_off, hands)) for task_id in part)
    assert done == Counter(ids)


async def test_a_run_whose_lease_expired_ends_as_long_as_no_other_worker_has_its_task(ops: Operations) -> None:
    ada, other = await hand(ops), await hand(ops, "other")
    first, second, third, fourth = [await new(ops) for _ in range(4)]
    runs = {run.task.id: run for run in await ada.claim(lease_s=10, count=4)}
    ops.clock.advance(11)
    await settle_due(ops.services.stores)
    assert (await now_there(ops, first.id)).status is Status.STALLED

    with pytest.raises(StaleLease):
        await other.complete(runs[first.id])
    assert await ada.complete(runs[first.id], "done") is Status.COMPLETED
    assert await ada.complete(runs[first.id], "done") is Status.COMPLETED  # repeated
    assert await ada.fail(runs[second.id]) is Status.PENDING
    body = ReleaseRun(task_id=third.id, reason="the server did not respond")
    await api_runs.release_run(ops.services, ada.request("release_run"), runs[third.id].run_id, body)
    together = CompleteRuns(runs=[CompletedRun(run_id=runs[fourth.id].run_id, task_id=fourth.id, result="done")])
    reports = await api_runs.complete_runs(ops.services, ada.request("complete_runs"), together)

    assert [report.status for report in reports.items] == [Status.COMPLETED]
    assert bytes((await now_there(ops, first.id)).result or b"") == b'"done"'
    assert (await now_there(ops, third.id)).attempt == 0  # returned without an attempt
    assert await ops.services.stores.maintenance.check_invariants() == []


async def test_whoever_lost_a_run_ends_it_for_nobody(ops: Operations) -> None:
    made, slow, quick = await new(ops), await hand(ops, "slow"), await hand(ops, "quick")
    [run] = await slow.claim(lease_s=10)
    ops.clock.advance(11)
    await settle_due(ops.services.stores)

    [again] = await quick.claim()
    assert (again.task.id, again.task.attempt) == (made.id, 2)
    for late in (slow.complete(run, "late"), slow.fail(run), quick.complete(run), slow.complete(again)):
        with pytest.raises(StaleLease):
            await late
    assert (await slow.renew(run)).gone == [GoneRun(run_id=run.run_id, task_id=made.id, status=Status.RUNNING)]
    assert await quick.complete(again, "in time") is Status.COMPLETED
    assert bytes((await now_there(ops, made.id)).result or b"") == b'"in time"'


async def test_a_heartbeat_keeps_a_run_and_tells_of_those_that_are_over(ops: Operations) -> None:
    ada = await hand(ops)
    kept, stopped = [await new(ops) for _ in range(2)]
    mine, theirs = await ada.claim(count=2, lease_s=10)
    for _ in range(3):
        ops.clock.advance(8)
        await settle_due(ops.services.stores)
        assert (await ada.renew(mine, theirs, lease_s=10)).gone == []
    await lifecycle.cancel_task(ops.services, LOCAL, stopped.id, Cancel())
    beat = await ada.renew(mine, theirs)
    assert beat.gone == [GoneRun(run_id=theirs.run_id, task_id=stopped.id, status=Status.CANCELLED)]
    with pytest.raises(StaleLease):
        await ada.complete(theirs)
    assert await ada.complete(mine) is Status.COMPLETED
    beat = await api_runs.renew_runs(
        ops.services, ada.request("renew_runs"), RenewRuns(worker="one", runs={"r": "no id", "s": kept.id})
    )
    assert {gone.run_id: gone.status for gone in beat.gone} == {"r": None, "s": Status.COMPLETED}


async def test_what_is_said_twice_happens_once(ops: Operations) -> None:
    ada = await hand(ops)
    one, two, three = [await new(ops) for _ in range(3)]
    first, second, third = await ada.claim(count=3)
    assert [await ada.complete(first, 1), await ada.complete(first, 1)] == [Status.COMPLETED] * 2
    with pytest.raises(StaleLease):
        await ada.complete(first, 2)
    assert [await ada.fail(second), await ada.fail(second)] == [Status.PENDING] * 2
    for _ in range(2):
        body = ReleaseRun(task_id=three.id)
        answer = await api_runs.release_run(ops.services, ada.request("release_run"), third.run_id, body)
        assert answer.status is Status.PENDING
    attempts = [(await now_there(ops, task.id)).attempt for task in (one, two, three)]
    assert attempts == [1, 1, 0]  # what is handed back does not count


async def test_a_claim_whose_answer_was_lost_is_repeated(ops: Operations) -> None:
    ada, bob = await hand(ops), await hand(ops, "bob")
    for _ in range(3):
        await new(ops)
    lost = await ada.claim(count=2, request_id="request-1")
    again = await ada.claim(count=2, request_id="request-1")
    assert [run.run_id for run in again] == [run.run_id for run in lost]
    [other] = await bob.claim(count=2, request_id="request-1")  # the same words of somebody else
    assert other.task.id not in {run.task.id for run in lost}


async def test_failures_are_tried_again_as_the_rules_say(ops: Operations) -> None:
    made, ada = await new(ops, max_attempts=2), await hand(ops)
    [run] = await ada.claim()
    assert await ada.fail(run, retry_after_s=100) is Status.PENDING
    assert await ada.claim() == []
    ops.clock.advance(100)
    [run] = await ada.claim()
    assert run.task.attempt == 2
    assert await ada.fail(run) is Status.FAILED
    final = await new(ops)
    [run] = await ada.claim()
    assert await ada.fail(run, RunError(type="X", message="never", kind="unrecoverable")) is Status.FAILED
    assert (await now_there(ops, made.id)).error is not None
    error = (await now_there(ops, final.id)).error
    assert error is not None
    assert error.kind is FailureKind.UNRECOVERABLE


async def test_dependents_go_on_when_a_run_is_complete(ops: Operations) -> None:
    first, ada = await new(ops), await hand(ops)
    second = await new(ops, after=[first.id])
    [run] = await ada.claim(count=5)
    await ada.complete(run)
    assert [run.task.id for run in await ada.claim(count=5)] == [second.id]


async def test_claims_wait_for_work_and_each_task_wakes_one(ops: Operations) -> None:
    hands = [await hand(ops, f"hand-{number}") for number in range(5)]
    waiting = {asyncio.create_task(each.claim(wait=20.0)) for each in hands}
    async with asyncio.timeout(60):
        while waiting:
            made = await new(ops)
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [run.task.id for claim in done for run in claim.result()] == [made.id]


async def test_nobody_touches_the_runs_of_others(ops: Operations) -> None:
    made, ada, eve = await new(ops), await hand(ops), await hand(ops, "eve")
    [run] = await ada.claim()
    before = await now_there(ops, made.id)
    held = ReleaseRun(task_id=made.id)
    for attempt in (
        eve.complete(run, "stolen"),
        eve.fail(run),
        eve.hold(run, "a step"),
        api_runs.release_run(ops.services, eve.request("release_run"), run.run_id, held),
        api_runs.report_progress(
            ops.services, eve.request("report_progress"), run.run_id, Progress(task_id=made.id, progress=1)
        ),
        api_runs.append_output(
            ops.services,
            eve.request("append_output"),
            run.run_id,
            AppendOutput(task_id=made.id, lines=[OutputText(text="x")]),
        ),
    ):
        with pytest.raises(StaleLease):
            await attempt
    assert [gone.run_id for gone in (await eve.renew(run)).gone] == [run.run_id]
    assert await now_there(ops, made.id) == before
    for name in ("http:hand:one", "two", "no name"):
        eve.name = name
        with pytest.raises(UnknownWorker):
            await eve.claim()
    agent = await ops.account("agent-a", Role.AGENT)
    with pytest.raises(NotPermitted):
        ops.request(agent, "claim_tasks")


async def test_nobody_keeps_the_locks_of_others_under_a_run_of_his_own(ops: Operations) -> None:
    ada, eve = await hand(ops), await hand(ops, "eve")
    await new(ops, locks=["db:main"])
    [run] = await ada.claim()
    await new(ops)
    [own] = await eve.claim()
    ops.clock.advance(40)
    mixed = RenewRuns(worker="one", runs={own.run_id: run.task.id})
    await api_runs.renew_runs(ops.services, eve.request("renew_runs"), mixed)
    ops.clock.advance(30)  # nothing was heard of ada for longer than her lease
    [held] = await ops.services.stores.locks.look(DEFAULT_NAMESPACE, [request_id(run.task)])
    assert held is None or held.lease_until <= ops.clock.steady()


async def test_bad_words_change_nothing(ops: Operations) -> None:
    made, ada = await new(ops), await hand(ops)
    [run] = await ada.claim()
    before = await now_there(ops, made.id)
    with pytest.raises(PayloadTooLarge):
        await ada.fail(run, RunError(type="X", message="x", details={"trace": "x" * 20_000}))
    told = Progress(task_id=made.id, progress="x" * 300_000)
    with pytest.raises(PayloadTooLarge):
        await api_runs.report_progress(ops.services, ada.request("report_progress"), run.run_id, told)
    with pytest.raises(UnknownTask):
        await ada.complete(structs.replace(run, task=structs.replace(run.task, id="no id")))
    with pytest.raises(InvalidTask):
        await ada.hold(run, "tool x")
    with pytest.raises(InvalidTask):
        await ada.claim(names=[])
    assert await now_there(ops, made.id) == before


async def governed(ops: Operations, **options: Any) -> Task:
    """Approved, and in its queue."""
    made, ann = await written(ops, draft=True, **options)
    submitted = await lifecycle.submit_task(ops.services, ops.request(ann, "submit_task"), made.id, Nothing())
    return await approved(ops, submitted)


async def test_an_approval_that_grew_old_lets_nothing_run(ops: Operations) -> None:
    made, ada = await governed(ops), await hand(ops)
    ops.clock.advance(25 * 3600)
    behind = await new(ops)
    assert [run.task.id for run in await ada.claim()] == [behind.id]
    held = await now_there(ops, made.id)
    assert (held.status, held.attempt, held.worker_id) == (Status.REVIEWING, 0, None)


async def test_an_approval_that_is_good_lets_it_run(ops: Operations) -> None:
    made, ada = await governed(ops), await hand(ops)
    [run] = await ada.claim()
    assert (run.task.id, await ada.complete(run)) == (made.id, Status.COMPLETED)


async def test_the_guard_is_asked_before_a_run(ops: Operations) -> None:
    made, ada = await new(ops), await hand(ops)
    rule = GuardRule(do=GuardRulesVerdict.DENY, at=frozenset({GuardOccasion.RUN}), reason="not today")
    await approvals_repository.apply(ops.services.stores, Rulebook(guard=(rule,)), actor="root")
    assert await ada.claim() == []
    denied = await now_there(ops, made.id)
    assert denied.status is Status.FAILED
    assert denied.error is not None
    assert denied.error.kind is FailureKind.DENIED


async def test_a_run_waits_for_people_and_begins_anew(ops: Operations) -> None:
    (made, _), ada = await written(ops), await hand(ops)
    [run] = await ada.claim()
    answer = await ada.hold(run, "the second part")
    assert (answer.may_go_on, answer.status) == (False, Status.REVIEWING)
    with pytest.raises(StaleLease):
        await ada.complete(run)
    await approved(ops, await now_there(ops, made.id))
    [run] = await ada.claim()
    assert run.task.attempt == 1
    assert (await ada.hold(run, "the second part")).may_go_on
    assert await ada.complete(run) is Status.COMPLETED


async def test_steps_of_ades_own_are_given_to_nobody(ops: Operations) -> None:
    hand = await Hand(ops, await ops.account("bob", Role.WORKER)).register()
    made = [
        admit(Task(id=fresh_id(ops.clock.now()), name=name, source=SYSTEM), now=ops.clock.now())
        for name in ("greet:preview", "greet:rollback", NOTIFY, DELIVER)
    ]
    await ops.services.stores.tasks.add(made)
    steps = [task.name for task in made]
    for named in (steps, *([step] for step in steps)):
        with pytest.raises(InvalidTask, match="internal task"):
            await hand.claim(names=named)
    assert await hand.claim(names=[*steps, "greet"], count=10) == []
    task = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    assert [run.task.id for run in await hand.claim(names=[*steps, "greet"], count=10)] == [task.id]
    kept = await ops.services.stores.tasks.get([each.id for each in made])
    assert [each and each.status for each in kept] == [Status.PENDING] * 4


async def test_names_that_are_previewed_are_for_others(ops: Operations) -> None:
    ada = await hand(ops)
    [worker] = [each for each in await ops.services.stores.workers.list_workers() if each.id == "w"]
    await ops.services.stores.workers.register(worker, [Definition(name="greet", has_preview=True)], 60_000)
    await new(ops, draft=True)
    with pytest.raises(InvalidTask, match="preview"):
        await ada.claim()


async def test_a_task_comes_with_its_locks_or_not_at_all(ops: Operations) -> None:
    locks, ada = ops.services.stores.locks, await hand(ops)
    first, second = [await new(ops, locks=["db:main"]) for _ in range(2)]
    other = await new(ops)

    runs = await ada.claim(count=3)
    assert [run.task.id for run in runs] == [first.id, other.id]  # the second waits in line, without a worker
    [item] = runs[0].locks
    assert (item.resource, item.token > 0) == ("db:main", True)
    waiting = await now_there(ops, second.id)
    assert (waiting.status, waiting.attempt, waiting.worker_id) == (Status.PENDING, 0, None)

    for _ in range(3):
        ops.clock.advance(40)
        assert (await ada.renew(*runs)).lock_lost == []
    await ada.complete(runs[0])
    assert await requeue_granted(ops.services.stores) == 1  # as every sweep does
    [later] = await ada.claim(count=3)
    assert later.task.id == second.id
    assert later.locks[0].token > item.token
    await ada.fail(later)
    assert (await locks.look(DEFAULT_NAMESPACE, [request_id(later.task)])) == [None]


async def test_a_result_is_not_taken_without_the_lock_it_was_made_under(ops: Operations) -> None:
    locks, ada = ops.services.stores.locks, await hand(ops)
    made = await new(ops, locks=["db:main"])
    [run] = await ada.claim()
    await locks.take_away(DEFAULT_NAMESPACE, request_id(run.task), reason="stuck", by="root")
    thief = validate_request(id="thief", owner="eve", scope="eve", wanted=[write("db:main")], ttl_ms=60_000)
    assert await locks.acquire(thief, wait_ms=0, limits=LockLimits()) is not None

    assert (await ada.renew(run)).lock_lost == [run.run_id]
    assert await ada.complete(run, "unsafe") is Status.PENDING
    again = await now_there(ops, made.id)
    assert again.error is not None
    assert (again.error.type, again.result) == ("LockLost", None)


async def test_a_run_that_takes_too_long_is_kept_no_more(ops: Operations) -> None:
    await new(ops, timeout=30)
    ada = await hand(ops)
    [run] = await ada.claim()
    ops.clock.advance(35)
    assert (await ada.renew(run)).late == []
    ops.clock.advance(6)
    assert (await ada.renew(run)).late == [run.run_id]
    assert await ada.fail(run, RunError(type="TimeoutError", message="slow", kind="timed_out")) is Status.PENDING


async def test_the_runs_of_an_agent_use_its_capacity(ops: Operations) -> None:
    await register_agent(ops.services.stores, "hand", 2, actor="root")
    ada = await hand(ops, agent="hand")
    for _ in range(3):
        await new(ops)
    runs = await ada.claim(count=5)
    assert len(runs) == 2
    assert await ada.claim() == []
    await ada.renew(*runs)
    await ada.complete(runs[0])
    assert len(await ada.claim(count=5)) == 1


@pytest.mark.parametrize("looks", [0, 1, 2, 3])
async def test_whoever_hangs_up_while_a_task_is_given_to_him_costs_it_nothing(ops: Operations, looks: int) -> None:
    made, ada = await governed(ops, locks=["db:main"]), await hand(ops)
    claim = asyncio.create_task(ada.claim())
    while not claim.done() and (await now_there(ops, made.id)).status is not Status.RUNNING:
        pass
    for _ in range(looks):  # each takes about as long as a step of the last look
        await now_there(ops, made.id)
    claim.cancel()
    [answer] = await asyncio.gather(claim, return_exceptions=True)
    after = await now_there(ops, made.id)
    if isinstance(answer, asyncio.CancelledError):
        assert (after.status, after.attempt, after.worker_id) == (Status.PENDING, 0, None)
        assert await last_run(ops.services.stores, after) is None  # so that no rollback undoes what never ran
        assert await ops.services.stores.locks.find(LockQuery()) == []
        assert [run.task.id for run in await ada.claim()] == [made.id]
    else:
        assert after.status is Status.RUNNING


async def test_a_task_whose_arguments_are_damaged_fails_and_one_behind_it_runs(ops: Operations) -> None:
    damaged, ada = await new(ops, args={"name": "x" * 300_000}, max_attempts=1), await hand(ops)
    behind = await new(ops)
    await ops.services.stores.blobs.remove_blobs([damaged.id])

    assert [run.task.id for run in await ada.claim()] == [behind.id]

    failed = await now_there(ops, damaged.id)
    assert failed.error is not None
    assert (failed.status, failed.error.type) == (Status.FAILED, "StoreCorrupt")


async def test_a_task_that_may_not_lock_its_resources_fails_and_counts_as_never_begun(ops: Operations) -> None:
    made, ada = await new(ops, locks=["db:main"]), await hand(ops)
    rules = Rulebook(locks=(LockRule(names=("db:*",), roles=frozenset({"admin"})),))
    await approvals_repository.apply(ops.services.stores, rules, actor="root")

    assert await ada.claim() == []

    failed = await now_there(ops, made.id)
    assert failed.error is not None
    assert (failed.status, failed.error.type) == (Status.FAILED, "LockNotPermitted")
    assert await last_run(ops.services.stores, failed) is None


async def test_a_task_whose_arguments_cannot_be_read_now_waits_a_moment_and_uses_no_attempt(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ada = await new(ops, args={"name": "x" * 300_000}, max_attempts=1), await hand(ops)

    async def fail(ref: str) -> bytes:
        raise StoreUnavailable("no route to the store")

    with monkeypatch.context() as trouble:
        trouble.setattr(ops.services.stores.blobs, "get_blob", fail)
        assert await ada.claim() == []
    waiting = await now_there(ops, made.id)
    assert (waiting.status, waiting.attempt, waiting.run_after - ops.clock.now()) == (Status.PENDING, 0, 1_000)
    ops.clock.advance(1)
    assert [run.task.id for run in await ada.claim()] == [made.id]


async def test_what_is_told_survives_the_way_over_the_wire(ops: Operations) -> None:
    await new(ops, args={"name": "Ada"}, locks=["db:main"], timeout=5)
    ada = await hand(ops)
    told = Claimed(runs=await ada.claim())
    sent = msgspec.json.encode(to_wire(told))
    heard = from_wire(msgspec.json.decode(sent, type=type(to_wire(told))), Claimed)
    hidden = structs.replace(told.runs[0].task, lease_until=None, args_digest=None)
    assert heard == Claimed(runs=[structs.replace(told.runs[0], task=hidden)])
