"""Live events and lines over HTTP: nothing is missed, and everything ends when it should."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from ade import Task
from ade.accounts.authentication import authenticate
from ade.composition.app_store import services_on_store
from ade.server import streams
from ade.server.rate_limits import RateLimiter
from ade.server.request import ServerServices
from tests.domain import DONE, ClaimRequest, HttpClient, OutputLine, Role, UserChanges, change_user
from tests.server.conftest import ServerHarness, start_server
from tests.stores.urls import store_url

EVENTS = "/api/v1/events"


class Listener:
    """Blocks of a stream, as they come."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    async def block(self) -> dict[str, str]:
        """The next one; a comment has the name ''. Raises StopAsyncIteration at the end."""
        while b"\n\n" not in self._rest:
            self._rest += await asyncio.wait_for(anext(self._chunks), 60)
        text, _, self._rest = self._rest.partition(b"\n\n")
        pairs = [line.partition(": ") for line in text.decode().split("\n")]
        return {name: value for name, _, value in pairs}

    async def event(self) -> dict[str, str]:
        """The next block that tells something."""
        while "event" not in (block := await self.block()):
            pass
        return block


@asynccontextmanager
async def listening(server: ServerHarness, path: str, **headers: str) -> AsyncIterator[Listener]:
    token = headers.pop("token", None) or await server.token(Role.VIEWER)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"accept": "text/event-stream", "authorization": f"Bearer {token}", **given}
    async with server.client.stream("GET", path, headers=sent) as response:
        assert response.status == 200
        yield Listener(response.chunks())


async def test_whoever_listens_hears_what_happens_and_goes_on_where_he_was(server: ServerHarness) -> None:
    first = await server.task()
    async with listening(server, f"{EVENTS}?after=0&type=task.*") as listener:
        created = await listener.event()
        assert (created["event"], json.loads(created["data"])["task_id"]) == ("task.created", first["id"])
        second = await server.task()
        told = await listener.event()
        assert json.loads(told["data"])["task_id"] == second["id"]
    third = await server.task()
    async with listening(server, f"{EVENTS}?type=task.*", last_event_id=told["id"]) as listener:
        assert json.loads((await listener.event())["data"])["task_id"] == third["id"]


async def test_whoever_listens_to_a_lock_hears_of_it_alone(server: ServerHarness) -> None:
    async def acquired(name: str) -> str:
        answer = await server.ask("POST", "/api/v1/locks/acquire", {"locks": [name]})
        assert answer.status == 200, answer
        request_id: str = answer.json()["id"]
        return request_id

    async with listening(server, f"{EVENTS}?after=0&lock=repo%3Aapp") as listener:
        await acquired("repo:web")
        held = await acquired("repo:app")
        await server.task()
        told = await listener.event()
        assert (told["event"], json.loads(told["data"])["payload"]["request_id"]) == ("lock.acquired", held)
        await server.ask("POST", "/api/v1/locks/release", {"ids": [held]})
        assert (await listener.event())["event"] == "lock.released"
    page = await server.ask("GET", f"{EVENTS}?after=0&lock=repo%3Aapp")
    assert [event["type"] for event in page.json()["items"]] == ["lock.acquired", "lock.released"]


async def test_a_filter_that_is_none_is_refused_before_the_stream_begins(sqlite_server: ServerHarness) -> None:
    for query in ("type=%21", "lock=%7Bx", "nothing=1", "after=x", "after=1&after=2"):
        answer = await sqlite_server.ask("GET", f"{EVENTS}?{query}", accept="text/event-stream")
        assert (answer.status, bool(answer.code)) == (400, True), query


async def test_a_server_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        token = await server.token(Role.VIEWER)
        begun = asyncio.Event()
        ended = asyncio.create_task(_until_the_end(server.url, token, begun))
        await begun.wait()
    assert (await ended)[-1]["event"] == "end"


async def _until_the_end(url: str, token: str, begun: asyncio.Event) -> list[dict[str, str]]:
    heard: list[dict[str, str]] = []
    client = HttpClient(url)
    sent = {"accept": "text/event-stream", "authorization": f"Bearer {token}"}
    async with client.stream("GET", EVENTS, headers=sent) as response:
        listener = Listener(response.chunks())
        await listener.block()
        begun.set()
        while not heard or heard[-1]["event"] != "end":
            heard.append(await listener.event())
    await client.close()
    return heard


