"""How many files a reader has to open to follow a request: those whose code runs, in every thread, once all is warm.

A limit above its goal is the present figure: it can only go down. The worker's loops can add a file or two to a lock.
"""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from ade import Ade, Context
from ade.approvals.repository import apply
from ade.settings import load
from tests.architecture.repository import SOURCE
from tests.domain import Role, read_rulebook
from tests.server.conftest import start_server
from tests.servers.pool import POOL

MOST = {
    "enqueue on SQLite": 14,
    "enqueue on Redis": 17,  # goal: 16
    "lock on SQLite": 20,  # goal: 14
    "list over HTTP": 22,
    "vote over HTTP": 46,  # goal: 32
}


class Trace:
    """The files of ADE whose functions were called while it was on."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False
        self._root = f"{SOURCE}/"

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(self._root):
            self.files.add(frame.f_code.co_filename.removeprefix(self._root))

    @contextmanager
    def on(self) -> Iterator[None]:
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


@pytest.fixture
def trace() -> Iterator[Trace]:
    """Set before any thread of a store starts, so that it sees all of them."""
    made = Trace()
    threading.setprofile(made)
    sys.setprofile(made)
    yield made
    sys.setprofile(None)
    threading.setprofile(None)


async def files_of(trace: Trace, act: Callable[[], Awaitable[object]]) -> set[str]:
    """The files that every call crosses once others have warmed every cache; background work does not cross all."""
    for _ in range(3):
        await act()
    seen = []
    for _ in range(3):
        trace.files = set()
        with trace.on():
            await act()
        seen.append(trace.files)
    return set.intersection(*seen)


def check(name: str, files: set[str]) -> None:
    print(f"{name}: {len(files)} files")
    assert len(files) <= MOST[name], sorted(files)


@pytest.mark.parametrize("store", ["SQLite", "Redis"])
async def test_enqueue(trace: Trace, tmp_path: Path, store: str) -> None:
    url = f"sqlite:///{tmp_path / 'ade.db'}" if store == "SQLite" else POOL.standalone("valkey").url
    settings = load(flags={"store.url": url, "redis.allow_volatile": True}, files=[]).settings
    async with Ade(settings=settings) as app:

        @app.task
        async def greet(name: str) -> str:
            return name

        check(f"enqueue on {store}", await files_of(trace, lambda: greet.enqueue("Ada")))


async def test_a_lock_in_a_task(trace: Trace, tmp_path: Path) -> None:
    app, seen = Ade(f"sqlite:///{tmp_path / 'ade.db'}"), asyncio.Queue[set[str]]()

    @app.task
    async def hold(ctx: Context) -> None:
        async def lock() -> None:
            async with ctx.lock("database:main"):
                pass

        seen.put_nowait(await files_of(trace, lock))

    async with app, app.worker():
        await hold.enqueue()
        check("lock on SQLite", await asyncio.wait_for(seen.get(), 60))


CLIENT = {"common/http/connection.py", "common/http/pool.py"}  # of the test itself


async def test_a_list_over_http(trace: Trace, tmp_path: Path) -> None:
    async with start_server(f"sqlite:///{tmp_path / 'ade.db'}", tmp_path) as server:
        await server.task()
        files = await files_of(trace, lambda: server.ask("GET", "/api/v1/tasks", by=Role.VIEWER))
        check("list over HTTP", files - CLIENT)


async def test_a_vote_over_http(trace: Trace, tmp_path: Path) -> None:
    async with start_server(f"sqlite:///{tmp_path / 'ade.db'}", tmp_path) as server:
        rules = {"policy": [{"id": "one", "names": ["greet"], "rules": [{"needed": 1, "roles": ["reviewer"]}]}]}
        await apply(server.stores, read_rulebook(rules), actor="root")
        tasks = [await server.task(approval=["one"]) for _ in range(6)]

        async def vote() -> None:
            task = tasks.pop()
            shown = {"approval": f"{task['id']}.1", "digest": task["digest"]}
            body = {"decision": "approve", **shown, "reason": "fine"}
            answer = await server.ask("POST", f"/api/v1/approvals/{task['id']}/respond", body, by=Role.REVIEWER)
            assert (answer.status, answer.json()["state"]) == (200, "approved"), answer

        check("vote over HTTP", await files_of(trace, vote) - CLIENT)
