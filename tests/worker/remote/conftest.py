"""A server, and a worker that knows nothing but its address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ade import Ade, Status, Task, work_over_http
from ade.settings import load
from ade.tasks.service import CompletionWatcher
from ade.worker.supervisor import Handover
from tests.domain import Role
from tests.server.conftest import ServerHarness, server, sqlite_server
from tests.waiting import eventually

__all__ = ["server", "sqlite_server"]

PATIENCE_S = 60.0


def far_app(**flags: object) -> Ade:
    """An app whose own store would be a mistake to open."""
    usual = {"store.url": "sqlite:////nowhere/at/all.db", "worker.lease_s": 30, "worker.heartbeat_s": 0.3}
    return Ade(settings=load(flags={**usual, **flags}, files=[]).settings)


class Remote:
    """A worker at work, and its tasks as the server has them."""

    def __init__(self, server: ServerHarness) -> None:
        self.server = server
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.job: asyncio.Task[Handover] | None = None
        self._watch = CompletionWatcher(server.stores)

    async def ended(self) -> Handover:
        self.stop.set()
        assert self.job is not None
        return await asyncio.wait_for(self.job, PATIENCE_S)

    async def task(self, name: str, args: dict[str, Any] | None = None, **more: object) -> str:
        made = await self.server.ask("POST", "/api/v1/tasks", {"name": name, "args": args or {}, **more})
        assert made.status == 201, made
        task_id: str = made.json()["id"]
        return task_id

    async def final(self, task_id: str) -> Task:
        return await self._watch.wait(task_id, PATIENCE_S)

    async def get(self, task_id: str) -> Task:
        [task] = await self.server.stores.tasks.get([task_id])
        assert task is not None
        return task

    async def until(self, task_id: str, status: Status) -> Task:
        async def look() -> Task | None:
            task = await self.get(task_id)
            return task if task.status is status else None

        return await eventually(look)

    async def result(self, name: str, args: dict[str, Any] | None = None, **more: object) -> Any:
        """What a task of this name returns."""
        return await self.value(await self.task(name, args, **more))

    async def value(self, task_id: str) -> Any:
        """What this task returns."""
        task = await self.final(task_id)
        assert task.status is Status.COMPLETED, task.error
        answer = await self.server.ask("GET", f"/api/v1/tasks/{task_id}/result")
        return answer.json()["result"]


@asynccontextmanager
async def at_work(server: ServerHarness, app: Ade, by: Role = Role.WORKER) -> AsyncIterator[Remote]:
    """A worker that is known to the server, for as long as the block lasts."""
    token, remote = await server.token(by), Remote(server)
    working = work_over_http(app, server.url, remote.stop, remote.hurry, token=token)
    remote.job = asyncio.create_task(working)

    async def is_known() -> bool:
        assert remote.job is not None
        if remote.job.done():
            remote.job.result()
        return any(worker.id.startswith("http:") for worker in await server.stores.workers.list_workers())

    await eventually(is_known)
    try:
        yield remote
    finally:
        remote.hurry.set()
        handover = await remote.ended()
        assert app.opener.opened is None, "it has opened a store"
    assert handover.left_behind == ()
    assert await server.stores.maintenance.check_invariants() == []


@pytest.fixture
def app() -> Ade:
    return far_app()
