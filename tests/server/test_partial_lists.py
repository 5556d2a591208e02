"""Lists with filters that have no index: how far one request looks, and what becomes of it if nobody waits for it."""

import asyncio
from typing import Any

import pytest

from tests.domain import Role
from tests.server.conftest import ServerHarness

API = "/api/v1"


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ade.tasks.api.tasks.BUDGET", 50)


async def _filled(server: ServerHarness, count: int) -> list[dict[str, Any]]:
    tasks = [{"name": "greet", "tags": ["t"], "description": f"number {number}"} for number in range(count)]
    answer = await server.ask("POST", f"{API}/tasks/bulk", {"tasks": tasks})
    assert answer.status == 201, answer
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_a_search_says_that_it_is_partial_and_continues_with_the_cursor(server: ServerHarness) -> None:
    made = await _filled(server, 1_000)
    pages = [(await server.ask("GET", f"{API}/tasks?text=number%203")).json()]
    while "next" in pages[-1]:
        path = f"{API}/tasks?text=number%203&cursor={pages[-1]['next']}"
        pages.append((await server.ask("GET", path)).json())

    expected = [task["id"] for task in made if task["description"].startswith("number 3")]
    assert [task["id"] for page in pages for task in page["items"]] == expected[::-1]
    assert any(page.get("is_partial") for page in pages)
    assert "is_partial" not in pages[-1]


async def test_an_indexed_filter_is_never_partial(server: ServerHarness) -> None:
    await _filled(server, 1_000)
    await server.task(tags=["rare"], by=Role.ADMIN)
    await _filled(server, 1_000)
    for label in ("tag=rare", "author=the-admin"):
        page = (await server.ask("GET", f"{API}/tasks?{label}")).json()
        assert (len(page["items"]), "next" in page, "is_partial" in page) == (1, False, False)


@pytest.mark.parametrize("path", ["tasks?text=x", "dlq", "dlq/groups"])
async def test_a_search_ends_when_its_client_disconnects(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(query: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(sqlite_server.stores.tasks, "find", endless)
    token = await sqlite_server.token(Role.VIEWER)
    _, writer = await asyncio.open_connection("127.0.0.1", int(sqlite_server.url.rpartition(":")[2]))
    writer.write(f"GET {API}/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        await begun.wait()
        writer.close()
        await ended.wait()
    assert (await sqlite_server.ask("GET", f"{API}/me")).status == 200
