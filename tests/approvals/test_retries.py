"""A retry needs an approval that is still valid; a run that waited at a step is resumed under its own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ade import Context, Preview, RateLimited, Status, TaskHandle
from ade.approvals import service as approvals_service
from ade.worker.shared_memory import STARTED
from tests.approvals.scene import APPROVE, ONE, REJECT, Scene, scene
from tests.domain import Decision, GateState, Run, TaskQuery, WorkerState
from tests.stores.urls import store_url

HOUR = 3_600.0
SHORT = {**ONE, "names": ["deploy", "pay", "migrate"], "valid_for": "1h", "expires_after": "30d"}
GUARD = {"do": "demand", "name": "pay", "policy": "one", "reason": "money"}


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(store_url(request.param, tmp_path)) as made:
        _add_tasks(made)
        await made.people(ada="reviewer", bob="reviewer", root="admin")
        await made.rules(SHORT, guard=[GUARD])
        yield made
        assert await made.stores.maintenance.check_invariants() == []


def _add_tasks(shop: Scene) -> None:
    """Beside `deploy`, `pay` has no preview, and `migrate` changes what its preview saw and then waits at a step."""

    def end() -> None:
        if shop.failures:
            raise shop.failures.pop(0)

    @shop.app.task(name="pay", max_attempts=3)
    async def pay(what: str) -> None:
        shop.done.append(f"paid {what}")
        end()

    @pay.rollback
    async def refund(what: str) -> None:
        shop.done.append(f"refunded {what}")

    @shop.app.task(name="migrate", max_attempts=3)
    async def migrate(what: str, ctx: Context) -> None:
        shop.versions["site"] = "half"
        await ctx.hold("drop the old table")
        shop.done.append(f"migrated {what}")
        end()

    @migrate.preview
    async def plan(what: str) -> Preview:
        return Preview(changes=[what], versions=dict(shop.versions))


async def enqueued(shop: Scene, name: str, **options: Any) -> TaskHandle[Any]:
    """A task of ada that waits for people."""
    handle = await shop.app.enqueue(name, {"what": "x"}, author="ada", **options)
    await shop.kit.drain()
    return handle


async def states(task: TaskHandle[Any]) -> list[tuple[str, GateState]]:
    review = (await task.get()).review
    return [] if review is None else [(gate.step, gate.state) for gate in review.gates]


async def later(shop: Scene, hours: float) -> None:
    await shop.kit.advance(hours * HOUR)
    await shop.kit.drain()


async def decide(shop: Scene, task: TaskHandle[Any], decision: Decision = APPROVE) -> None:
    """Bob votes, and everything that can run now runs."""
    await shop.vote(task, "bob", decision)
    await shop.kit.drain()


async def resumed_after_two_days(shop: Scene) -> TaskHandle[Any]:
    """A migration that waited for two days at its step, was approved, and ran on."""
    task = await enqueued(shop, "migrate")
    await decide(shop, task)
    await later(shop, 48)
    await decide(shop, task)
    return task


@pytest.mark.parametrize("name", ["pay", "deploy"])
async def test_a_retry_under_an_approval_that_is_too_old_goes_back_to_review(shop: Scene, name: str) -> None:
    shop.fails, shop.failures = True, [RuntimeError("no luck")]
    task = await enqueued(shop, name, max_attempts=3, backoff="2h")
    await decide(shop, task)
    assert len(shop.done + shop.deployed) == 1
    shop.fails = False
    await later(shop, 3)

    assert len(shop.done + shop.deployed) == 1, "nobody agreed that it runs now"
    found = await task.get()
    assert (found.status, found.attempt) == (Status.REVIEWING, 1)
    assert await states(task) == [("", GateState.STALE), ("", GateState.OPEN)]
    [stale] = [event.payload["reason"] async for event in task.events() if event.type == "approval.stale"]
    assert stale == "the approval is too old"

    await decide(shop, task)
    assert (await task.get()).status is Status.COMPLETED
    assert len(shop.done + shop.deployed) == 2


@pytest.mark.parametrize("name", ["pay", "deploy"])
async def test_a_retry_in_time_asks_nobody(shop: Scene, name: str) -> None:
    shop.fails, shop.failures = True, [RuntimeError("no luck")]
    task = await enqueued(shop, name, max_attempts=3, backoff="1m")
    await decide(shop, task)
    shop.fails = False
    await shop.kit.finish()

    assert len(shop.done + shop.deployed) == 2
    assert await states(task) == [("", GateState.APPROVED)]
    assert (await task.get()).status is Status.COMPLETED


async def test_a_retry_is_compared_with_a_new_preview(shop: Scene) -> None:
    shop.fails = True
    task = await enqueued(shop, "deploy", max_attempts=2, backoff="1m")
    await decide(shop, task)
    shop.versions["site"] = "v2"  # whether by its first attempt or by others
    shop.fails = False
    await shop.kit.finish(timedelta(hours=1))

    assert shop.deployed == ["x"]
    assert (await task.get()).status is Status.REVIEWING
    await decide(shop, task)
    assert shop.deployed == ["x", "x"]


async def test_a_run_counts_as_started_before_it_is_previewed_again(
    shop: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview that kills its worker, or blocks it, must not run indefinitely without using an attempt."""
    journal, real = list[str](), WorkerState.reach

    def reach(state: WorkerState, run: Run, step: int) -> bool:
        journal.append("started" if step == STARTED else "prepared")
        return real(state, run, step)

    @shop.app.task(name="copy")
    async def copy(what: str) -> None:
        journal.append("copied")

    @copy.preview
    async def plan(what: str) -> Preview:
        journal.append("previewed")
        return Preview(changes=[what], versions={"site": "v1"})

    task = await enqueued(shop, "copy")
    await shop.vote(task, "bob")
    journal.clear()
    monkeypatch.setattr(WorkerState, "reach", reach)
    await shop.kit.drain()

    assert (await task.get()).status is Status.COMPLETED
    assert journal[:2] == ["started", "previewed"]
    assert journal[-1] == "copied"


