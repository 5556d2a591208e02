"""An author leaves an argument out, and the handler runs with a default that the rules forbid, or want approved."""

from tests.attacks.site import Site

ONE = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}


async def test_a_default_that_needs_approval_is_approved_first(site: Site) -> None:
    guard = {"do": "demand", "name": "pay", "when": {"amount": [1, 1000]}, "policy": "one", "reason": "care"}
    await site.rules(guard=[guard], policy=[ONE])

    task = await site.enqueue("pay", args={"to": "mallory"})

    await site.until(task["id"], "reviewing")
    assert site.done == []
    assert (await site.ask("rita", "GET", f"/approvals/{task['id']}")).json()["defaults"] == {
        "amount": 1,
        "fails": False,
    }
    await site.vote("rita", task["id"])
    await site.until(task["id"], "completed")
    assert site.done == [{"pay": "mallory", "amount": 1}]


async def test_a_default_that_is_denied_is_not_stored(site: Site) -> None:
    await site.rules(guard=[{"do": "deny", "name": "migrate", "when": {"table": "peop*"}, "reason": "frozen"}])

    answer = await site.ask("bot", "POST", "/tasks", {"name": "migrate", "args": {}})

    assert (answer.status, answer.json()["code"]) == (403, "denied")
    assert (await site.ask("olga", "GET", "/tasks?name=migrate")).json()["items"] == []


async def test_a_rule_that_allows_looks_at_defaults_too(site: Site) -> None:
    """All texts must fit before a rule allows, and the default is one of them."""
    allow = {"do": "allow", "name": "pay", "when": {"*": ["to", "amount", "fails", "friend", "1", "false"]}}
    await site.rules(guard=[allow, {"do": "deny", "name": "pay", "reason": "only friends"}])

    assert (await site.ask("bot", "POST", "/tasks", {"name": "pay", "args": {"to": "friend"}})).status == 201
    assert (await site.ask("bot", "POST", "/tasks", {"name": "pay", "args": {"to": "mallory"}})).status == 403

    await site.rules(guard=[allow | {"when": {"*": ["to", "friend"]}}, {"do": "deny", "name": "pay", "reason": "no"}])
    assert (await site.ask("bot", "POST", "/tasks", {"name": "pay", "args": {"to": "friend"}})).status == 403
