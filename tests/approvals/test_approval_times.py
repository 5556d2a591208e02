"""How long approvals stay open, as the store says while all goes on."""

from typing import Any

import pytest

from ade import Status, Task
from ade.approvals.policy_check import PolicyCheckRequest, check
from ade.approvals.repository import apply
from ade.approvals.service import sweep_reviews
from ade.approvals.submission import submit
from ade.tasks.enqueue import enqueue_plan, fresh_id
from ade.testing import TestClock
from tests.domain import Gate, GateState, Payloads, Stores, User, add_user, admit, read_rulebook, set_value

HOUR = 3_600_000
RULE = {"rules": [{"needed": 1, "roles": ["reviewer"]}]}


@pytest.fixture
async def stores(stores: Stores) -> Stores:
    for name in ("ada", "bob"):
        await add_user(stores, User(id=name, roles=frozenset({"reviewer"})))
    policies: list[dict[str, Any]] = [
        {"id": "silent", "names": ["mail"], **RULE},
        {"id": "long", "names": ["deploy"], "expires_after": "30d", **RULE},
    ]
    await apply(stores, read_rulebook({"policy": policies}), actor="root")
    return stores


async def submitted(stores: Stores, name: str) -> Task:
    now = stores.clock.now()
    payloads = Payloads(stores.blobs)
    draft = admit(Task(id=fresh_id(now), name=name, status=Status.DRAFT, author_id="ada"), now=now)
    await enqueue_plan(stores, payloads, [draft])
    return await submit(stores, payloads, draft.id, actor="ada")


def gate_of(task: Task) -> Gate:
    assert task.review is not None
    assert task.review.gate is not None
    return task.review.gate


async def open_for(stores: Stores, name: str) -> int:
    return gate_of(await submitted(stores, name)).policy.expires_after_ms // HOUR


async def test_approvals_stay_open_for_the_time_that_the_store_says(stores: Stores) -> None:
    names = ("mail", "deploy", "nobody-rules-this")
    assert [await open_for(stores, name) for name in names] == [24, 720, 24]

    await set_value(stores, "approval.default_timeout_s", 3 * 3600, actor="ada")
    await set_value(stores, "approval.max_timeout_s", 48 * 3600, actor="ada")

    assert [await open_for(stores, name) for name in names] == [3, 48, 3]
    found = await check(stores, PolicyCheckRequest(name="mail"))
    assert found.chosen.policy.expires_after_ms == 3 * HOUR


async def test_what_is_open_already_stays_so_and_what_is_new_expires_earlier(stores: Stores, clock: TestClock) -> None:
    before = await submitted(stores, "mail")
    await set_value(stores, "approval.default_timeout_s", 60, actor="ada")
    after = await submitted(stores, "mail")

    clock.advance(61)
    await sweep_reviews(stores, Payloads(stores.blobs))

    found = await stores.tasks.get([before.id, after.id])
    states = [gate_of(task).state for task in found if task is not None]
    assert states == [GateState.OPEN, GateState.EXPIRED]
