"""One viewer sends the worst filters there are, ten at a time, and everyone else notices next to nothing."""

import asyncio
import json
import statistics
import time
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec import structs

from ade import Task
from tests.domain import HttpClient, Role, Stores, TaskQuery, admit, fresh_id
from tests.faults.served import Served, served_on
from tests.waiting import eventually

API = "/api/v1"
AT_ONCE, MEASURED = 10, 400
LONGEST_MS = 50
SHORTEST_MS = 20  # less than this is noise, on a busy machine
MOST_TRIES = 5  # on a machine that other processes may keep busy for a while
# None of them matches anything, so each has to look at everything it may look at.
WORST: list[dict[str, str]] = [
    {"text": "no such text"},
    {"author": "bulk", "text": "no such text"},
    {"tag": "common", "text": "no such text"},
    {"resource": "db:main", "text": "no such text"},
    {"team": "everyone", "text": "no such text"},
    {"ticket": "OPS-1", "text": "no such text"},
    {"name": "no.such.name"},
    {"queue": "nowhere"},
    {"worker": "nobody", "order": "oldest"},
    {"status": "running,completed", "text": "no such text"},
]


async def fill(stores: Stores, count: int) -> None:
    now = stores.clock.now()
    labels: dict[str, Any] = {"author_id": "bulk", "tags": ("common",), "resources": ("db:main",)}
    template = admit(
        Task(id=fresh_id(now), name="ok", run_after=now + 86_400_000, team="everyone", ticket_ref="OPS-1", **labels),
        now=now,
    )
    for first in range(0, count, 5_000):
        numbers = range(first, min(first + 5_000, count))
        await stores.tasks.add(
            [structs.replace(template, id=fresh_id(now), description=f"number {number}") for number in numbers]
        )


async def flood(client: HttpClient, token: str, filters: dict[str, str], pages: list[int]) -> None:
    """Page after page, from the start again at the end."""
    cursor: str | None = None
    while True:
        query = urlencode(filters if cursor is None else {**filters, "cursor": cursor})
        response = await client.request(
            "GET", f"{API}/tasks?{query}", headers={"authorization": f"Bearer {token}"}, timeout=90
        )
        assert response.status == 200, response
        page = json.loads(response.body)
        assert page["items"] == []
        assert (page.get("next") is None) == ("is_partial" not in page)
        cursor = page.get("next")
        pages.append(len(pages))


async def took_ms(client: HttpClient, token: str, method: str, path: str, body: bytes = b"") -> list[float]:
    """How long each request takes, one after the other."""
    taken = []
    headers = {"authorization": f"Bearer {token}", **({"content-type": "application/json"} if body else {})}
    for _ in range(MEASURED):
        began = time.perf_counter()
        response = await client.request(method, f"{API}{path}", headers=headers, body=body, timeout=90)
        taken.append((time.perf_counter() - began) * 1000)
        assert response.status in (200, 201), response
    return taken


async def _are_read(pages: list[int], count: int, floods: list[asyncio.Task[None]]) -> bool:
    return len(pages) >= count or any(task.done() for task in floods)


def p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


async def _measured(served: Served, token: str) -> tuple[float, float]:
    """The 99th percentile of reading one's account, and of enqueuing, in milliseconds."""
    client = HttpClient(served.url)
    try:
        new = json.dumps({"name": "ok", "allow_unknown": True, "delay": 86_400}).encode()
        return (
            p99(await took_ms(client, token, "GET", "/me")),
            p99(await took_ms(client, token, "POST", "/tasks", new)),
        )
    finally:
        await client.close()


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "valkey"])
async def test_ten_worst_filters_of_one_viewer_delay_nobody_else(store: str, tmp_path: Path) -> None:
    async with served_on(store, tmp_path) as served:
        await fill(served.stores, 300_000)
        viewer = await served.token(Role.VIEWER)
        token = await served.token(Role.OPERATOR)
        _, alone_post = await _measured(served, token)
        pages: list[int] = []
        clients = [HttpClient(served.url) for _ in range(AT_ONCE)]
        floods = [
            asyncio.create_task(flood(client, viewer, filters, pages))
            for client, filters in zip(clients, cycle(WORST), strict=False)
        ]
        try:
            await eventually(partial(_are_read, pages, AT_ONCE, floods), 120)
            before = len(pages)
            for _ in range(MOST_TRIES):
                me, post = await _measured(served, token)
                if me < LONGEST_MS and post < max(2 * alone_post, SHORTEST_MS):
                    break
            await eventually(partial(_are_read, pages, before + 1, floods), 120)  # the floods were at work all the time
            assert not any(task.done() for task in floods), [task.exception() for task in floods if task.done()]
        finally:
            for task in floods:
                task.cancel()
            await asyncio.gather(*floods, return_exceptions=True)
            for client in clients:
                await client.close()
        print(f"\n{store}: GET /me {me:.1f} ms, POST /tasks {alone_post:.1f} -> {post:.1f} ms, {len(pages)} pages")
        assert me < LONGEST_MS
        assert post < max(2 * alone_post, SHORTEST_MS)
        assert (await served.stores.tasks.find(TaskQuery(author_id="the-operator", limit=1))).tasks
