"""Runs behind HTTP: deadlocks with them are found, and a lock that is taken away from them ends them at once."""

import asyncio

from ade import Ade, Client, Context, DeadlockVictim, Status, connect
from ade.locks.requests import request_id
from ade.worker.sweep import serve_locks
from tests.domain import LockQuery, Role
from tests.server.conftest import ServerHarness
from tests.waiting import eventually
from tests.worker.remote.conftest import at_work, far_app

SLOW_HEARTBEAT_S = 20


async def test_a_remote_parent_that_holds_what_its_child_needs_is_told(server: ServerHarness, app: Ade) -> None:
    token = await server.token(Role.WORKER)

    @app.task(max_attempts=1)
    async def child() -> str:
        return "done"

    @app.task(max_attempts=1)
    async def parent(ctx: Context) -> str:
        made = await ctx.enqueue(child.with_options(locks=["repo:app"]))
        client: Client
        async with connect(server.url, token=token) as client:
            try:
                await client.wait_for_task(made.id)
            except DeadlockVictim as error:
                return f"{made.id} {error}"
        return "no deadlock"

    async with at_work(server, app) as remote:
        said = await remote.result("parent", locks=["repo:app"])
        await serve_locks(server.stores)  # as the sweep does: the child has the lock now, and is due
        assert (await remote.final(said.split()[0])).status is Status.COMPLETED
    assert "waits for the lock on repo:app, held by task" in said


async def test_a_remote_run_that_holds_a_lock_of_its_own_is_part_of_the_graph(server: ServerHarness, app: Ade) -> None:
    token = await server.token(Role.WORKER)

    @app.task
    async def child() -> str:
        return "done"

    @app.task(max_attempts=1)
    async def parent(ctx: Context) -> None:
        async with ctx.lock("repo:app"), connect(server.url, token=token) as client:
            made = await ctx.enqueue(child.with_options(locks=["repo:app"]))
            await client.wait_for_task(made.id)

    async with at_work(server, app) as remote:
        ended = await remote.final(await remote.task("parent"))
    assert ended.error is not None
    assert (ended.error.kind, ended.error.type) == ("deadlock", "DeadlockVictim")


async def test_the_lock_of_a_remote_task_is_taken_away_and_its_run_ends_long_before_a_heartbeat(
    server: ServerHarness,
) -> None:
    app = far_app(**{"worker.lease_s": 90, "worker.heartbeat_s": SLOW_HEARTBEAT_S})

    @app.task(max_attempts=1)
    async def work() -> None:
        await asyncio.Event().wait()

    async with at_work(server, app) as remote:
        task_id = await remote.task("work", locks=["repo:app"])
        task = await remote.until(task_id, Status.RUNNING)
        await take_away(server, request_id(task))
        async with asyncio.timeout(SLOW_HEARTBEAT_S / 2):
            ended = await remote.final(task_id)
    assert ended.error is not None
    assert ended.error.type == "LockLost"


async def test_the_lock_of_a_remote_run_is_taken_away_and_it_ends_long_before_a_renewal(server: ServerHarness) -> None:
    app = far_app(**{"worker.lease_s": 90, "worker.heartbeat_s": SLOW_HEARTBEAT_S})

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        async with ctx.lock("repo:app", ttl=3_600):
            await asyncio.Event().wait()

    async with at_work(server, app) as remote:
        task_id = await remote.task("work")

        async def held() -> str | None:
            found = await server.stores.locks.find(LockQuery(namespace="default", resource="repo:app"))
            return next((one.id for one in found if one.is_granted), None)

        await take_away(server, await eventually(held))
        async with asyncio.timeout(9):  # a renewal comes every ten seconds
            ended = await remote.final(task_id)
    assert ended.error is not None
    assert ended.error.type == "LockLost"


async def take_away(server: ServerHarness, lock_id: str) -> None:
    answer = await server.ask("POST", "/api/v1/locks/force-release", {"id": lock_id, "reason": "it hangs"})
    assert answer.status == 200, answer
