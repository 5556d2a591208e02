"""Attack: an approval that comes too late starts a task after its deadline or window, or for locks it cannot get."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.attacks.site import Site
from tests.waiting import eventually

GUARD = [{"do": "demand", "name": "pay", "policy": "two", "reason": "money"}]
POLICY = [{"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}]


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def passed(site: Site, seconds: float) -> None:
    """Wait until this much later."""
    end = site.stores.clock.now() + seconds * 1000

    async def look() -> bool:
        return site.stores.clock.now() > end

    await eventually(look)


@pytest.mark.parametrize("limit", ["deadline", "window"])
async def test_votes_after_the_deadline_or_window_start_nothing(site: Site, limit: str) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    fields = {"deadline": moment(2)} if limit == "deadline" else {"not_before": moment(1), "not_after": moment(2)}
    task = (await site.enqueue("pay", args={"to": "mallory"}, **fields))["id"]
    assert (await site.vote("rita", task)).status == 200
    await passed(site, 2.1)

    refused = await site.vote("rob", task)

    assert refused.status == 409, refused
    assert refused.json()["code"] in ("task_cannot_run", "gate_closed")  # the second if the sweep came first
    ended = await site.task(task)
    assert ended.error is not None
    assert (str(ended.status), str(ended.error.kind), site.done) == ("failed", "deadline_passed", [])
    assert task not in str((await site.ask("rob", "GET", "/approvals")).json())


async def test_no_hand_starts_a_task_after_its_deadline(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = (await site.enqueue("pay", args={"to": "mallory"}, start="by_hand", deadline=moment(2)))["id"]
    for voter in ("rita", "rob"):
        await site.vote(voter, task)
    assert await site.status(task) == "approved"
    await passed(site, 2.1)

    assert (await site.ask("bot", "POST", f"/tasks/{task}/apply", {})).status == 409
    assert (await site.status(task), site.done) == ("failed", [])


async def test_a_draft_is_not_submitted_with_locks_that_its_author_may_not_take(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY, locks=[{"names": ["prod:*"], "accounts": ["ada"]}])
    draft = (await site.enqueue("pay", args={"to": "mallory"}, locks=["prod:db"], draft=True))["id"]

    refused = await site.ask("bot", "POST", f"/tasks/{draft}/submit", {})

    assert (refused.status, refused.json()["code"]) == (403, "lock_not_permitted")
    assert await site.status(draft) == "draft"
