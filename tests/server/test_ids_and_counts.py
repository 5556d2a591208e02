"""Several tasks by their IDs in one request, and how many match a filter."""

import pytest

from tests.server.conftest import ServerHarness

API = "/api/v1"


async def test_several_tasks_are_read_in_one_request(server: ServerHarness) -> None:
    made = [await server.task(args={"number": number}) for number in range(4)]
    ids = [made[2]["id"], "01a1e503-5dba-7f16-87d1-29e75c2bd002", made[0]["id"], "no id", made[3]["id"]]
    page = (await server.ask("GET", f"{API}/tasks?ids={','.join(ids).replace(' ', '%20')}")).json()
    assert [task["id"] for task in page["items"]] == [made[2]["id"], made[0]["id"], made[3]["id"]]
    assert "next" not in page
    path = "&".join(f"ids={each['id']}" for each in made)
    first = (await server.ask("GET", f"{API}/tasks?{path}&limit=3")).json()
    second = (await server.ask("GET", f"{API}/tasks?{path}&limit=3&cursor={first['next']}")).json()
    assert [task["id"] for task in first["items"] + second["items"]] == [task["id"] for task in made]


async def test_large_tasks_by_id_come_in_several_pages(server: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ade.tasks.api.tasks.LARGEST_PAGE", 100_000)
    ids = [(await server.task(args={"text": "x" * 30_000}))["id"] for _ in range(10)]
    path = f"{API}/tasks?{'&'.join(f'ids={each}' for each in ids)}"
    pages = [(await server.ask("GET", path)).json()]
    while "next" in pages[-1]:
        pages.append((await server.ask("GET", f"{path}&cursor={pages[-1]['next']}")).json())
    assert [len(page["items"]) for page in pages] == [3, 3, 3, 1]
    assert [task["id"] for page in pages for task in page["items"]] == ids


async def test_ids_go_with_no_other_filter_and_have_a_limit(sqlite_server: ServerHarness) -> None:
    task = await sqlite_server.task()
    for query in (f"ids={task['id']}&queue=default", f"ids={task['id']}&count=true", f"ids={','.join(['a'] * 51)}"):
        refused = await sqlite_server.ask("GET", f"{API}/tasks?{query}")
        assert (refused.status, refused.code) == (400, "invalid_filter"), query


async def test_a_list_counts_all_matches_if_asked(server: ServerHarness) -> None:
    for number in range(7):
        await server.task(queue="mail" if number < 5 else "other")
    cancelled = await server.task(queue="mail")
    await server.ask("POST", f"{API}/tasks/{cancelled['id']}/cancel", {})
    for query, count in (
        ("", 8),
        ("&queue=mail", 6),
        ("&queue=mail&status=pending", 5),
        ("&status=pending,cancelled&name=greet", 8),
        ("&name=nothing", 0),
    ):
        page = (await server.ask("GET", f"{API}/tasks?count=true&limit=2{query}")).json()
        assert page["count"] == count, query
        assert len(page["items"]) == min(count, 2)
    assert "count" not in (await server.ask("GET", f"{API}/tasks")).json()
    refused = await server.ask("GET", f"{API}/tasks?count=true&tag=x")
    assert (refused.status, refused.code) == (400, "invalid_filter")