async def test_a_run_that_waited_at_a_step_is_resumed_however_long_that_took(shop: Scene) -> None:
    task = await resumed_after_two_days(shop)

    assert (await task.get()).status is Status.COMPLETED
    assert await states(task) == [("", GateState.APPROVED), ("drop the old table", GateState.APPROVED)]


@pytest.mark.parametrize("failure", [RuntimeError("no luck"), RateLimited("wait", retry_after=1)])
async def test_a_retry_of_a_resumed_run_needs_a_valid_approval(shop: Scene, failure: Exception) -> None:
    shop.failures = [failure]
    task = await resumed_after_two_days(shop)
    await later(shop, 0.5)

    assert shop.done == ["migrated x"]
    assert (await task.get()).status is Status.REVIEWING
    assert [state for step, state in await states(task) if not step] == [GateState.STALE, GateState.OPEN]


async def test_the_approval_of_a_step_grows_old_for_a_retry_too(shop: Scene) -> None:
    long = {**SHORT, "valid_for": "7d"}
    step = {"id": "step", "rules": [{"needed": 1, "roles": ["reviewer"]}], "valid_for": "1h"}
    await shop.rules(long, step)

    @shop.app.task(name="wipe", max_attempts=2)
    async def wipe(ctx: Context) -> None:
        await ctx.hold("wipe the disk", policy="step")
        shop.done.append("wiped")
        raise RuntimeError("no luck")

    task = await shop.app.enqueue("wipe", author="ada", backoff="2h")
    await shop.kit.drain()
    await decide(shop, task)
    await later(shop, 3)

    assert shop.done == ["wiped"]
    assert (await task.get()).status is Status.REVIEWING


async def test_a_retry_after_the_window_does_not_run(shop: Scene) -> None:
    shop.failures = [RuntimeError("no luck")]
    now = datetime.fromtimestamp(shop.kit.clock.now() / 1000, UTC)
    task = await enqueued(shop, "pay", window=(now, now + timedelta(minutes=30)), backoff="40m")
    await decide(shop, task)
    await later(shop, 0.75)

    assert shop.done == ["paid x"]
    assert (await task.get()).status is Status.FAILED


async def test_what_failed_and_is_then_rejected_is_rolled_back(shop: Scene) -> None:
    shop.failures = [RuntimeError("no luck")]
    task = await enqueued(shop, "pay", backoff="2h", rollback="automatic")
    await decide(shop, task)
    await later(shop, 3)
    await decide(shop, task, REJECT)

    assert (await task.get()).status is Status.REJECTED
    assert shop.done == ["paid x", "refunded x"]


async def test_what_never_ran_is_not_rolled_back_when_it_is_rejected(shop: Scene) -> None:
    task = await enqueued(shop, "pay", rollback="automatic")
    await decide(shop, task, REJECT)

    assert (await shop.stores.tasks.find(TaskQuery(name="pay:rollback"))).tasks == []
    assert shop.done == []


async def test_an_approval_is_revoked_between_two_attempts(shop: Scene) -> None:
    task = await enqueued(shop, "pay")
    await shop.vote(task, "bob")
    shop.failures = [RateLimited("later", retry_after=60), RuntimeError("closed")]
    await shop.kit.drain()
    assert (await task.status(), shop.done) == (Status.PENDING, ["paid x"])

    after = await approvals_service.revoke(shop.stores, task.id, "a mistake", actor="bob")

    assert after.status is Status.REVIEWING
    await shop.kit.advance(HOUR / 2)
    await shop.kit.drain()
    assert shop.done == ["paid x"]


async def test_a_step_that_is_revoked_between_two_attempts_does_not_renew_the_approval(shop: Scene) -> None:
    """The next run is a retry, so the approval of the task must still be valid."""
    task = await enqueued(shop, "migrate")
    await decide(shop, task)
    shop.failures = [RateLimited("later", retry_after=60)]
    await decide(shop, task)
    assert (await task.status(), shop.done) == (Status.PENDING, ["migrated x"])
    await approvals_service.revoke(shop.stores, task.id, "a mistake", actor="bob")
    shop.kit.clock.advance(HOUR)
    await decide(shop, task)

    assert (await task.status(), shop.done) == (Status.REVIEWING, ["migrated x"])
    assert (await shop.gate(task)).step == ""
