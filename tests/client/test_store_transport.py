"""Calls on a store of this process: the same client, without a server."""

import subprocess
import sys
from pathlib import Path

import pytest

from ade import Ade, Client, Status
from ade.client.store_transport import StoreTransport
from ade.errors import InvalidFilter, NotPermitted, UnknownTask
from ade.server.operation import OPERATIONS
from tests.architecture.repository import ROOT
from tests.domain import ClaimRequest, Event, OutputLine, RequestContext, RequestRefused, Role, ServerProblem
from tests.server.operations import LOCAL, Operations


def client_of(ops: Operations, request: RequestContext = LOCAL) -> Client:
    return Client(StoreTransport(ops.services, request))


async def test_a_task_is_made_found_and_cancelled(ops: Operations) -> None:
    client = client_of(ops)
    made = await client.create_task(name="greet", args={"name": "Ada"}, tags=["a"])
    assert (made.author_id, made.arguments()) == ("tester", {"name": "Ada"})
    assert [task.id async for task in client.every(client.list_tasks, tag="a")] == [made.id]
    cancelled = await client.cancel_task(made.id, reason="no need", if_match=made.version)
    assert (cancelled.status, cancelled.reason) == (Status.CANCELLED, "no need")
    assert await client.get_task(made.id) == cancelled
    assert await client.wait_for_task(made.id) == cancelled


async def test_what_breaks_the_conventions_is_the_error_of_a_server(ops: Operations) -> None:
    client = client_of(ops)
    made = await client.create_task(name="greet")
    with pytest.raises(ServerProblem) as raised:
        await client.cancel_task(made.id, if_match=made.version + 1)
    assert (raised.value.code, raised.value.status) == ("precondition_failed", 412)
    with pytest.raises(ServerProblem) as raised:
        await client.list_tasks(cursor="nonsense")
    assert raised.value.code == "invalid_cursor"
    assert isinstance(raised.value.__cause__, RequestRefused), "the cause is kept"
    with pytest.raises(UnknownTask):
        await client.get_task("nonsense")
    assert (await client.get_task(made.id)).status is Status.PENDING


async def test_a_key_makes_one_task_of_two_calls(ops: Operations) -> None:
    client = client_of(ops)
    first = await client.create_task(name="greet", request_key="once")
    assert (await client.create_task(name="greet", request_key="once")).id == first.id
    assert (await client.create_task(name="greet")).id != first.id


async def test_what_never_leaves_a_server_is_not_seen_here_either(ops: Operations) -> None:
    client = client_of(ops)
    made = await client.create_task(name="greet")
    claim = ClaimRequest(worker_id="w", run_ids=["r1"], names=frozenset({"greet"}))
    [running] = await ops.services.stores.tasks.claim(claim)
    assert running.lease_until is not None
    found = await client.get_task(made.id)
    assert (found.status, found.lease_until) == (Status.RUNNING, None)


async def test_an_account_may_do_here_what_it_may_do_there(ops: Operations) -> None:
    viewer = await ops.account("vic", Role.VIEWER)
    client = client_of(ops, ops.request(viewer, "list_tasks"))
    assert (await client.list_tasks()).items == []
    with pytest.raises(NotPermitted):
        await client.create_task(name="greet")


async def test_events_and_lines_are_followed(ops: Operations) -> None:
    client = client_of(ops)
    made = await client.create_task(name="greet")
    items = aiter(client.follow_events(after=0, types=["task.*"], tasks=[made.id]))
    first = await anext(items)
    assert isinstance(first, Event)
    assert (first.type, first.task_id) == ("task.created", made.id)

    claim = ClaimRequest(worker_id="w", run_ids=["r1"], names=frozenset({"greet"}))
    await ops.services.stores.tasks.claim(claim)
    line = OutputLine(task_id=made.id, run_id="r1", attempt=1, at=ops.clock.now(), text="hello")
    await ops.services.stores.outputs.append([line])
    lines = aiter(client.follow_output(made.id))
    assert (await anext(lines)).text == "hello"
    await client.cancel_task(made.id)
    assert [line.text async for line in lines] == []
    assert [event.type for event in (await anext(items), await anext(items)) if isinstance(event, Event)] == [
        "task.claimed",
        "task.cancelled",
    ]
    with pytest.raises(InvalidFilter):
        await anext(aiter(client.follow_events(tasks=["nonsense"])))
    with pytest.raises(UnknownTask):
        await anext(aiter(client.follow_output("019" + "0" * 33)))


LOOK = """
import sys
from ade.cli import defer
defer("asyncio")
from ade.client.store_transport import StoreTransport
from ade.composition.stores import read_only_services
from ade.client.api.routes import CLIENT_ROUTES
from ade.client.client import Client
from ade.errors import StoreReadOnly
from ade.server.context import RequestContext
from ade.settings import load
from ade.composition.stores import open_read_only

settings = load(flags={"store.url": sys.argv[1]}, files=[]).settings
stores = open_read_only(settings.store.url, settings)
client = Client(StoreTransport(read_only_services(stores, settings), RequestContext(actor="cli:tester")))


def looked(call):
    try:
        call.send(None)
    except StopIteration as done:
        return done.value


[task] = looked(client.list_tasks()).items
assert looked(client.get_task(task.id)) == task
assert [event.type for event in looked(client.list_task_events(task.id)).items] == ["task.created"]
try:
    looked(client.create_task(name="greet", allow_unknown=True))
except StoreReadOnly:
    others = {CLIENT_ROUTES[name].module for name in ("list_users", "list_locks", "list_webhooks", "list_approvals")}
    print(task.name, sorted({"asyncio.events", "ssl", "h11", *others} & {*sys.modules}))
"""


def test_plain_reads_take_no_event_loop_and_load_no_other_operations(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ade.db'}"
    app = Ade(url)
    app.enqueue("greet", {}, allow_unknown=True).wait()
    app.close().wait()
    ended = subprocess.run(
        [sys.executable, "-c", LOOK, url],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("greet []", "")


async def test_a_bug_in_an_operation_keeps_its_cause(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(ops)
    await client.get_stats()  # loads the operation
    cause = ValueError("first")

    async def broken(*_arguments: object) -> None:
        try:
            raise cause
        except ValueError:
            raise RuntimeError("second")  # noqa: B904 # the implicit context is what is tested

    monkeypatch.setitem(OPERATIONS, "get_stats", OPERATIONS["get_stats"]._replace(function=broken))
    with pytest.raises(RuntimeError) as raised:
        await client.get_stats()
    assert raised.value.__context__ is cause
    assert not raised.value.__suppress_context__
    assert repr(client) == "<client of StoreTransport()>"
