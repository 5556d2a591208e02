"""Attack: a failed preview or rollback is run again with other arguments: reviewers would see the preview of something
else, or what never ran would be undone."""

import pytest

from tests.attacks.site import NOWHERE, Site

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


async def failed_rollback(site: Site) -> str:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": NOWHERE, "fails": True}, max_attempts=1)
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    undone = await site.ask("olga", "POST", f"/tasks/{task['id']}/rollback")
    assert undone.status == 200, undone
    return (await site.until(undone.json()["id"], "failed")).id


async def failed_preview(site: Site) -> str:
    await site.rules(policy=POLICY)
    task = await site.enqueue("deploy", args={"service": NOWHERE})
    review = (await site.task(task["id"])).review
    assert review is not None
    assert review.preview_id is not None
    return (await site.until(review.preview_id, "failed")).id


ATTACKS = {"rollback": {"to": "mallory", "amount": 1_000_000}, "preview": {"service": "web"}}


@pytest.mark.parametrize("kind", ATTACKS)
async def test_its_arguments_cannot_be_changed_for_another_run(site: Site, kind: str) -> None:
    task_id = await (failed_rollback if kind == "rollback" else failed_preview)(site)
    before = await site.task(task_id)
    for path in (f"/tasks/{task_id}/retry", f"/dlq/{task_id}/replay"):
        for by in ("mallory", "olga", "ada"):
            refused = await site.ask(by, "POST", path, {"args": ATTACKS[kind]})
            assert (refused.status, refused.code) == (422, "invalid_task"), refused
    assert await site.task(task_id) == before
    assert {"refund": "mallory", "amount": 1_000_000} not in site.done
