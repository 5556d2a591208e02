"""Workers behind HTTP that stop, and servers that do."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from ade import Ade, Context, Status, work_over_http
from tests.domain import NotAuthenticated, Role, list_tokens, revoke_token
from tests.server.conftest import ServerHarness, start_server
from tests.servers.ports import ReservedPort
from tests.stores.urls import store_url
from tests.waiting import eventually
from tests.worker.remote.conftest import PATIENCE_S, Remote, at_work, far_app


async def test_a_worker_that_stops_lets_what_runs_come_to_its_end(server: ServerHarness, app: Ade) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with at_work(server, app) as remote:
        task_id = await remote.task("slow")
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        remote.stop.set()
        await _is_draining(server)
        later = await remote.task("slow")
        go_on.set()
        handover = await remote.ended()
        assert task_id not in handover.handed_back
        assert (await remote.get(task_id)).status is Status.COMPLETED
        assert (await remote.get(later)).status is Status.PENDING
        workers = await server.stores.workers.list_workers()
        assert not [worker for worker in workers if worker.id.startswith("http:")]


async def _is_draining(server: ServerHarness) -> None:
    async def look() -> bool:
        return any(worker.draining for worker in await server.stores.workers.list_workers())

    await eventually(look)


async def test_one_that_must_hurry_hands_back_what_runs(server: ServerHarness, app: Ade) -> None:
    began = asyncio.Event()

    @app.task
    async def endless(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    async with at_work(server, app) as remote:
        task_id = await remote.task("endless")
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        remote.hurry.set()
        handover = await remote.ended()
        task = await remote.get(task_id)
        assert (handover.handed_back, task.status, task.attempt) == ((task_id,), Status.PENDING, 0)


async def test_one_that_waits_for_work_stops_at_once(sqlite_server: ServerHarness, app: Ade) -> None:
    @app.task
    async def plain() -> None: ...

    async with at_work(sqlite_server, app) as remote:
        began = time.monotonic()
        await remote.ended()
        assert time.monotonic() - began < app.settings.worker.lease_s / 2  # as long as a claim waits


async def test_a_server_that_was_away_gets_the_result_when_it_is_back(tmp_path: Path) -> None:
    app, began, go_on, runs = far_app(), asyncio.Event(), asyncio.Event(), list[int]()

    @app.task
    async def slow(ctx: Context) -> str:
        runs.append(ctx.attempt)
        began.set()
        await go_on.wait()
        await ctx.log("the server was away")
        await ctx.progress(1)
        return "kept"

    url, reserved = store_url("sqlite", tmp_path), ReservedPort()  # a port that who tries to reach it does not take
    stop = asyncio.Event()
    async with start_server(url, tmp_path, **{"http.port": reserved.number}) as server:
        token = await server.token(Role.WORKER)
        working = asyncio.create_task(work_over_http(app, server.url, stop, token=token))
        remote = Remote(server)
        await eventually(lambda: _knows(server))
        task_id = await remote.task("slow")
        await asyncio.wait_for(began.wait(), PATIENCE_S)
    go_on.set()  # now nobody is there to be told
    async with start_server(url, tmp_path, **{"http.port": reserved.number}) as server:
        remote = Remote(server)
        ended = await remote.final(task_id)
        assert (ended.status, bytes(ended.result or b""), runs) == (Status.COMPLETED, b'"kept"', [1])
        lines = await server.stores.outputs.read_output(task_id, 0, 10)
        assert [line.text for line in lines] == ["the server was away"]
        stop.set()
        handover = await asyncio.wait_for(working, PATIENCE_S)
        assert handover.left_behind == ()
    reserved.release()


async def _knows(server: ServerHarness) -> bool:
    return any(worker.id.startswith("http:") for worker in await server.stores.workers.list_workers())


@pytest.mark.realtime
async def test_a_server_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    app, runs = far_app(), Counter[int]()

    @app.task
    async def quick(number: int) -> int:
        runs[number] += 1
        return number

    rate = {"http.work_rate": "30/s"}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **rate) as server, at_work(server, app) as remote:
        batch = {"tasks": [{"name": "quick", "args": {"number": number}} for number in range(90)]}
        made = (await server.ask("POST", "/api/v1/tasks/bulk", batch)).json()["items"]
        ended = [await remote.final(task["id"]) for task in made]
        assert {task.status for task in ended} == {Status.COMPLETED}
        assert runs == Counter(range(90))


async def test_a_worker_waits_for_its_server_to_start(tmp_path: Path) -> None:
    app, stop = far_app(), asyncio.Event()

    @app.task
    async def plain() -> int:
        return 1

    url, reserved = store_url("sqlite", tmp_path), ReservedPort()
    async with start_server(url, tmp_path, **{"http.port": reserved.number}) as server:
        token, address = await server.token(Role.WORKER), server.url
    early = asyncio.create_task(work_over_http(app, address, stop, token=token))
    async with start_server(url, tmp_path, **{"http.port": reserved.number}) as server:
        await eventually(lambda: _knows(server))
        assert await Remote(server).result("plain") == 1
        stop.set()
        await asyncio.wait_for(early, PATIENCE_S)
    reserved.release()


async def test_one_that_was_never_answered_can_be_stopped() -> None:
    app, stop = far_app(), asyncio.Event()

    @app.task
    async def plain() -> None: ...

    working = asyncio.create_task(work_over_http(app, "http://127.0.0.1:9", stop, token="ade_x"))
    await asyncio.sleep(0)
    stop.set()
    handover = await asyncio.wait_for(working, PATIENCE_S)
    assert handover.left_behind == ()


@pytest.mark.long  # a claim that waits at the server ends first
async def test_a_worker_whose_token_was_revoked_stops_and_says_so(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def plain() -> int:
        return 1

    token, stop = await server.token(Role.WORKER), asyncio.Event()
    working = asyncio.create_task(work_over_http(app, server.url, stop, token=token))
    await eventually(lambda: _knows(server))
    for each in await list_tokens(server.stores, "the-worker"):
        await revoke_token(server.stores, each.id)
    await server.task(name="plain", allow_unknown=True)  # ends the claim that waits

    with pytest.raises(NotAuthenticated, match="rejected the token of this worker"):
        await asyncio.wait_for(working, PATIENCE_S)
    assert stop.is_set()
