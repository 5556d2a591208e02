"""Workers behind HTTP run what workers on the store run: in every mode, with all that a run may ask for."""

import asyncio
import os
import threading
from collections import Counter

import pytest

from ade import Ade, Context, LockTimeout, Preview, RateLimited, Retry, Status, SyncContext, TaskHandle, Unrecoverable
from ade.errors import InvalidTask
from ade.failures import FailureKind
from ade.locks.model import DEFAULT_NAMESPACE
from ade.settings import SettingsError
from tests.domain import LockQuery, Role
from tests.server.conftest import ServerHarness
from tests.stalls import undisturbed
from tests.waiting import eventually
from tests.worker.remote.computing import compute
from tests.worker.remote.conftest import PATIENCE_S, at_work, far_app


async def test_functions_of_every_mode_run_and_their_results_are_kept(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def greeting(name: str) -> str:
        return f"hello {name}"

    @app.task
    def length(text: str, ctx: SyncContext) -> tuple[int, bool]:
        ctx.progress(len(text))
        ctx.log("one")
        ctx.print("two", stream="stderr")
        return len(text), threading.current_thread().name.startswith("ade-handler")

    app.task(cpu=True)(compute)
    async with at_work(server, app) as remote:
        assert await remote.result("greeting", {"name": "Ann"}) == "hello Ann"
        assert await remote.result("length", {"text": "x" * 300_000}) == [300_000, True]
        computed = await remote.result("compute", {"number": 12})
        assert computed["square"] == 144
        assert computed["pid"] != os.getpid()
        tasks = (await server.ask("GET", "/api/v1/tasks?name=length")).json()["items"]
        output = await server.ask("GET", f"/api/v1/tasks/{tasks[0]['id']}/output")
        assert [(line["text"], line["stream"]) for line in output.json()["items"]] == [
            ("one", "log"),
            ("two", "stderr"),
        ]
        assert bytes((await remote.get(tasks[0]["id"])).progress or b"") == b"300000"


async def test_a_large_result_goes_whole(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def repeat(text: str, times: int) -> str:
        return text * times

    async with at_work(server, app) as remote:
        assert len(await remote.result("repeat", {"text": "long", "times": 100_000})) == 400_000
        too_large = await remote.task("repeat", {"text": "long", "times": 3_000_000})
        failed = await remote.final(too_large)
        assert failed.status is Status.FAILED
        assert failed.error is not None
        assert (failed.error.kind, "too_large" in failed.error.message) == (FailureKind.BAD_RESULT, True), failed.error


async def test_failures_mean_what_they_always_mean(server: ServerHarness, app: Ade) -> None:
    asked = Counter[str]()

    @app.task(max_attempts=2)
    async def fail(how: str, ctx: Context) -> int:
        asked[how] += 1
        if asked[how] > 1:
            return ctx.attempt
        if how == "retry":
            raise Retry("again", after=0)
        if how == "rate":
            raise RateLimited("slowly", retry_after=0)
        if how == "never":
            raise Unrecoverable("no use")
        if how == "result":
            return "no number"  # type: ignore[return-value] # that is the point
        await asyncio.Event().wait()
        return 0

    async with at_work(server, app) as remote:
        assert await remote.result("fail", {"how": "retry"}) == 2
        assert await remote.result("fail", {"how": "rate"}) == 1  # which uses up no attempt
        kinds = {"never": FailureKind.UNRECOVERABLE, "result": FailureKind.BAD_RESULT}
        for how, kind in kinds.items():
            task = await remote.final(await remote.task("fail", {"how": how}))
            assert task.error is not None
            assert (task.status, task.error.kind, task.attempt) == (Status.FAILED, kind, 1)
        late = await remote.final(await remote.task("fail", {"how": "hang"}, timeout=0.2, max_attempts=1))
        assert late.error is not None
        assert late.error.kind is FailureKind.TIMED_OUT


async def test_a_run_enqueues_children_once(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def child(number: int) -> int:
        return number + 1

    @app.task
    async def parent(ctx: Context) -> str:
        handle = await ctx.enqueue(child.with_options(tags=["small"], priority=2), 41)
        assert isinstance(handle, TaskHandle)
        return handle.id

    async with at_work(server, app) as remote:
        task_id = await remote.task("parent")
        assert (await remote.final(task_id)).status is Status.COMPLETED
        [made] = (await server.ask("GET", f"/api/v1/tasks?parent={task_id}")).json()["items"]
        assert (made["tags"], made["priority"], made["name"]) == (["small"], 2, "child")
        assert bytes((await remote.final(made["id"])).result or b"") == b"42"


async def test_what_needs_the_store_says_so(sqlite_server: ServerHarness, app: Ade) -> None:
    @app.task
    async def pay(how: str, ctx: Context) -> None:
        if how == "once":
            await ctx.once("bill-7", lambda: "paid")
        elif how == "allows":
            await ctx.allows("shell", {})
        else:
            await app.handle(ctx.task_id).status()

    async with at_work(sqlite_server, app) as remote:
        for how, word in (("once", "ctx.once"), ("allows", "ctx.allows"), ("handle", "has no store")):
            task = await remote.final(await remote.task("pay", {"how": how}))
            assert task.error is not None
            assert (task.error.type, task.attempt, word in task.error.message) == ("NeedsStore", 1, True), task.error


async def test_a_cancelled_task_is_told_so(server: ServerHarness, app: Ade) -> None:
    began, told = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    async with at_work(server, app) as remote:
        task_id = await remote.task("endless")
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        assert (await server.ask("POST", f"/api/v1/tasks/{task_id}/cancel")).status == 200
        await asyncio.wait_for(told.wait(), PATIENCE_S)
        assert (await remote.get(task_id)).status is Status.CANCELLED


async def test_locks_come_with_tasks_and_can_be_asked_for(server: ServerHarness, app: Ade) -> None:
    entered, go_on, seen = asyncio.Event(), asyncio.Event(), list[str]()

    @app.task
    async def deploy(ctx: Context) -> list[int]:
        async with ctx.lock("repo:app") as lock, ctx.lock("site:main"):
            entered.set()
            await go_on.wait()
            return [ctx.token("site:main"), lock.token()]

    @app.task
    def wait_for_it(ctx: SyncContext) -> str:
        with ctx.lock("repo:app", wait=60):
            seen.append("had it")
        return "done"

    async with at_work(server, app) as remote:
        first = await remote.task("deploy", locks=["site:main"])
        await asyncio.wait_for(entered.wait(), PATIENCE_S)
        held = await server.stores.locks.find(LockQuery(namespace=DEFAULT_NAMESPACE, limit=10))
        assert sorted(name for request in held for name in request.resources) == ["repo:app", "site:main"]
        second = await remote.task("wait_for_it")

        async def is_in_line() -> bool:
            found = await server.stores.locks.find(
                LockQuery(namespace=DEFAULT_NAMESPACE, resource="repo:app", limit=10)
            )
            return any(request.is_waiting for request in found)

        await eventually(is_in_line)
        assert seen == []
        go_on.set()
        ended = await remote.final(first)
        assert ended.status is Status.COMPLETED, ended.error
        assert (await remote.final(second)).status is Status.COMPLETED
        assert seen == ["had it"]

        async def is_free() -> bool:
            return await server.stores.locks.find(LockQuery(namespace=DEFAULT_NAMESPACE, limit=10)) == []

        await eventually(is_free)


async def test_a_run_whose_lock_is_taken_away_fails_and_may_run_again(server: ServerHarness, app: Ade) -> None:
    entered, told = asyncio.Event(), list[int]()

    @app.task(max_attempts=2)
    async def deploy(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "better"
        try:
            async with ctx.lock("repo:app", ttl=6):
                entered.set()
                await asyncio.Event().wait()
        finally:
            told.append(ctx.attempt)
        return "unprotected"

    async with at_work(server, app) as remote:
        task_id = await remote.task("deploy", backoff={"base_ms": 0, "cap_ms": 0})
        await asyncio.wait_for(entered.wait(), PATIENCE_S)
        [grant] = await server.stores.locks.find(LockQuery(namespace=DEFAULT_NAMESPACE, limit=10))
        await server.stores.locks.take_away(DEFAULT_NAMESPACE, grant.id, reason="needed", by="ops")
        ended = await remote.final(task_id)
        assert (ended.status, bytes(ended.result or b""), told) == (Status.COMPLETED, b'"better"', [1])


@pytest.mark.realtime
async def test_a_lock_is_kept_for_longer_than_its_lease(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def deploy(ctx: Context) -> bool:
        async with ctx.lock("repo:app", ttl=1) as lock:
            before = lock.token()
            await asyncio.sleep(2.5)
            return lock.token() == before

    async with at_work(server, app) as remote:
        assert await undisturbed(lambda: remote.result("deploy", max_attempts=1), stall_s=0.2) is True


async def test_those_who_wait_for_a_lock_do_not_keep_it_from_being_given_back(
    sqlite_server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: each waits at the server, and there must still be a way for whoever has it."""
    monkeypatch.setattr("ade.worker.remote.connection._LEAST_CONNECTIONS", 2)
    monkeypatch.setattr("ade.locks.http_client.TURN_S", 30.0)  # until a wait in line is asked for anew
    app, count = far_app(**{"worker.concurrency": 8}), 8
    in_line, entered = asyncio.Barrier(count), []

    @app.task
    async def deploy(ctx: Context) -> None:
        await in_line.wait()
        async with ctx.lock("repo:app"):
            entered.append(ctx.task_id)

    async with at_work(sqlite_server, app) as remote:
        ids = [await remote.task("deploy") for _ in range(count)]
        async with asyncio.timeout(28):
            assert {(await remote.final(task_id)).status for task_id in ids} == {Status.COMPLETED}
    assert sorted(entered) == sorted(ids)


async def test_whoever_waits_for_a_lock_too_long_gives_up(server: ServerHarness, app: Ade) -> None:
    entered = asyncio.Event()

    @app.task
    async def hold_it(ctx: Context) -> None:
        async with ctx.lock("repo:app"):
            entered.set()
            await asyncio.Event().wait()

    @app.task
    async def want_it(ctx: Context) -> str:
        try:
            async with ctx.lock("repo:app", wait=0.05):
                return "had it"
        except LockTimeout:
            return "gave up"

    async with at_work(server, app) as remote:
        await remote.task("hold_it")
        await asyncio.wait_for(entered.wait(), PATIENCE_S)
        assert await remote.result("want_it") == "gave up"


async def test_what_is_previewed_is_left_to_workers_on_the_store(sqlite_server: ServerHarness, app: Ade) -> None:
    @app.task
    async def drop(table: str) -> None: ...

    @drop.preview
    async def what(table: str) -> Preview:
        return Preview(changes=[f"drops {table}"])

    with pytest.raises(InvalidTask, match="preview"):
        async with at_work(sqlite_server, app):
            pass

    @app.task
    async def plain() -> int:
        return 1

    async with at_work(sqlite_server, app) as remote:
        assert await remote.result("plain") == 1
        known = (await sqlite_server.ask("GET", "/api/v1/definitions")).json()["items"]
        assert {"drop", "drop:preview"}.isdisjoint(each["name"] for each in known)


@pytest.mark.parametrize(
    ("flags", "word"),
    [({"agents.types": "echo"}, "agents.types"), ({"worker.agent": "a", "worker.max_tasks": 3}, "max_tasks")],
)
async def test_settings_of_workers_on_the_store_are_refused(
    sqlite_server: ServerHarness, flags: dict[str, object], word: str
) -> None:
    app = far_app(**flags)

    @app.task
    async def plain() -> None: ...

    with pytest.raises(SettingsError, match=word):
        async with at_work(sqlite_server, app):
            pass


async def test_the_rules_of_a_definition_reach_the_server(sqlite_server: ServerHarness, app: Ade) -> None:
    @app.task(queue="mail", rate="10/30s", concurrency=2, needs=["smtp"], timeout=90, max_attempts=7)
    async def send(to: str) -> None: ...

    async with at_work(sqlite_server, app):
        known = {each.name: each for each in await sqlite_server.stores.workers.definitions()}["send"]
        assert known in app.registry.definitions()


async def test_whoever_may_not_work_is_told(sqlite_server: ServerHarness, app: Ade) -> None:
    @app.task
    async def plain() -> None: ...

    with pytest.raises(Exception, match="work") as refused:
        async with at_work(sqlite_server, app, by=Role.VIEWER):
            pass
    assert getattr(refused.value, "code", "") == "not_permitted"
