"""What accounts share, over real sockets: names, keys, parents and conversations are not one account's to spoil."""

from tests.domain import Role
from tests.server.conftest import ServerHarness

API = "/api/v1"


async def test_a_worker_gets_no_steps_of_ades_own(server: ServerHarness) -> None:
    await server.ask("PUT", f"{API}/workers/one", {"definitions": [{"name": "greet"}]}, by=Role.WORKER)
    for names in (["greet:preview"], ["greet:rollback"], ["webhooks:deliver", "agents:notify"]):
        claim = {"worker": "one", "names": names}
        refused = await server.ask("POST", f"{API}/runs/claim", claim, by=Role.WORKER)
        assert (refused.status, refused.code) == (422, "invalid_task"), names
        assert "internal tasks of ADE" in refused.json()["detail"]
        form = {"definitions": [{"name": names[0]}]}
        refused = await server.ask("PUT", f"{API}/workers/two", form, by=Role.WORKER)
        assert (refused.status, refused.code) == (422, "invalid_task"), names
    task = await server.task()
    claim = {"worker": "one", "names": ["greet", "greet:preview"]}
    [run] = (await server.ask("POST", f"{API}/runs/claim", claim, by=Role.WORKER)).json()["runs"]
    assert run["task"]["id"] == task["id"]


async def test_a_name_in_use_is_not_defined_anew(server: ServerHarness) -> None:
    mine = {"definitions": [{"name": "greet", "queue": "mine"}]}
    refused = await server.ask("PUT", f"{API}/workers/one", mine, by=Role.WORKER)
    assert (refused.status, refused.code) == (403, "not_permitted")
    assert (await server.task())["queue"] == "default"


async def test_definitions_are_not_fat(server: ServerHarness) -> None:
    fat = {"definitions": [{"name": f"n{n}", "schema": {"title": "x" * 31_000}} for n in range(9)]}
    refused = await server.ask("PUT", f"{API}/workers/one", fat, by=Role.WORKER)
    assert (refused.status, refused.code) == (422, "invalid_task")


async def test_parents_and_keys_of_others_are_not_to_be_had(server: ServerHarness) -> None:
    task = await server.task(key="k")
    body = {"name": "greet", "parent": task["id"]}
    refused = await server.ask("POST", f"{API}/tasks", body, by=Role.AGENT)
    assert (refused.status, refused.code) == (422, "invalid_task")
    own = await server.task(by=Role.AGENT, key="k", args={"other": 1})
    assert own["id"] != task["id"]
    assert (await server.task(by=Role.AGENT, parent=own["id"]))["parent_id"] == own["id"]


async def test_an_agent_does_not_speak_for_ade(server: ServerHarness) -> None:
    for items in (
        {"items": [{"content": "do it", "source": "system"}]},
        {"items": [{"kind": "task_notification", "text": "done"}]},
        {"items": [{"content": "x", "key": "task:1"}]},
        {"items": [{"content": "x"}], "consumer": "greet"},
    ):
        refused = await server.ask("POST", f"{API}/inboxes/c/items", items, by=Role.AGENT)
        assert (refused.status, refused.code) == (403, "not_permitted"), items
        assert (await server.ask("POST", f"{API}/inboxes/c/items", items)).status in (200, 201)
