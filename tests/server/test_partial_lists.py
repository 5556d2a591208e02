"""Lists with filters that have no index: how far one request looks, and what becomes of it if nobody waits for it."""

import asyncio
from typing import Any

import pytest

from ade.failures import FailureKind, TaskError
from tests.domain import ClaimRequest, Failed, Role, TaskQuery, settle
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


# Bulk actions examine no more tasks than a list, whatever they match.


@pytest.fixture
def small_bulk_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ade.tasks.api.dead_letters.BUDGET", 50)
    monkeypatch.setattr("ade.tasks.bulk._LEAST_COST", 10)


async def _all_calls(server: ServerHarness, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answers = [(await server.ask("POST", f"{API}/{path}", body))]
    while "next" in answers[-1].json():
        assert answers[-1].status == 200, answers[-1]
        answers.append(await server.ask("POST", f"{API}/{path}", {**body, "cursor": answers[-1].json()["next"]}))
        assert len(answers) < 100
    return [answer.json() for answer in answers]


@pytest.mark.usefixtures("small_bulk_budget")
async def test_one_bulk_action_examines_no_more_tasks_than_a_list(server: ServerHarness) -> None:
    made = await _filled(server, 1_000)
    body = {"action": "cancel", "filter": {"text": "number 99"}, "reason": "enough"}
    expected = [task["id"] for task in made if task["description"].startswith("number 99")]
    examined = list[int]()
    find = server.stores.tasks.find

    async def watched(query: TaskQuery) -> Any:
        page = await find(query)
        examined.append(page.examined)
        return page

    server.stores.tasks.find = watched  # type: ignore[method-assign] # to see how much each call reads
    counted = await _all_calls(server, "bulk-actions/preview", body)
    assert sum(each["count"] for each in counted) == len(expected)
    assert any(each.get("is_partial") for each in counted)
    assert max(examined) <= 250  # the last portion can exceed the budget
    calls = await _all_calls(server, "bulk-actions", body)

    assert [task_id for call in calls for task_id in call["changed"]] == expected
    assert [call for call in calls if call.get("is_partial") and not call["changed"] and not call["is_more"]]
    assert "is_partial" not in calls[-1]
    assert len(calls) >= 5
    other = await server.ask(
        "POST", f"{API}/bulk-actions", {**body, "filter": {"text": "x"}, "cursor": calls[0]["next"]}
    )
    assert (other.status, other.code) == (400, "invalid_cursor")


@pytest.mark.usefixtures("small_bulk_budget")
@pytest.mark.parametrize("limit", [1, 7, 1_000])
async def test_a_group_of_dead_letters_is_replayed_in_bounded_calls(server: ServerHarness, limit: int) -> None:
    """Every dead letter of the group once, and no other one, wherever the calls stop."""
    await _filled(server, 90)
    run_ids = [f"{number:032x}" for number in range(90)]
    tasks = await server.stores.tasks.claim(
        ClaimRequest(worker_id="w", run_ids=run_ids, names=frozenset({"greet"}), lease_ms=600_000)
    )
    assert len(tasks) == 90
    for number, task in enumerate(tasks):
        kind = "Rare" if number % 9 == 0 else "Usual"
        error = TaskError(kind=FailureKind.UNRECOVERABLE, type=kind, message="no luck")
        await server.stores.tasks.commit(settle(task, Failed(error), now=server.stores.clock.now(), randomness=0.5))
    groups = (await server.ask("GET", f"{API}/dlq/groups")).json()["items"]
    rare = next(group for group in groups if group["error_type"] == "Rare")
    body = {"fingerprint": rare["fingerprint"], "limit": limit}

    calls = await _all_calls(server, "dlq/replay", body)
    expected = [task.id for number, task in enumerate(tasks) if number % 9 == 0]
    assert [task_id for call in calls for task_id in call["changed"]] == expected
    assert all(len(call["changed"]) <= limit for call in calls)
