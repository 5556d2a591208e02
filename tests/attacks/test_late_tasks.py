"""Attack: an approval that comes too late starts a task after its deadline or window, or for locks it cannot get."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.site import Site, open_site

GUARD = [{"do": "demand", "name": "pay", "policy": "two", "reason": "money"}]
POLICY = [{"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}]
SOON = 600  # seconds; tokens last for an hour


class WallClock:
    """The clock of the machine, whose wall time a test can move forward."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def pass_deadlines(self) -> None:
        """Let a moment come that is after all that `moment` returns."""
        self._ahead_ms += 2 * SOON * 1000


@pytest.fixture
def wall() -> WallClock:
    return WallClock()


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.long)])
async def site(request: pytest.FixtureRequest, tmp_path: Path, wall: WallClock) -> AsyncIterator[Site]:
    alone: dict[str, Any] = {"worker.lease_guard": False}  # the watchdog, another process, would not use this clock
    async with open_site(request.param, tmp_path, clock=wall, **alone) as opened:
        yield opened


def moment(seconds: float = SOON) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("limit", ["deadline", "window"])
async def test_votes_after_the_deadline_or_window_start_nothing(site: Site, wall: WallClock, limit: str) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    fields = {"deadline": moment()} if limit == "deadline" else {"not_before": moment(60), "not_after": moment()}
    task = (await site.enqueue("pay", args={"to": "mallory"}, **fields))["id"]
    assert (await site.vote("rita", task)).status == 200
    wall.pass_deadlines()

    refused = await site.vote("rob", task)

    assert refused.status == 409, refused
    assert refused.json()["code"] in ("task_cannot_run", "gate_closed")  # the second if the sweep came first
    ended = await site.task(task)
    assert ended.error is not None
    assert (str(ended.status), str(ended.error.kind), site.done) == ("failed", "deadline_passed", [])
    assert task not in str((await site.ask("rob", "GET", "/approvals")).json())


async def test_no_hand_starts_a_task_after_its_deadline(site: Site, wall: WallClock) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = (await site.enqueue("pay", args={"to": "mallory"}, start="by_hand", deadline=moment()))["id"]
    for voter in ("rita", "rob"):
        await site.vote(voter, task)
    assert await site.status(task) == "approved"
    wall.pass_deadlines()

    assert (await site.ask("bot", "POST", f"/tasks/{task}/apply", {})).status == 409
    assert (await site.status(task), site.done) == ("failed", [])


async def test_a_draft_is_not_submitted_with_locks_that_its_author_may_not_take(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY, locks=[{"names": ["prod:*"], "accounts": ["ada"]}])
    draft = (await site.enqueue("pay", args={"to": "mallory"}, locks=["prod:db"], draft=True))["id"]

    refused = await site.ask("bot", "POST", f"/tasks/{draft}/submit", {})

    assert (refused.status, refused.json()["code"]) == (403, "lock_not_permitted")
    assert await site.status(draft) == "draft"
