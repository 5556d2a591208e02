"""Attack: people approve a task, and other code than the one they approved runs it."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ade import Ade, Context
from ade.composition import remote_worker
from ade.settings import load
from ade.settings import runtime as settings_runtime
from tests.attacks.site import Site
from tests.domain import Role, User, add_user, create_token
from tests.waiting import eventually

GUARD = [{"do": "demand", "name": "transfer", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
Tasks = Callable[[Ade, list[Any]], None]


def _honest(app: Ade, done: list[Any]) -> None:
    @app.task(name="transfer", queue="far")
    async def wire(to: str) -> str:
        done.append({"wired": to})
        return "honest"


def _crooked(app: Ade, done: list[Any]) -> None:
    @app.task(name="transfer", queue="far")
    async def wire(to: str) -> str:
        done.append({"wired": "mallory"})
        return "crooked"


def _declared(version: str) -> Tasks:
    def tasks(app: Ade, done: list[Any]) -> None:
        @app.task(name="transfer", queue="far", version=version)
        async def wire(to: str) -> str:
            done.append({"wired": to, "version": version})
            return version

    return tasks


def _holding(version: str) -> Tasks:
    def tasks(app: Ade, done: list[Any]) -> None:
        @app.task(name="transfer", queue="far", version=version)
        async def wire(ctx: Context, to: str) -> str:
            await ctx.hold("send it", about={"to": to}, policy="one")
            done.append({"wired": to, "version": version})
            return version

    return tasks


@asynccontextmanager
async def _here(site: Site, tasks: Tasks, **flags: object) -> AsyncIterator[None]:
    """A worker on the store."""
    known = site.server.app.settings
    chosen = {"store.url": known.store.url, "redis.allow_volatile": True, "events.audit_url": known.events.audit_url}
    app = Ade(settings=load(flags={**chosen, **flags}, files=[]).settings)
    tasks(app, site.done)
    async with app, app.worker(queues=["far"]):
        yield


@asynccontextmanager
async def _behind_http(site: Site, tasks: Tasks, **flags: object) -> AsyncIterator[None]:
    chosen = {"store.url": "sqlite:////nowhere/at/all.db", "worker.queues": "far", **flags}
    app, stop = Ade(settings=load(flags=chosen, files=[]).settings), asyncio.Event()
    tasks(app, site.done)
    token = site.server.tokens["machine"]
    job = asyncio.create_task(remote_worker.work_over_http(app, site.server.url, stop, asyncio.Event(), token=token))
    try:
        yield
    finally:
        stop.set()
        await job


WORKERS = pytest.mark.parametrize("worker", [_here, _behind_http], ids=["here", "http"])
Work = Callable[..., Any]


async def _registered(site: Site, work: Work, tasks: Tasks, **flags: object) -> None:
    """A worker has been there, and has left."""
    async with work(site, tasks, **flags):
        await _until_registered(site)


async def _until_registered(site: Site) -> None:
    async def look() -> bool:
        workers = await site.stores.workers.list_workers()
        return any("transfer" in worker.names for worker in workers)

    await eventually(look)


async def _approved(site: Site, **fields: object) -> str:
    task_id: str = (await site.enqueue("transfer", "bot", args={"to": "landlord"}, queue="far", **fields))["id"]
    answer = await site.vote("rita", task_id)
    assert answer.status == 200, answer
    return task_id


async def _events(site: Site, task_id: str, kind: str) -> list[dict[str, Any]]:
    page = (await site.ask("olga", "GET", f"/tasks/{task_id}/events?limit=100")).json()
    return [event["payload"] for event in page["items"] if event["type"] == kind]


@WORKERS
async def test_other_code_does_not_run_what_was_approved(site: Site, worker: Work) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await _registered(site, worker, _honest)
    task_id = await _approved(site)
    approved = (await site.task(task_id)).review.gates[-1].code  # type: ignore[union-attr]
    async with worker(site, _crooked):
        task = await site.until(task_id, "reviewing")
        assert site.done == []
        assert task.review is not None
        stale, asked = task.review.gates
        assert (stale.state, asked.state) == ("stale", "open")
        assert asked.code not in ("", approved)
        assert asked.digest != stale.digest
        reason = f"the code has changed since it was approved (version {asked.code}, approved {approved})"
        assert asked.reason == reason
        explained = (await site.ask("olga", "GET", f"/tasks/{task_id}/explain")).json()
        assert reason in str(explained)
        [told] = await _events(site, task_id, "approval.stale")
        assert (told["approval"], told["digest"], told["reason"]) == (stale.id, stale.digest, reason)
        await site.vote("rob", task_id)  # who has looked at the new code
        await site.until(task_id, "completed")
    assert site.done == [{"wired": "mallory"}]


@WORKERS
async def test_the_same_code_runs_after_a_restart(site: Site, worker: Work) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await _registered(site, worker, _honest)
    task_id = await _approved(site)
    async with worker(site, _honest):
        await site.until(task_id, "completed")
    assert site.done == [{"wired": "landlord"}]


@WORKERS
async def test_a_declared_version_counts_instead_of_the_source(site: Site, worker: Work) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await _registered(site, worker, _declared("1.0"))
    task_id = await _approved(site)
    async with worker(site, _declared("2.0")):
        task = await site.until(task_id, "reviewing")
        assert task.review is not None
        assert task.review.gates[-1].code == "2.0"
        assert "(version 2.0, approved 1.0)" in task.review.gates[-1].reason
    assert site.done == []


@WORKERS
async def test_a_worker_that_hides_its_version_does_not_run_it(site: Site, worker: Work) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await _registered(site, worker, _honest)
    task_id = await _approved(site)
    async with worker(site, _crooked, **{"worker.code_version": "off"}):
        await site.until(task_id, "reviewing")
    assert site.done == []


@WORKERS
async def test_nor_does_a_step_that_was_approved_for_other_code_go_on(site: Site, worker: Work) -> None:
    await site.rules(policy=POLICY)
    async with worker(site, _holding("1.0")):
        await _until_registered(site)
        task_id = (await site.enqueue("transfer", args={"to": "landlord"}, queue="far"))["id"]
        await site.until(task_id, "reviewing")
    await site.vote("rita", task_id)
    async with worker(site, _holding("2.0")):
        task = await site.until(task_id, "reviewing")
        assert task.review is not None
        assert [gate.code for gate in task.review.gates] == ["1.0", "2.0"]
        assert site.done == []
        await site.vote("rob", task_id)
        await site.until(task_id, "completed")
    assert site.done == [{"wired": "landlord", "version": "2.0"}]


@WORKERS
@pytest.mark.parametrize("is_required", [False, True], ids=["allowed", "required"])
async def test_code_that_no_one_knew_is_approved_again_where_that_is_required(
    site: Site, worker: Work, is_required: bool
) -> None:
    """By default people may approve a task before its first worker is there: they are shown that no code is known."""
    await site.rules(guard=GUARD, policy=POLICY)
    await settings_runtime.switch(site.stores, "require_code_version", is_required, actor="ada")
    task_id = await _approved(site, allow_unknown=True)
    async with worker(site, _honest):
        task = await site.until(task_id, "reviewing" if is_required else "completed")
    assert task.review is not None
    assert bool(site.done) is not is_required
    if is_required:
        assert task.review.gates[-1].reason.startswith("no version of the code was known when it was approved")


def _undoable(version: str, recipient: str = "") -> Tasks:
    """What the functions call decides who gets the money, which no hash of their source shows."""

    def tasks(app: Ade, done: list[Any]) -> None:
        def note(what: str, to: str) -> str:
            done.append({what: recipient or to})
            return what

        @app.task(name="transfer", queue="far", version=version)
        async def wire(to: str) -> str:
            return note("wired", to)

        @wire.rollback
        async def undo(to: str) -> str:
            return note("undone", to)

    return tasks


ROLLBACKS = [{**GUARD[0], "name": "transfer*"}]


async def test_a_declared_version_covers_the_rollback(site: Site) -> None:
    """Workers behind HTTP run no task that has a rollback."""
    await site.rules(guard=ROLLBACKS, policy=POLICY)
    await settings_runtime.switch(site.stores, "require_code_version", True, actor="ada")
    only_declared = {"worker.code_version": "declared"}
    async with _here(site, _undoable("1.0"), **only_declared):
        await _until_registered(site)
        task_id = await _approved(site)
        await site.until(task_id, "completed")
        undo = (await site.ask("olga", "POST", f"/tasks/{task_id}/rollback")).json()["id"]
        assert (await site.task(undo)).review.gates[-1].code == "1.0"  # type: ignore[union-attr]
    await site.vote("rita", undo)
    async with _here(site, _undoable("2.0", "mallory"), **only_declared):
        task = await site.until(undo, "reviewing", "completed")
    assert task.review is not None
    assert "(version 2.0, approved 1.0)" in task.review.gates[-1].reason
    assert site.done == [{"wired": "landlord"}]


@WORKERS
async def test_code_without_a_version_does_not_run_where_one_is_required(site: Site, worker: Work) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await settings_runtime.switch(site.stores, "require_code_version", True, actor="ada")
    only_declared = {"worker.code_version": "declared"}
    await _registered(site, worker, _honest, **only_declared)
    task_id = await _approved(site)
    async with worker(site, _crooked, **only_declared):
        task = await site.until(task_id, "reviewing", "completed")
    assert task.review is not None
    assert "a version of the code is required, and its worker reports none" in task.review.gates[-1].reason
    assert site.done == []


@WORKERS
async def test_nor_does_a_file_that_changed_after_its_worker_started_run(
    site: Site, worker: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function with cpu=True is imported again, by a process of its own."""
    file = tmp_path / f"wiring_{tmp_path.name}.py"
    file.write_text("def wire(to: str) -> str:\n    return 'honest'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(file.stem)

    def tasks(app: Ade, _done: list[Any]) -> None:
        app.task(name="transfer", queue="far", cpu=True, max_attempts=1)(module.wire)

    await site.rules(guard=GUARD, policy=POLICY)
    async with worker(site, tasks):
        await _until_registered(site)
        file.write_text("def wire(to: str) -> str:\n    return 'crooked, and longer'\n")
        task = await site.until(await _approved(site), "failed", "completed")
    assert task.error is not None, task
    assert "the code of wire has changed since its worker started" in task.error.message


async def test_a_worker_of_another_account_does_not_change_the_version_that_people_approve(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    stranger = User(id="stranger", roles=frozenset({Role.WORKER}), is_human=False, owner="mallory")
    await add_user(site.stores, stranger)
    site.server.tokens["stranger"], _ = await create_token(site.stores, "stranger", lasts_ms=3_600_000)
    for account, version in (("machine", "1.0"), ("stranger", "6.6"), ("stranger", None)):
        definition = {"name": "transfer", "queue": "far", "version": version}
        made = await site.ask(account, "PUT", "/workers/w", {"definitions": [definition], "queues": ["far"]})
        assert made.status == 200, made
    task_id = await _approved(site)
    assert (await site.task(task_id)).review.gates[-1].code == "1.0"  # type: ignore[union-attr]
    refused = await site.ask("stranger", "POST", "/runs/claim", {"worker": "w"})
    assert (refused.json()["runs"], await site.status(task_id)) == ([], "reviewing")
