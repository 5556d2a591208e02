"""How long approvals stay open, as the store says while all goes on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ade.core.accounts.users import User
from ade.core.approvals.records import Gate, GateState
from ade.core.approvals.rulebook_reading import read_rulebook
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.core.task import admit
from ade.governance.approvals.submitting import submit
from ade.governance.approvals.tending import tend_reviews
from ade.governance.checking import Question, check
from ade.governance.directory.users import add_user
from ade.governance.rulebook import apply
from ade.governance.runtime import set_value
from ade.ports import Stores
from ade.queue.enqueue import keep
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads
from tests.conformance.backends import BACKENDS
from tests.conformance.clock import StoryClock

HOUR = 3_600_000
RULE = {"rules": [{"needed": 1, "roles": ["reviewer"]}]}


@pytest.fixture
def clock() -> StoryClock:
    return StoryClock()


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: StoryClock) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, clock)
    await add_user(opened, User(id="bob", roles=frozenset({"reviewer"})))
    policies: list[dict[str, Any]] = [
        {"id": "silent", "names": ["mail"], **RULE},
        {"id": "long", "names": ["deploy"], "expires_after": "30d", **RULE},
    ]
    await apply(opened, read_rulebook({"policy": policies}), actor="root")
    yield opened
    await opened.close()


async def submitted(stores: Stores, name: str) -> Task:
    now = stores.clock.now()
    payloads = Payloads(stores.blobs)
    draft = admit(Task(id=fresh_id(now), name=name, status=Status.DRAFT, author_id="ada"), now=now)
    await keep(stores, payloads, [draft])
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
    found = await check(stores, Question(name="mail"))
    assert found.chosen.policy.expires_after_ms == 3 * HOUR


async def test_what_is_open_already_stays_so_and_what_is_new_expires_earlier(stores: Stores, clock: StoryClock) -> None:
    before = await submitted(stores, "mail")
    await set_value(stores, "approval.default_timeout_s", 60, actor="ada")
    after = await submitted(stores, "mail")

    clock.advance(61)
    await tend_reviews(stores, Payloads(stores.blobs))

    found = await stores.tasks.get([before.id, after.id])
    states = [gate_of(task).state for task in found if task is not None]
    assert states == [GateState.OPEN, GateState.EXPIRED]
