"""Answers that get lost on their way back: nothing is done twice, and nobody has to wait for a lease to run out."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ade import Ade, Context, Retry, Status, work_over_http
from ade.common.http.pool import origin_of
from ade.worker.remote import backend
from tests.common.http.servers import Server, Visit, serving
from tests.domain import Role
from tests.server.conftest import ServerHarness
from tests.stalls import undisturbed
from tests.waiting import eventually
from tests.worker.remote.conftest import PATIENCE_S, Remote, far_app

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_LOST = frozenset({1, 2, 4})  # of the answers of each kind


class BadLine:
    """Carries every request to the server, and loses some of the answers."""

    def __init__(self, server: ServerHarness, loses: frozenset[int]) -> None:
        self._loses = loses
        self._port = origin_of(server.url).port
        self.answers: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.is_mute = False  # takes everything, and says nothing more
        self.drops = b"nothing"  # requests that name this get no answer
        self.swallows: set[str] = set()  # the next request of this kind is taken, and nothing more is heard of it

    async def behave(self, server: Server, visit: Visit) -> None:
        while request := await visit.request():
            kind = _kind(request)
            if self.is_mute or kind in self.swallows:
                self.swallows.discard(kind)
                return await visit.gone()
            if self.drops in request:
                return visit.drop()
            answer = await self._carry(request)
            if self._is_lost(request, answer):
                return visit.drop()
            await visit.say(answer)
        return None

    async def _carry(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            return head + (await reader.readexactly(int(length[1])) if length else b"")
        finally:
            writer.close()
            await writer.wait_closed()

    def _is_lost(self, request: bytes, answer: bytes) -> bool:
        """A claim that brought nothing is no loss."""
        kind = _kind(request)
        if b'{"runs":[]}' in answer:
            return False
        self.answers[kind] += 1
        is_lost = self.answers[kind] in self._loses
        self.lost[kind] += is_lost
        return is_lost


def _kind(request: bytes) -> str:
    return request.split(b" ", 2)[1].rpartition(b"/")[2].decode()


@asynccontextmanager
async def on_bad_line(
    server: ServerHarness, app: Ade, loses: frozenset[int] = frozenset(), *, returns: bool = False
) -> AsyncIterator[tuple[Remote, BadLine]]:
    """With `returns`, the worker may return tasks to the queue."""
    remote, line = Remote(server), BadLine(server, loses)
    async with serving(line.behave) as proxy:
        token = await server.token(Role.WORKER)
        remote.job = asyncio.create_task(work_over_http(app, proxy.url, remote.stop, remote.hurry, token=token))
        try:
            yield remote, line
        except BaseException:
            line.is_mute = False
            remote.hurry.set()
            await remote.ended()
            raise
        handover = await remote.ended()
        assert (handover.left_behind, returns or not handover.handed_back) == ((), True)


async def test_lost_answers_cost_nothing(server: ServerHarness) -> None:
    app, runs = far_app(**{"worker.lease_s": 60, "worker.heartbeat_s": 0.2}), Counter[tuple[str, int]]()

    @app.task
    async def child(ctx: Context, number: int) -> int:
        runs["child", ctx.attempt] += 1
        return number

    @app.task(max_attempts=3)
    async def parent(ctx: Context) -> str:
        runs["parent", ctx.attempt] += 1
        await ctx.progress({"attempt": ctx.attempt})
        async with ctx.lock("site:main"):
            if ctx.attempt == 1:
                raise Retry("once more", after=0)
            await ctx.enqueue(child, 5)
        return "well"

    async with on_bad_line(server, app, _LOST) as (remote, line):
        await eventually(partial(_is_defined, server, "parent"))
        ids = [await remote.task("parent") for _ in range(6)]
        ended = [await remote.final(task_id) for task_id in ids]
        assert [(task.status, task.attempt) for task in ended] == [(Status.COMPLETED, 2)] * 6
        listed = [(await server.ask("GET", f"/api/v1/tasks?parent={task_id}")).json()["items"] for task_id in ids]
        assert [len(children) for children in listed] == [1] * 6
        for [made] in listed:
            assert (await remote.final(made["id"])).status is Status.COMPLETED
        assert runs == {("parent", 1): 6, ("parent", 2): 6, ("child", 1): 6}
        missed = {kind for kind, count in line.lost.items() if count}
        assert missed >= {"claim", "heartbeat", "complete", "fail", "progress", "bulk", "acquire", "release"}


async def _is_defined(server: ServerHarness, name: str) -> bool:
    return any(each.name == name for each in await server.stores.workers.definitions())


@pytest.mark.realtime
async def test_a_run_is_ended_before_its_lease_is_though_the_server_only_hangs(sqlite_server: ServerHarness) -> None:
    """Nothing is refused and nothing breaks: a renewal that waits for its answer must not cost the certainty."""
    lease_s = 2.0

    async def story() -> None:
        app = far_app(**{"worker.lease_s": lease_s, "worker.heartbeat_s": 0.45, "worker.grace_s": 0.1})
        began, ended = asyncio.Event(), asyncio.Event()

        @app.task(name=f"long-{os.urandom(4).hex()}")
        async def long() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with on_bad_line(sqlite_server, app, returns=True) as (remote, line):
            await eventually(partial(_is_defined, sqlite_server, long.name))
            await remote.task(long.name)
            await asyncio.wait_for(began.wait(), PATIENCE_S)
            line.is_mute = True
            muted_at = time.monotonic()
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            assert time.monotonic() - muted_at < lease_s
            line.is_mute = False

    await undisturbed(story, stall_s=0.2)


async def test_a_cancelled_run_ends_although_the_rest_of_the_heartbeat_is_lost(
    server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_MOST_RUNS", 1)  # so that two runs are renewed one after the other
    app, ended, may_end = far_app(**{"worker.heartbeat_s": 0.1}), asyncio.Event(), asyncio.Event()

    @app.task
    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.task
    async def second() -> None:
        await may_end.wait()

    async with on_bad_line(server, app) as (remote, line):
        await eventually(partial(_is_defined, server, "second"))
        [one, other] = [await remote.task("first"), await remote.task("second")]
        for task_id in (one, other):
            await remote.until(task_id, Status.RUNNING)
        line.drops = f"{(await remote.get(other)).run_id}".encode()
        await server.ask("POST", f"/api/v1/tasks/{one}/cancel", {})
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        line.drops = b"nothing"
        may_end.set()
        assert (await remote.final(other)).status is Status.COMPLETED


@pytest.mark.realtime
async def test_a_request_that_hangs_does_not_cost_a_lock(sqlite_server: ServerHarness) -> None:
    async def story() -> None:
        app, has_it = far_app(), asyncio.Event()

        @app.task(name=f"long-{os.urandom(4).hex()}")
        async def long(ctx: Context) -> int:
            async with ctx.lock("site:main", ttl=4):
                has_it.set()
                await asyncio.sleep(3.2)  # it is sure of its lock for 3 seconds, unless it is renewed
            return ctx.attempt

        async with on_bad_line(sqlite_server, app) as (remote, line):
            await eventually(partial(_is_defined, sqlite_server, long.name))
            task_id = await remote.task(long.name)
            await asyncio.wait_for(has_it.wait(), PATIENCE_S)
            line.swallows.add("renew")
            task = await remote.final(task_id)
            assert (task.status, task.attempt, line.swallows) == (Status.COMPLETED, 1, set())

    await undisturbed(story, stall_s=0.2)
