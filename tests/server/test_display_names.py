"""Display names over HTTP: the author's comes with the task, and IDs stay what they are."""

from tests.domain import Role, UserChanges, change_user
from tests.server.conftest import ServerHarness


async def test_a_task_has_the_display_name_of_its_author(server: ServerHarness) -> None:
    plain = await server.task()
    await change_user(server.stores, plain["author_id"], UserChanges(display_name="Olga Ladyzhenskaya"))
    named = await server.task()
    [batch] = (await server.ask("POST", "/api/v1/tasks/bulk", {"tasks": [{"name": "greet"}]})).json()["items"]
    assert "author_name" not in plain
    for made in (named, batch):
        assert (made["author_id"], made["author_name"]) == (plain["author_id"], "Olga Ladyzhenskaya")
        found = (await server.ask("GET", f"/api/v1/tasks/{made['id']}", by=Role.VIEWER)).json()
        assert found["author_name"] == "Olga Ladyzhenskaya"


async def test_nobody_chooses_the_name_of_an_author(server: ServerHarness) -> None:
    answer = await server.ask("POST", "/api/v1/tasks", {"name": "greet", "author_name": "The Boss"})
    assert answer.status in (400, 422)
