"""Places for streams: so many in all, and so many for one account; and what of the log is for whom."""

import json
import resource
from pathlib import Path

import pytest

from ade.composition.server import ENOUGH, allow_many_files
from tests.domain import Role, UserChanges, change_user
from tests.server.conftest import ServerHarness, start_server
from tests.server.test_streams import EVENTS, listening
from tests.stores.urls import store_url


async def _refused(server: ServerHarness, path: str, by: Role = Role.OPERATOR) -> tuple[int, str]:
    answer = await server.ask("GET", path, by=by, accept="text/event-stream")
    assert int(answer.headers["retry-after"]) > 0
    return answer.status, answer.code


async def test_lines_of_a_task_take_a_place_too(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.max_subscribers": 1}) as server:
        output = f"/api/v1/tasks/{(await server.task())['id']}/output"
        async with listening(server, output) as listener:
            await listener.block()
            assert await _refused(server, EVENTS) == (503, "unavailable")
            assert await _refused(server, output) == (503, "unavailable")
        assert (await server.ask("GET", output)).status == 200  # a page


async def test_no_account_takes_all_of_them(tmp_path: Path) -> None:
    async with (
        start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.max_subscribers_each": 2}) as server,
        listening(server, EVENTS) as first,
        listening(server, EVENTS) as second,
    ):
        await first.block()
        await second.block()
        assert await _refused(server, EVENTS, Role.VIEWER) == (429, "too_many_requests")
        async with listening(server, EVENTS, token=await server.token(Role.AGENT)) as other:
            await other.block()


async def test_a_place_is_free_again_when_the_stream_is_over_or_never_began(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.max_subscribers": 1}) as server:
        for _ in range(3):
            assert (await server.ask("HEAD", EVENTS, accept="text/event-stream")).status == 200
        task = await server.task()
        await server.ask("POST", f"/api/v1/tasks/{task['id']}/cancel")
        for _ in range(3):
            async with listening(server, f"/api/v1/tasks/{task['id']}/output") as listener:
                assert (await listener.event())["event"] == "end"


async def test_an_account_that_all_share_has_no_part_of_its_own(tmp_path: Path) -> None:
    flags = {"http.max_subscribers_each": 1, "http.auth": "off"}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **flags) as server:
        sent = {"accept": "text/event-stream"}
        async with server.client.stream("GET", EVENTS, headers=sent) as first:
            assert first.status == 200
            async with server.client.stream("GET", EVENTS, headers=sent) as second:
                assert second.status == 200


async def test_a_stream_tells_readers_nothing_of_how_others_get_in(server: ServerHarness) -> None:
    operator = await server.token(Role.OPERATOR)
    task = await server.task()
    async with listening(server, f"{EVENTS}?after=0") as reading:
        kinds = [(await reading.event())["event"] for _ in range(3)]
        assert kinds == ["user.added", "user.added", "task.created"]
    async with listening(server, f"{EVENTS}?after=0", token=operator) as reading:
        kinds = [(await reading.event())["event"] for _ in range(3)]
        assert kinds == ["user.added", "login_link.created", "user.added"]
    shown = await server.ask("GET", f"{EVENTS}?after=0", by=Role.VIEWER)
    assert {each["type"] for each in shown.json()["items"]} == {"user.added", "task.created"}
    assert task["id"] in json.dumps(shown.json())


async def test_who_operates_no_more_hears_no_more_of_it(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.heartbeat_s": 1}) as server:
        token = await server.token(Role.OPERATOR)
        async with listening(server, EVENTS, token=token) as listener:
            await listener.block()
            await change_user(server.stores, "the-operator", UserChanges(roles=frozenset({"viewer"})))
            heard = [await listener.event()]
            while heard[-1]["event"] != "end":
                heard.append(await listener.event())
            with pytest.raises(StopAsyncIteration):
                await listener.block()


def test_a_server_may_have_many_files_open() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1_024), before[1]))
        allow_many_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert (soft, hard) == (min(hard, ENOUGH) if hard >= 0 else ENOUGH, before[1])
        allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
