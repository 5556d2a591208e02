"""The same answers and the same errors over HTTP and directly, on both stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import ade
from ade import Ade, Client, Status, Task
from ade.client.http_transport import HttpTransport
from ade.client.store_transport import StoreTransport
from ade.common.calls import Call
from ade.composition.app_store import services_of_app
from ade.errors import AdeError, InvalidUrl, NotPermitted
from ade.server.pagination import Page, RawContent
from ade.server.route_table import ROUTES, SECTIONS
from ade.settings import load
from ade.tasks.api.requests import TaskFilter
from ade.tasks.options import BatchTask
from tests.domain import (
    AuthLevel,
    ClaimRequest,
    Event,
    OutputLine,
    ReauthenticationNeeded,
    RequestContext,
    Role,
    ServerProblem,
    shape_of,
)
from tests.server.conftest import PASSWORD, ServerHarness, start_server
from tests.servers.ports import ReservedPort
from tests.stores.urls import store_url

WHO = Role.ADMIN
_OF_THE_MOMENT = frozenset(  # how long something lasts, or how it goes just now
    {"get_stats", "get_stats_series", "get_health", "get_approval_stats", "list_workers", "list_queues"}
)


@asynccontextmanager
async def both(server: ServerHarness) -> AsyncIterator[tuple[Client, Client]]:
    """A client over HTTP, and one that goes to the store directly, in the same name."""
    token = await server.token(WHO)
    request = RequestContext(actor=f"the-{WHO}", author=f"the-{WHO}")
    near = Client(StoreTransport(services_of_app(server.app, await server.app.open()), request))
    async with ade.connect(server.url, token=token) as far:
        yield far, near


async def outcome(call: Call[Any]) -> Any:
    try:
        return await call
    except AdeError as error:
        return type(error), error.code, error.detail


class Pair:
    """Two clients that are asked the same. Remembers what was asked."""

    def __init__(self, far: Client, near: Client) -> None:
        self.far, self.near = far, near
        self.request: set[str] = set()

    async def same(self, method: str, *path: str, **fields: Any) -> Any:
        self.request.add(method)
        far = await outcome(getattr(self.far, method)(*path, **fields))
        near = await outcome(getattr(self.near, method)(*path, **fields))
        assert far == near, method
        return far

    async def done(self, method: str, *path: str, **fields: Any) -> Any:
        """Something that can be done once: by the far one, and the near one sees what has become of it."""
        self.request.add(method)
        done = await getattr(self.far, method)(*path, **fields)
        if isinstance(done, Task):
            assert done == await self.near.get_task(done.id), method
        return done


async def test_every_call_about_tasks_is_answered_alike(server: ServerHarness) -> None:
    async with both(server) as (far, near):
        pair = Pair(far, near)
        made: Task = await pair.done("create_task", name="greet", args={"name": "Ada"}, tags=["a"], queue="mail")
        await pair.done("create_tasks", tasks=[BatchTask(name="greet", ref="x"), BatchTask(name="greet", after=["x"])])
        draft: Task = await pair.done("create_task", name="greet", draft=True, description="first")
        await pair.done("edit_task", draft.id, description="second", if_match=draft.version)
        await pair.same("edit_task", draft.id, description="third", if_match=draft.version)  # 412
        await pair.same("submit_task", made.id)  # it is no draft
        await pair.same("apply_task", made.id)
        await pair.same("roll_back_task", made.id)
        await pair.same("retry_task", made.id)
        moved: Task = await pair.done("reschedule_task", made.id, priority="high")
        assert moved.priority == 3
        await pair.same("reschedule_task", made.id, priority=5, if_match=made.version)  # 412
        found: Page[Task] = await pair.same("list_tasks", queue="mail", status=[Status.PENDING])
        assert [task.id for task in found.items] == [made.id]
        await pair.same("list_tasks", limit=2, order="oldest")
        await pair.same("list_tasks", cursor="nonsense")
        await pair.same("get_task", made.id)
        await pair.same("get_task", "nonsense")
        await pair.same("list_task_events", made.id)
        await pair.same("explain_task", made.id)
        await pair.same("get_task_result", made.id)
        await pair.same("list_definitions")
        wanted = {"action": "cancel", "filter": TaskFilter(tag="a"), "reason": "no need"}
        await pair.same("preview_bulk_action", **wanted)
        await write_line(server, made)
        lines: Page[OutputLine] = await pair.same("get_task_output", made.id)
        assert [line.text for line in lines.items] == ["hello"]
        await pair.done("run_bulk_action", **wanted)
        assert (await pair.same("get_task", made.id)).status is Status.CANCELLED
        await pair.same("get_task_result", made.id)
        await pair.same("cancel_task", made.id, reason="again")
        assert {route.operation for route in SECTIONS["tasks"]} - pair.request == set()


async def write_line(server: ServerHarness, task: Task) -> None:
    claim = ClaimRequest(worker_id="w", run_ids=["r1"], names=frozenset({"greet"}), queues=("mail",))
    await server.stores.tasks.claim(claim)
    line = OutputLine(task_id=task.id, run_id="r1", attempt=1, at=server.stores.clock.now(), text="hello")
    await server.stores.outputs.append([line])


def plain_reads() -> list[str]:
    """What can be asked for without knowing anything."""
    reads = [route for route in ROUTES if route.method == "GET" and route.door is AuthLevel.PERMISSION]
    return [route.operation for route in reads if not route.parameters and not _asks_for_more(route.operation)]


def _asks_for_more(operation: str) -> bool:
    from msgspec.structs import fields

    query = shape_of(operation).query
    is_record = shape_of(operation).answer is not RawContent
    return not is_record or (query is not None and any(field.required for field in fields(query)))


async def test_every_plain_read_is_answered_alike(sqlite_server: ServerHarness) -> None:
    async with both(sqlite_server) as (far, near):
        pair = Pair(far, near)
        await far.create_task(name="greet", locks=["db:main"])
        for operation in plain_reads():
            if operation in _OF_THE_MOMENT:
                assert type(await getattr(far, operation)()) is type(await getattr(near, operation)())
            else:
                await pair.same(operation)
        assert len(pair.request) > 10


async def test_events_and_lines_are_followed_over_http(server: ServerHarness) -> None:
    async with both(server) as (far, near):
        made = await far.create_task(name="greet", queue="mail")
        items = aiter(far.follow_events(after=0, tasks=[made.id]))
        first = await anext(items)
        assert isinstance(first, Event)
        assert first == (await near.list_task_events(made.id)).items[0]
        await write_line(server, made)
        lines = aiter(far.follow_output(made.id))
        assert (await anext(lines)).text == "hello"
        await near.cancel_task(made.id)
        assert [line.text async for line in lines] == []
        assert (await anext(items), await anext(items)) == tuple((await near.list_task_events(made.id)).items[1:])
        await items.aclose()  # type: ignore[attr-defined]


async def test_a_file_is_read_as_it_comes(server: ServerHarness) -> None:
    async with both(server) as (far, near):
        await far.create_task(name="greet")
        found = await far.export_audit()
        assert (found.media_type, found.file_name) == ((same := await near.export_audit()).media_type, same.file_name)
        pieces = [piece async for piece in far.pieces(found)]
        assert b"".join(pieces) == b"".join([piece async for piece in near.pieces(same)])
        described = await far.get_openapi()
        assert b"".join([piece async for piece in far.pieces(described)]).startswith(b"{")


async def test_a_script_may_stop_listening(sqlite_server: ServerHarness) -> None:
    """Nothing is left behind: a warning would fail this."""
    token = await sqlite_server.token(WHO)
    made = await sqlite_server.task()

    def script() -> str | None:
        client = ade.connect(sqlite_server.url, token=token)
        for event in client.follow_events(after=0, types=["task.created"]):
            client.close().wait()
            return event.task_id if isinstance(event, Event) else None
        return None

    assert await asyncio.to_thread(script) == made["id"]


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
async def test_a_stream_goes_on_after_a_restart_and_misses_nothing(kind: str, tmp_path: Path) -> None:
    is_back = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        await is_back.wait()

    place, reserved = store_url(kind, tmp_path), ReservedPort()
    async with start_server(place, tmp_path, **{"http.port": reserved.number}) as server:
        first = await server.task()
        client = Client(HttpTransport(server.url, token=await server.token(Role.VIEWER), sleep=sleep))
        items = aiter(client.follow_events(after=0, types=["task.created"]))
        seen = [await anext(items)]
        coming, tokens = asyncio.ensure_future(anext(items)), server.tokens
    async with Ade(settings=load(flags={"store.url": place, "redis.allow_volatile": True}, files=[]).settings) as app:
        meanwhile = await app.enqueue("greet", {}, allow_unknown=True)
    async with start_server(place, tmp_path, **{"http.port": reserved.number}) as server:
        server.tokens.update(tokens)
        is_back.set()
        seen += [await coming]
        last = await server.task()
        seen += [await anext(items)]
        await client.close()
    reserved.release()
    told = [event.task_id for event in seen if isinstance(event, Event)]
    assert told == [first["id"], meanwhile.id, last["id"]]


async def test_a_repeated_call_with_a_key_is_carried_out_once(server: ServerHarness) -> None:
    async with both(server) as (far, near):
        first = await far.create_task(name="greet", request_key="once")
        assert await far.create_task(name="greet", request_key="once") == first
        assert len((await near.list_tasks()).items) == 1


async def test_what_cannot_be_said_is_refused_before_it_is_sent(server: ServerHarness) -> None:
    async with both(server) as (far, near):
        for client in (far, near):
            with pytest.raises(ServerProblem, match="Idempotency-Key") as raised:
                await client.create_task(name="greet", request_key="line\nbreak")
            assert raised.value.code == "bad_request"
        for args in ({"half": "\ud800"}, {"what": object()}):
            with pytest.raises(ServerProblem) as raised:
                await far.create_task(name="greet", args=args)
            assert raised.value.code == "invalid_body"
        with pytest.raises(ServerProblem, match="has no time zone"):
            await far.create_task(name="greet", run_at=datetime(2030, 1, 1))
        assert (await near.list_tasks()).items == []


async def test_who_may_not_is_told_so(server: ServerHarness) -> None:
    token = await server.token(Role.VIEWER)
    async with ade.connect(server.url, token=token) as viewer:
        assert (await viewer.list_tasks()).items == []
        with pytest.raises(NotPermitted):
            await viewer.create_task(name="greet")


async def test_a_client_signs_in_for_what_a_token_cannot_do(server: ServerHarness) -> None:
    await server.person("ada", Role.ADMIN, password=PASSWORD)
    async with ade.connect(server.url, token=await server.token(Role.ADMIN)) as client:
        with pytest.raises(ReauthenticationNeeded):
            await client.create_user(id="bob", roles=["viewer"])
        signed = await client.sign_in(name="ada", password=PASSWORD)
        assert (signed.account, (await client.get_me()).user.id) == ("ada", "ada")
        assert (await client.create_user(id="bob", roles=["viewer"])).record.id == "bob"
        await client.change_own_password(old=PASSWORD, new=f"{PASSWORD}, again")
        assert (await client.create_own_token(label="laptop")).account == "ada"
        await client.sign_out()
        assert (await client.get_me()).user.id == "the-admin"
    async with ade.connect("http://ade.example.org") as elsewhere:
        with pytest.raises(InvalidUrl, match="the password would go to"):
            await elsewhere.sign_in(name="ada", password=PASSWORD)
