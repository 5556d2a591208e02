"""Attack: the author of a task declares resources and tags by which it is judged more leniently."""

from typing import Any

import pytest

from tests.attacks.site import Site
from tests.attacks.test_an_admins_token import signed_in

GUARD = {"do": "demand", "name": "*", "reason": "somebody should look"}
ONE = [{"needed": 1, "roles": ["reviewer"]}]
EASY = {"id": "easy", "names": ["*"], "rules": ONE, "auto_approve": "low"}
STRICT = {"id": "strict", "names": ["*"], "from_level": "high", "rules": [{"needed": 2, "roles": ["reviewer"]}]}
RATED = {"bank:*": 100, "account:*": 90, "db:*": 90, "schema:*": 90, "doc:*": 0}
HARMLESS: list[list[str]] = [[], ["doc:readme"]]


async def lenient(site: Site, **more: object) -> None:
    """Low risks pass automatically, high ones need two reviewers."""
    await site.rules(**{"guard": [GUARD], "policy": [EASY, STRICT], "criticality": RATED, **more})
    await site.ask("ada", "PUT", "/features/auto_approve_low_risk", {"is_on": True})


async def risk_of(site: Site, task_id: str) -> dict[str, Any]:
    """As a reviewer is shown it."""
    shown: dict[str, Any] = (await site.ask("rita", "GET", f"/approvals/{task_id}")).json()["review"]["risk"]
    return shown


@pytest.mark.parametrize("declared", HARMLESS, ids=["nothing", "something harmless"])
async def test_who_names_nothing_that_is_known_is_a_critical_risk(site: Site, declared: list[str]) -> None:
    await lenient(site)
    task = await site.enqueue("pay", args={"to": "mallory"}, resources=declared)
    assert (task["status"], site.done) == ("reviewing", [])
    risk = await risk_of(site, task["id"])
    assert (risk["level"], risk["is_unknown"]) == ("critical", True)
    await site.vote("rita", task["id"])
    assert await site.status(task["id"]) == "reviewing"  # `strict` begins at a high risk
    await site.vote("rob", task["id"])
    await site.until(task["id"], "completed")


@pytest.mark.parametrize("declared", HARMLESS, ids=["nothing", "something harmless"])
async def test_what_the_definition_declares_cannot_be_taken_away(site: Site, declared: list[str]) -> None:
    await lenient(site)
    task = await site.enqueue("wire", args={"to": "mallory"}, resources=declared, tags=[])
    assert (task["status"], site.done) == ("reviewing", [])
    first = (await risk_of(site, task["id"]))["resources"][0]
    assert (first["name"], first["sources"], first["criticality"]) == ("bank:main", ["definition"], 100)


async def test_the_arguments_say_what_a_task_changes(site: Site) -> None:
    await lenient(site, resource=[{"names": ["pay"], "argument": "to", "resource": "account:{value}"}])
    task = await site.enqueue("pay", args={"to": "mallory"}, resources=["doc:readme"])
    assert (task["status"], site.done) == ("reviewing", [])
    risk = await risk_of(site, task["id"])
    named = {each["name"]: (each["sources"], each["criticality"]) for each in risk["resources"]}
    assert named == {"account:mallory": (["arguments"], 90), "doc:readme": (["author"], 0)}
    assert (risk["criticality"], risk["is_unknown"]) == (90, False)


async def test_the_preview_says_what_a_task_changes(site: Site) -> None:
    await lenient(site)
    task = await site.enqueue("migrate", resources=["doc:readme"])
    await site.until(task["id"], "reviewing")
    named = {each["name"]: each["sources"] for each in (await risk_of(site, task["id"]))["resources"]}
    assert named == {"schema:main": ["preview"], "db:main": ["preview"], "doc:readme": ["author"]}


@pytest.mark.parametrize(
    "rule",
    [
        {"do": "allow", "tags": ["docs"]},
        {"do": "allow", "resources": ["doc:*"]},
        {"do": "allow", "from_score": 20},
        {"do": "demand", "tags": ["docs"], "policy": "easy", "reason": "papers"},
        {"do": "demand", "resources": ["doc:*"], "policy": "easy", "reason": "papers"},
    ],
    ids=lambda rule: "-".join(rule)[:24],
)
async def test_a_declared_tag_or_resource_does_not_get_past_a_later_rule(site: Site, rule: dict[str, Any]) -> None:
    frozen = {"do": "deny", "name": "pay", "reason": "payments are frozen"}
    await lenient(site, guard=[rule, frozen], risk={"unknown_resources": "low"})
    body = {"name": "pay", "args": {"to": "mallory"}, "tags": ["docs"], "resources": ["doc:*"]}
    refused = await site.ask("bot", "POST", "/tasks", body)
    assert (refused.status, refused.code, site.done) == (403, "denied", [])


async def test_what_the_definition_declares_does_let_a_rule_allow_it(site: Site) -> None:
    await site.rules(guard=[{"do": "allow", "tags": ["money"]}, {"do": "deny", "reason": "nothing else"}])
    task = await site.enqueue("wire", args={"to": "landlord"})
    await site.until(task["id"], "completed")
    assert site.done == [{"wire": "landlord"}]


@pytest.mark.parametrize(
    "weak",
    [
        {"tags": ["docs"], "auto_approve": "medium"},
        {"resource_types": ["doc"], "auto_approve": "medium"},
        {"tags": ["docs"], "authors_may_vote": True},
    ],
    ids=["automatic by tag", "automatic by resource", "own vote by tag"],
)
async def test_a_policy_that_the_authors_tags_select_replaces_no_quorum(site: Site, weak: dict[str, Any]) -> None:
    policy = {"id": "weak", "rules": ONE, **weak}
    await lenient(site, policy=[policy], risk={"unknown_resources": "low"}, criticality={})
    task = await site.enqueue("pay", args={"to": "mallory"}, tags=["docs"], resources=["doc:readme"])
    assert (task["status"], site.done) == ("reviewing", [])
    refused = await site.vote("mallory", task["id"])
    assert (refused.status, await site.status(task["id"]), site.done) == (403, "reviewing", [])
    await site.vote("rita", task["id"])
    await site.until(task["id"], "completed")