async def test_who_may_not_listen_any_more_hears_no_more(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.heartbeat_s": 1}) as server:
        token = await server.token(Role.VIEWER)
        async with listening(server, EVENTS, token=token) as listener:
            await listener.block()
            await change_user(server.stores, "the-viewer", UserChanges(roles=frozenset()))
            while (await listener.event())["event"] != "end":
                pass
            with pytest.raises(StopAsyncIteration):
                await listener.block()


async def test_who_reads_lines_slowly_is_asked_on_the_way_whether_he_still_may(sqlite_server: ServerHarness) -> None:
    """Where a task writes as fast as somebody reads, there is no end at which he could be asked."""
    task = await sqlite_server.task()
    [running] = await sqlite_server.stores.tasks.claim(
        ClaimRequest(worker_id="w", run_ids=["run-1"], names=frozenset({"greet"}))
    )
    await sqlite_server.stores.outputs.append([_line(running, str(number)) for number in range(1_200)])
    service = ServerServices(
        services=services_on_store(sqlite_server.stores, sqlite_server.app.settings),
        recognise=partial(authenticate, sqlite_server.stores),
        rates=RateLimiter(sqlite_server.stores),
        hosts=frozenset(),
        recheck_ms=0,
    )

    async def still_may() -> bool:
        return False

    heard = b"".join([chunk async for chunk in streams._lines(service, task["id"], 0, still_may)])
    assert 0 < heard.count(b"event: line") < 1_200


async def test_long_lines_are_sent_a_few_at_a_time(sqlite_server: ServerHarness) -> None:
    """Whoever does not take them keeps no more than that in memory."""
    task = await sqlite_server.task()
    [running] = await sqlite_server.stores.tasks.claim(
        ClaimRequest(worker_id="w", run_ids=["run-1"], names=frozenset({"greet"}))
    )
    sizes = [60_000] * 30 + [10] * 100 + [600_000] + [10] * 700
    await sqlite_server.stores.outputs.append([_line(running, "x" * size) for size in sizes])
    async with listening(sqlite_server, f"/api/v1/tasks/{task['id']}/output") as listener:
        heard = [len(json.loads((await listener.event())["data"])["text"]) for _ in sizes]
    assert heard == sizes

    service = ServerServices(
        services=services_on_store(sqlite_server.stores, sqlite_server.app.settings),
        recognise=partial(authenticate, sqlite_server.stores),
        rates=RateLimiter(sqlite_server.stores),
        hosts=frozenset(),
    )

    async def still_may() -> bool:
        return True

    seen, largest = 0, 0
    async for chunk in streams._lines(service, task["id"], 0, still_may):
        seen, largest = seen + chunk.count(b"event: line"), max(largest, len(chunk))
        if seen == len(sizes):
            break
    assert 600_000 < largest < 700_000  # the one that is longer than all else


async def test_all_places_may_be_taken(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.max_subscribers": 1}) as server:
        async with listening(server, EVENTS) as listener:
            await listener.block()
            refused = await server.ask("GET", EVENTS, accept="text/event-stream")
            assert (refused.status, refused.code) == (503, "unavailable")
            assert "retry-after" in refused.headers
        assert (await server.ask("GET", EVENTS)).status == 200  # pages are there for everybody


def _line(task: Task, text: str) -> OutputLine:
    return OutputLine(task_id=task.id, run_id=task.run_id or "", attempt=1, at=task.updated_at, text=text)


async def test_the_lines_of_a_task_come_as_they_are_written(server: ServerHarness) -> None:
    task = await server.task()
    request = ClaimRequest(worker_id="w", run_ids=["run-1"], names=frozenset({"greet"}))
    [running] = await server.stores.tasks.claim(request)
    async with listening(server, f"/api/v1/tasks/{task['id']}/output") as listener:
        await listener.block()
        await server.stores.outputs.append([_line(running, text) for text in ("one", "two")])
        lines = [json.loads((await listener.event())["data"])["text"] for _ in range(2)]
        assert lines == ["one", "two"]
        await server.ask("POST", f"/api/v1/tasks/{task['id']}/cancel")
        assert (await listener.event())["event"] == "end"


async def test_who_waits_for_lines_does_not_look_whenever_some_other_task_ends(sqlite_server: ServerHarness) -> None:
    task = await sqlite_server.task()
    async with listening(sqlite_server, f"/api/v1/tasks/{task['id']}/output") as listener:
        await listener.block()
        looks = 0

        async def count() -> None:
            nonlocal looks
            while await listener.block():  # a comment for each look
                looks += 1

        counting = asyncio.create_task(count())
        for _ in range(200):
            sqlite_server.stores.wakeups.notify(DONE)
            await sqlite_server.ask("GET", "/api/v1/queues")  # the server has had its turn
        counting.cancel()
    assert looks < 20
