"""Workers behind HTTP: their ids are made for them, and what they say of their names is checked."""

import os
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.accounts.model import InvalidAccount, Role, User, normal_id
from ade.errors import InvalidArguments, InvalidTask, NotPermitted, UnknownWorker
from ade.failures import Backoff
from ade.server import api_system
from ade.tasks.api.create import create_task
from ade.tasks.identifiers import owner_of, worker_id
from ade.worker.api import workers
from ade.worker.api.requests import ListWorkers, RegisterWorker
from ade.worker.views import WorkersLiveness
from tests.domain import Definition, NewDefinition, NewTask, Worker
from tests.server.operations import LOCAL, Operations
from tests.server.wire import received, sent

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


async def test_a_worker_says_what_it_is_and_goes(ops: Operations) -> None:
    bob = await ops.account("bob", Role.WORKER)
    form = RegisterWorker(
        definitions=[NewDefinition(name="count", schema=SCHEMA, rate="10/m", timeout=30, max_attempts=2)],
        queues=["default"],
        capabilities=["gpu"],
        concurrency=4,
        version="1.0",
    )
    request = ops.request(bob, "register_worker", address="192.0.2.7")
    made = await workers.register_worker(ops.services, request, "one", form)
    assert (made.worker.id, made.worker.hostname, made.liveness) == (
        "http:bob:one",
        "192.0.2.7",
        WorkersLiveness.WORKING,
    )
    assert (await workers.register_worker(ops.services, request, "http:bob:one", form)).worker == made.worker
    assert (await workers.get_worker(ops.services, LOCAL, "http:bob:one")).worker.names == ("count",)
    assert "heartbeat_until" not in sent(made)["worker"]
    assert received(made).worker.id == made.worker.id

    task = await create_task(ops.services, LOCAL, NewTask(name="count", args={"count": 1}))
    assert (task.max_attempts, task.timeout_ms) == (2, 30_000)
    with pytest.raises(InvalidArguments):
        await create_task(ops.services, LOCAL, NewTask(name="count", args={"count": "one"}))

    ops.clock.advance(61)
    assert (await workers.get_worker(ops.services, LOCAL, "http:bob:one")).liveness is WorkersLiveness.SILENT
    request = ops.request(bob, "deregister_worker")
    await workers.deregister_worker(ops.services, request, "one")
    with pytest.raises(UnknownWorker):
        await workers.deregister_worker(ops.services, request, "one")
    listed = await workers.list_workers(ops.services, LOCAL, ListWorkers())
    assert [each.worker.id for each in listed.items] == ["w"]


async def test_an_account_has_so_many_workers_and_no_more(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim, and every probe, has all of them read."""
    monkeypatch.setattr(workers, "MOST_WORKERS", 2)
    bob, eve = await ops.account("bob", Role.WORKER), await ops.account("eve", Role.WORKER)

    async def register(user: User, name: str, *names: str) -> None:
        form = RegisterWorker(definitions=[NewDefinition(name=each) for each in names])
        await workers.register_worker(ops.services, ops.request(user, "register_worker"), name, form)

    for name in ("one", "two", "one"):
        await register(bob, name)
    with pytest.raises(InvalidTask, match="bob has 2 workers"):
        await register(bob, "three", "new")
    assert [each.name for each in await ops.services.stores.workers.definitions()] == ["greet"]
    await register(eve, "three")
    await workers.deregister_worker(ops.services, ops.request(bob, "deregister_worker"), "one")
    await register(bob, "three")


async def test_no_worker_behind_http_is_part_of_the_server(ops: Operations) -> None:
    """Whatever it says of itself: a server that is told to be stuck would be taken out of use."""
    request = ops.request(await ops.account("bob", Role.WORKER), "register_worker")
    form = RegisterWorker(hostname=socket.gethostname(), pid=os.getpid(), ttl=3_600)
    await workers.register_worker(ops.services, request, "one", form)
    ops.clock.advance(60)
    assert (await workers.get_worker(ops.services, LOCAL, "http:bob:one")).liveness is WorkersLiveness.STUCK
    assert (await api_system.get_readiness(ops.services, LOCAL)).is_ready


async def test_nobody_is_another_ones_worker(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.WORKER), await ops.account("eve", Role.WORKER)
    await workers.register_worker(ops.services, ops.request(bob, "register_worker"), "one", RegisterWorker())
    request = ops.request(eve, "register_worker")
    for foreign in ("http:bob:one", "w", "http:eve:", "a:b", "", "x" * 101, "ü"):
        if foreign != "w":
            with pytest.raises(UnknownWorker):
                await workers.register_worker(ops.services, request, foreign, RegisterWorker())
        with pytest.raises(UnknownWorker):
            await workers.deregister_worker(ops.services, ops.request(eve, "deregister_worker"), foreign)
    listed = await workers.list_workers(ops.services, LOCAL, ListWorkers())
    assert {each.worker.id for each in listed.items} == {"w", "http:bob:one"}
    with pytest.raises(NotPermitted):
        ops.request(await ops.account("ann", Role.AGENT), "register_worker")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "no name"},
        {"name": "ok:preview"},
        {"name": "ok", "queue": "{x}"},
        {"name": "ok", "rate": "often"},
        {"name": "ok", "needs": ["Gpu"]},
        {"name": "ok", "backoff": Backoff(base_ms=10, cap_ms=1)},
        {"name": "ok", "schema": {"properties": ["x"]}},
        {"name": "ok", "schema": {"properties": {"x": 1}}},
        {"name": "ok", "schema": {"required": [1]}},
        {"name": "ok", "schema": {"title": "x" * 70_000}},
    ],
)
async def test_a_definition_that_cannot_be_leaves_nothing(ops: Operations, wrong: dict[str, Any]) -> None:
    form = RegisterWorker(definitions=[NewDefinition(name="fine"), NewDefinition(**wrong)])
    with pytest.raises(InvalidTask):
        await workers.register_worker(ops.services, LOCAL, "one", form)
    assert [each.name for each in await ops.services.stores.workers.definitions()] == ["greet"]


async def test_what_is_previewed_stays_with_its_own_workers(ops: Operations) -> None:
    worker = Worker(id="w2", hostname="h", pid=1, started_at=0, version="0", names=("deploy",))
    await ops.services.stores.workers.register(worker, [Definition(name="deploy", has_preview=True)], 60_000)
    form = RegisterWorker(definitions=[NewDefinition(name="deploy")])
    with pytest.raises(InvalidTask, match="own workers"):
        await workers.register_worker(ops.services, LOCAL, "one", form)
    kept = {each.name: each.has_preview for each in await ops.services.stores.workers.definitions()}
    assert kept["deploy"] is True


@given(account=st.text(max_size=20), name=st.text(max_size=20))
def test_an_id_tells_whose_worker_it_is(account: str, name: str) -> None:
    try:
        account = normal_id(account)
        made = worker_id(account, name)
    except (InvalidAccount, UnknownWorker):
        return
    assert owner_of(made) == account
    assert worker_id(account, made) == made


@pytest.mark.parametrize(
    "other", ["w-1", "http:", "http:a", "http:a:", "http::b", "https:a:b", "http:a:b:c", "http:a:b c"]
)
def test_other_ids_are_nobodys(other: str) -> None:
    assert owner_of(other) is None
