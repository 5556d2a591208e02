"""Attack: a task whose automatic rollback is refused stops the sweeps, for the tasks of everyone."""

from typing import Any

from tests.attacks.site import Site
from tests.waiting import eventually

ONE = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
FAST = {"id": "fast", "rules": [{"needed": 1, "roles": ["reviewer"]}], "valid_for": "1s"}
GUARD = {"do": "demand", "name": "pay", "policy": "fast", "reason": "money"}
FAILS = {"to": "x", "fails": True}


async def refusals(site: Site) -> list[dict[str, object]]:
    events = await site.stores.events.read(0, 1_000)
    return [event.payload for event in events if event.type == "rollback.not_stored"]


async def test_deadlines_of_others_pass_all_the_same(site: Site) -> None:
    """A number above 2^53 has no digest, and the rulebook wants rollbacks approved."""
    await site.rules(guard=[{"do": "demand", "name": "*:rollback", "policy": "one", "reason": "care"}], policy=[ONE])
    options: dict[str, Any] = {"rollback": "automatic", "max_attempts": 3, "backoff": "1m,5m,15m", "deadline": 2}
    bad = await site.enqueue("pay", args={**FAILS, "amount": 2**60}, **options)
    await eventually(lambda: _is(bool(site.done)))
    other = await site.enqueue("pay", by="olga", args={"to": "y"}, queue="nobody", deadline=2)

    await site.until(other["id"], "failed")
    await site.until(bad["id"], "failed")
    [refused] = await refusals(site)
    assert (refused["task"], refused["name"], refused["code"]) == (bad["id"], "pay:rollback", "invalid_subject")


async def test_a_reviewer_can_reject_what_may_no_longer_lock(site: Site) -> None:
    """Its rollback is stored, and everyone sees that it may not lock either."""
    await site.rules(guard=[GUARD], policy=[FAST])
    options: dict[str, Any] = {"rollback": "automatic", "max_attempts": 3, "backoff": "2s,2s", "locks": ["prod:db"]}
    task = await site.enqueue("pay", args=FAILS, **options)
    await site.vote("rita", task["id"])
    await eventually(lambda: _is(bool(site.done)))
    await site.until(task["id"], "reviewing")
    await site.rules(guard=[GUARD], policy=[FAST], locks=[{"names": ["prod:*"], "roles": ["operator"]}])

    assert (await site.vote("rita", task["id"], "reject", reason="no")).status == 200

    assert await site.status(task["id"]) == "rejected"
    [rollback] = (await site.ask("olga", "GET", f"/tasks?parent={task['id']}")).json()["items"]
    failed = await site.until(rollback["id"], "failed")
    assert failed.error is not None
    assert failed.error.type == "LockNotPermitted"


async def _is(condition: bool) -> bool:
    return condition


async def test_replays_with_other_arguments_add_up_like_separate_tasks(site: Site) -> None:
    auto = {"id": "auto", "rules": [{"needed": 1, "roles": ["reviewer"]}], "auto_approve": "low"}
    resource = {"names": ["pay"], "argument": "fails", "resource": "bank:{value}"}
    guard = [{**GUARD, "policy": "auto"}]
    await site.rules(guard=guard, policy=[auto], resource=[resource], criticality={"bank:*": 30})
    switched = await site.ask("ada", "PUT", "/features/auto_approve_low_risk", {"is_on": True})
    assert switched.status == 200, switched
    task = await site.enqueue("pay", args=FAILS, max_attempts=1)

    for number in range(25):
        if (await site.until(task["id"], "failed", "reviewing")).status == "reviewing":
            break
        body = {"args": {"to": f"payee {number}", "fails": True}}
        assert (await site.ask("bot", "POST", f"/tasks/{task['id']}/retry", body)).status == 200

    assert await site.status(task["id"]) == "reviewing"