async def test_a_delegation_for_some_tags_is_not_chosen_by_the_author(site: Site) -> None:
    only_rita = {"id": "rita", "names": ["pay"], "rules": [{"needed": 1, "users": ["rita"]}]}
    await site.rules(guard=[GUARD], policy=[only_rita])
    rita = await signed_in(site, "rita")
    lent = await rita.ask("POST", "/delegations", {"delegate": "rob", "ends": 3600, "tags": ["docs"]})
    assert lent.status in (200, 201), lent
    task = await site.enqueue("pay", args={"to": "mallory"}, tags=["docs"])
    refused = await site.vote("rob", task["id"], for_whom="rita")
    assert (refused.status, await site.status(task["id"])) == (403, "reviewing")


async def test_many_small_tasks_on_one_resource_add_up(site: Site) -> None:
    payee = [{"names": ["pay"], "argument": "to", "resource": "account:{value}"}]
    await lenient(site, resource=payee, criticality={"account:*": 30})
    for number in range(12):  # in the name of the program and of its owner, who is the same person
        last = await site.enqueue("pay", by=("bot", "mallory")[number % 2], args={"to": "mallory"})
        if not number:
            assert last["status"] != "reviewing"
    assert last["status"] == "reviewing"
    risk = await risk_of(site, last["id"])
    assert (risk["recent_tasks"], risk["resources"][0]["recent_tasks"]) == (11, 11)
    other = await site.enqueue("pay", by="olga", args={"to": "mallory"})
    assert other["status"] != "reviewing"


async def test_an_edit_to_something_harmless_does_not_pass_by_itself(site: Site) -> None:
    payee = [{"names": ["pay"], "argument": "to", "resource": "account:{value}"}]
    await lenient(site, resource=payee, criticality={"account:mallory": 100, "account:*": 0})
    direct = await site.enqueue("pay", args={"to": "landlord"})
    await site.until(direct["id"], "completed")
    task = await site.enqueue("pay", args={"to": "mallory"})
    assert task["status"] == "reviewing"
    await site.vote("rita", task["id"], "request_changes", reason="why mallory?")
    edited = await site.server.ask(
        "PATCH", f"/api/v1/tasks/{task['id']}", {"args": {"to": "landlord"}}, by="bot", if_match="*"
    )
    assert edited.status == 200, edited
    await site.ask("bot", "POST", f"/tasks/{task['id']}/submit")
    assert await site.status(task["id"]) == "reviewing"


async def test_people_approve_the_tool_call_that_the_guard_judges(site: Site) -> None:
    """A worker cannot show people something else than what the rules are asked about."""
    await site.rules(
        guard=[{"do": "demand", "tool": "Bash", "when": {"command": "rm*"}, "policy": "one", "reason": "removes"}],
        policy=[{"id": "one", "rules": ONE}],
    )
    await site.ask("machine", "PUT", "/workers/w", {"definitions": [{"name": "agent"}], "queues": ["far"]})
    task = await site.enqueue("agent", queue="far")

    async def hold(judged: object, about: object) -> Any:
        claimed = await site.ask("machine", "POST", "/runs/claim", {"worker": "w", "count": 1})
        runs.extend(run["run_id"] for run in claimed.json()["runs"])
        body = {"task_id": task["id"], "step": "Bash", "is_tool": True, "about": about, "judged": judged}
        return await site.ask("machine", "POST", f"/runs/{runs[-1]}/hold", body)

    runs: list[str] = []
    secret = {"command": "rm /tmp/s3cret-file"}
    for shown in ({"command": "ls"}, {"command": "ls [hidden]"}, {}, {"command": "rm [hidden]", "note": "fine"}, "rm"):
        refused = await hold(secret, shown)
        assert refused.code == "invalid_task", refused
    for harmless in ({"command": "ls"}, {"command": "ls /tmp/s3cret-file"}):  # or judge something else
        assert (await hold(harmless, secret)).code == "invalid_task"
    waiting = await hold(secret, {"command": "rm /tmp/[hidden]-file"})
    assert waiting.json()["may_go_on"] is False
    gate = (await site.ask("rita", "GET", f"/approvals/{task['id']}")).json()["review"]["gates"][-1]
    assert gate["about"]["command"] == "rm /tmp/[hidden]-file"
    assert gate["about"]["digest of what is hidden"]
    await site.vote("rita", task["id"])
    other = await hold({"command": "rm /tmp/0ther-file"}, {"command": "rm /tmp/[hidden]-file"})
    assert other.json()["may_go_on"] is False  # it looks the same, and is another call


async def test_a_declared_risk_does_not_replace_the_reviewers(site: Site) -> None:
    """The author names something critical, so that a policy for high risks applies, which asks a friend alone."""
    night = {"id": "night", "from_level": "high", "rules": [{"needed": 1, "users": ["rob"]}]}
    guard = [{"do": "demand", "name": "wire", "reason": "money"}]
    await site.rules(criticality={"bank:*": 10, "db:*": 100}, guard=guard, policy=[night])
    task = await site.enqueue("wire", args={"to": "mallory"}, resources=["db:*", "db:a"])
    await site.vote("rob", task["id"])
    assert await site.status(task["id"]) == "reviewing"
    review = (await site.task(task["id"])).review
    assert review is not None
    assert review.gates[-1].required == ("usual",)
