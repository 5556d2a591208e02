"""How approvals go, told from the records and the log."""

from typing import Any

import pytest

from ade import Task
from ade.approvals import repository as approvals_repository
from ade.approvals.service import sweep_reviews
from ade.approvals.stats import ApprovalOutcome, approval_stats
from ade.tasks.service import cancel, edit
from tests.approvals.test_views import answer, asked
from tests.domain import Stores, User, UserChanges, add_user, change_user, read_rulebook
from tests.tasks.queue_driver import QueueDriver

HOUR = 3_600
BOOK = {
    "criticality": {"db:main": 100},
    "risk": {"unknown_resources": "low"},  # these stories are about people: a task that names nothing is harmless here
    "policy": [
        {"id": "pairs", "rules": [{"needed": 2, "roles": ["reviewer"]}]},
        {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}], "expires_after": "7d"},
    ],
}


@pytest.fixture(autouse=True)
async def people(stores: Stores) -> None:
    await add_user(stores, User(id="ada", roles=frozenset({"admin"})))
    for name in ("rita", "rob"):
        await add_user(stores, User(id=name, roles=frozenset({"reviewer"})))
    await approvals_repository.apply(stores, read_rulebook(BOOK), actor="ada")


async def ended_after(queue: QueueDriver, seconds: float, decision: str = "approve", **more: Any) -> Task:
    task = await asked(queue, "one")
    queue.clock.advance(seconds)
    return await answer(queue.stores, task, "rita", decision, **more)


async def test_nothing_was_asked_yet(stores: Stores) -> None:
    told = await approval_stats(stores)

    assert (told.waiting.count, told.waiting.oldest_ms, told.policies) == (0, None, [])
    assert (told.ended.median_ms, sum(told.ended.outcomes.values())) == (None, 0)


async def test_what_waits_is_told_by_risk_and_age(queue: QueueDriver, stores: Stores) -> None:
    await asked(queue, "one")
    queue.clock.advance(25 * HOUR)
    await asked(queue, "one", resources=("db:main",))
    queue.clock.advance(2 * HOUR)
    await asked(queue, "pairs", deadline=queue.clock.now() + 60_000)
    await asked(queue, "pairs")

    told = (await approval_stats(stores)).waiting

    assert (told.count, told.under_hour, told.under_day, told.over_day) == (4, 2, 1, 1)
    assert (told.oldest_ms, told.due_soon, told.blocked) == (27 * HOUR * 1000, 1, 0)
    assert sum(told.by_level.values()) == 4
    await change_user(stores, "rob", UserChanges(is_active=False))
    assert (await approval_stats(stores)).waiting.blocked == 2


async def test_how_they_ended_and_how_long_it_took(queue: QueueDriver, stores: Stores) -> None:
    for seconds in (10, 20, 30):
        await ended_after(queue, seconds)
    await ended_after(queue, 100, "reject", reason="no")
    sent_back = await ended_after(queue, 40, "request_changes", reason="more words")
    queue.clock.advance(1_000)
    await edit(stores, queue.payloads, sent_back.id, actor="ada", description="more words")
    cancelled = await asked(queue, "pairs")
    await cancel(stores, cancelled.id, "not needed")
    await asked(queue, "pairs")

    told = await approval_stats(stores)

    some = {outcome: count for outcome, count in told.ended.outcomes.items() if count}
    assert some == {
        ApprovalOutcome.APPROVED: 3,
        ApprovalOutcome.REJECTED: 1,
        ApprovalOutcome.CHANGES_REQUESTED: 1,
        ApprovalOutcome.WITHDRAWN: 1,
    }
    assert (told.ended.median_ms, told.ended.p95_ms) == (30_000, 100_000)
    one, pairs = told.policies
    assert (one.policy, one.waiting, one.ended.median_ms) == ("one", 0, 30_000)
    assert (pairs.policy, pairs.waiting, pairs.ended.median_ms) == ("pairs", 1, None)


async def test_what_nobody_answered_has_expired(queue: QueueDriver, stores: Stores) -> None:
    await asked(queue, "pairs")
    queue.clock.advance(8 * 24 * HOUR)
    await sweep_reviews(stores, queue.payloads)

    told = await approval_stats(stores)

    assert (told.ended.outcomes[ApprovalOutcome.EXPIRED], told.ended.median_ms, told.waiting.count) == (1, None, 0)


async def test_only_the_window_counts(queue: QueueDriver, stores: Stores) -> None:
    await ended_after(queue, 10)
    queue.clock.advance(2 * HOUR)
    await ended_after(queue, 30)

    told = await approval_stats(stores, window_ms=HOUR * 1000)

    assert (told.ended.outcomes[ApprovalOutcome.APPROVED], told.ended.median_ms) == (1, 30_000)
    assert told.since == queue.clock.now() - HOUR * 1000
    assert (await approval_stats(stores)).ended.outcomes[ApprovalOutcome.APPROVED] == 2
