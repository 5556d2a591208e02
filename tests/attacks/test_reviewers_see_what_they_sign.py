"""Attack: something that runs is part of the digest, and no reviewer was shown it."""

import hashlib
from typing import Any

import msgspec

from ade.approvals import digest
from ade.approvals.digest import canonical
from ade.client.client import connect
from tests.attacks.site import Site

GUARD = [{"do": "demand", "name": "*", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]


async def shown(site: Site, task_id: str) -> dict[str, Any]:
    approval: dict[str, Any] = (await site.ask("rita", "GET", f"/approvals/{task_id}")).json()
    return approval


def paths(gate: dict[str, Any]) -> list[str]:
    return [each["path"] for each in gate["changes"]]


async def test_the_digest_can_be_computed_from_what_is_shown(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    first = await site.enqueue("parent", args={"to": "rent"})
    for name, fields in (
        ("pay", {"args": {"to": "rent", "amount": 7}}),
        ("pay", {"args": {"to": "x" * 200_000}, "description": "large", "tags": ["b", "a"]}),
        ("deploy", {"args": {"service": "web"}, "locks": ["repo:web"], "max_attempts": 2, "deadline": 3600}),
        ("pay", {"args": {"to": "rent"}, "after": [first["id"]], "after_failure": "run", "concurrency_key": "k"}),
    ):
        task = await site.enqueue(name, **fields)
        await site.until(task["id"], "reviewing")
        gate = (await shown(site, task["id"]))["review"]["gates"][-1]
        assert hashlib.sha256(canonical(gate["signed"])).hexdigest() == gate["digest"], gate["signed"]


async def test_a_field_that_is_added_to_the_digest_is_shown(site: Site, monkeypatch: Any) -> None:
    plain = digest.signed_fields

    def more(task: Any, *rest: Any, **named: Any) -> dict[str, object]:
        return {**plain(task, *rest, **named), "moon": "full"}

    monkeypatch.setattr(digest, "signed_fields", more)
    monkeypatch.setattr("ade.approvals.review_requests.signed_fields", more)
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent"})
    gate = (await shown(site, task["id"]))["review"]["gates"][-1]
    assert gate["signed"]["moon"] == "full"


async def test_what_an_amendment_changed_is_shown_field_by_field(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent", "amount": 7})
    before = (await shown(site, task["id"]))["review"]["gates"][-1]
    assert before["changes"] == []
    seen = {"approval": before["id"], "digest": before["digest"]}
    args = {"to": "mallory", "amount": 7}
    await site.ask("rosa", "POST", f"/approvals/{task['id']}/amend", {**seen, "args": args, "description": "urgent"})
    after = (await shown(site, task["id"]))["review"]["gates"][-1]
    assert {each["path"]: (each.get("before"), each["after"]) for each in after["changes"]} == {
        "args.to": ("rent", "mallory"),
        "description": (None, "urgent"),
    }


async def test_a_resubmission_shows_what_the_author_changed_and_the_new_preview(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("deploy", args={"service": "web"})
    await site.until(task["id"], "reviewing")
    await site.vote("rita", task["id"], "request_changes", reason="the other one")
    draft = (await site.ask("bot", "GET", f"/tasks/{task['id']}")).json()
    edited = await site.server.ask(
        "PATCH",
        f"/api/v1/tasks/{task['id']}",
        {"args": {"service": "bank"}},
        by="bot",
        headers={"If-Match": f'"{draft["version"]}"'},
    )
    assert edited.status == 200, edited
    await site.ask("bot", "POST", f"/tasks/{task['id']}/submit", {})
    await site.until(task["id"], "reviewing")
    gate = (await shown(site, task["id"]))["review"]["gates"][-1]
    assert paths(gate) == ["args.service", "preview.changes[0]"]


async def test_earlier_runs_and_what_a_replay_changed_are_shown(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY, criticality={"db:*": 30})
    task = await site.enqueue("pay", args={"to": "rent", "fails": True}, max_attempts=1, resources=["db:main"])
    await site.vote("rita", task["id"])
    await site.until(task["id"], "failed")
    await site.ask("olga", "POST", f"/dlq/{task['id']}/replay", {"args": {"to": "mallory"}})
    approval = await shown(site, task["id"])
    assert [(run["attempt"], run["ended"]) for run in approval["runs"]] == [(1, "failed")]
    assert "the bank is closed" in approval["runs"][0]["error"]
    assert approval["resources"] == [
        {"name": "db:main", "criticality": 30, "sources": ["author"], "recent_tasks": 1},
    ]
    gate = approval["review"]["gates"][-1]
    assert sorted(paths(gate)) == ["args.fails", "args.to"]


async def test_lists_show_the_author_the_age_and_the_arguments(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await site.enqueue("pay", args={"to": "rent"})
    [item] = (await site.ask("rita", "GET", "/approvals")).json()["items"]
    assert (item["author"], item["arguments"]) == ("bot", '{"to":"rent"}')
    assert item["opened_at"]
    large = await site.enqueue("pay", args={"to": "x" * 200_000})
    items = (await site.ask("rita", "GET", "/approvals")).json()["items"]
    assert [len(each["arguments"]) < 250 for each in items if each["task_id"] == large["id"]] == [True]


async def test_the_client_sees_the_same_shape(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    task = await site.enqueue("pay", args={"to": "rent"})
    over_http = await shown(site, task["id"])
    async with connect(site.server.url, token=site.server.tokens["rita"]) as client:
        seen = await client.get_approval(task["id"])
    assert seen.review.gates[-1].signed == over_http["review"]["gates"][-1]["signed"]
    assert msgspec.json.decode(seen.args) == over_http["args"]


async def resubmitted(site: Site, before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """What reviewers are shown as changed after the author edited a task that was returned."""
    task = await site.enqueue("anything", args=before, allow_unknown=True)
    await site.vote("rita", task["id"], "request_changes", reason="please")
    edited = await site.server.ask(
        "PATCH", f"/api/v1/tasks/{task['id']}", {"args": after}, by="bot", headers={"If-Match": "*"}
    )
    assert edited.status == 200, edited
    assert (await site.ask("bot", "POST", f"/tasks/{task['id']}/submit")).status == 200
    changes: list[dict[str, Any]] = (await shown(site, task["id"]))["review"]["gates"][-1]["changes"]
    return changes


async def test_a_change_far_behind_in_a_long_text_is_shown(site: Site) -> None:
    await site.rules(guard=[{"do": "demand", "reason": "care"}])
    prompt = "Refactor the invoices module with care. " * 100

    [change] = await resubmitted(site, {"prompt": f"{prompt}Pay nothing."}, {"prompt": f"{prompt}Pay mallory."})

    assert "Pay nothing." in change["before"]
    assert "Pay mallory." in change["after"]
    assert len(change["after"]) < 200


async def test_two_changes_far_apart_in_a_long_text_are_both_shown(site: Site) -> None:
    await site.rules(guard=[{"do": "demand", "reason": "care"}])
    text = "Refactor the invoices module with care. " * 100

    [change] = await resubmitted(site, {"prompt": f"now {text}Pay nothing."}, {"prompt": f"soon {text}Pay mallory."})

    assert "soon" in change["after"]
    assert "Pay mallory." in change["after"]
    assert "characters are not shown" in change["after"]


async def test_more_differences_than_are_listed_are_counted(site: Site) -> None:
    await site.rules(guard=[{"do": "demand", "reason": "care"}])
    before = {f"a{number:03}": 1 for number in range(150)} | {"to": "landlord"}

    changes = await resubmitted(site, before, {f"a{number:03}": 2 for number in range(150)} | {"to": "mallory"})

    assert len(changes) == 101
    assert changes[-1] == {"path": "", "kind": "more", "after": 51}
