"""Large bodies that are on their way at once."""

import asyncio
from pathlib import Path

import pytest

from ade.server.pipeline import BodyBudget
from ade.server.request_body import USUAL
from tests.domain import HttpRequest, RequestRefused, Role
from tests.server.conftest import ServerHarness, start_server
from tests.stores.urls import store_url

KB = 1024
LARGEST = USUAL.body_bytes


async def _begun(server: ServerHarness, by: Role, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request whose body never comes to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    token = await server.token(by)
    writer.write(
        f"POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n{{".encode()
    )
    await writer.drain()
    return reader, writer


async def test_whoever_has_his_part_waits_until_one_of_his_is_over_and_others_do_not(tmp_path: Path) -> None:
    large = {"name": "greet", "args": {"text": "x" * 400 * KB}}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.body_limit_kb": 512}) as server:
        begun = [await _begun(server, Role.OPERATOR, 512 * KB) for _ in range(4)]
        for _ in begun:  # each was heard of before what is asked now
            assert (await server.ask("GET", "/api/v1/me")).status == 200
        own = asyncio.create_task(server.ask("POST", "/api/v1/tasks", large))
        anothers = await server.ask("POST", "/api/v1/tasks", large, by=Role.ADMIN)
        small = await server.ask("POST", "/api/v1/tasks", {"name": "greet"})
        assert (anothers.status, small.status, own.done()) == (201, 201, False)
        begun[0][1].close()
        assert (await own).status == 201
        for _, writer in begun[1:]:
            writer.close()


@pytest.mark.parametrize("declared", [None, "9" * 5_000, "what", str(LARGEST), str(10 * LARGEST)])
def test_what_may_be_large_needs_room(declared: str | None) -> None:
    assert BodyBudget(USUAL).needed(declared) == LARGEST


def test_what_is_small_needs_none() -> None:
    assert [BodyBudget(USUAL).needed(declared) for declared in ("0", "10000")] == [0, 0]


async def test_all_together_have_a_bound_and_who_waits_too_long_is_refused() -> None:
    room = BodyBudget(USUAL)
    held = [room.taken(f"account {number // 4}", LARGEST, 1) for number in range(16)]
    for each in held:
        await each.__aenter__()
    with pytest.raises(RequestRefused, match="try again later"):
        async with room.taken("one more", LARGEST, 0.01):
            pass
    waiting = asyncio.create_task(room.taken("one more", LARGEST, 30).__aenter__())
    await asyncio.sleep(0)
    await held.pop().__aexit__(None, None, None)
    await waiting


async def test_who_gives_up_waiting_takes_nothing() -> None:
    room = BodyBudget(USUAL)
    held = [room.taken("ada", LARGEST, 1) for _ in range(4)]
    for each in held:
        await each.__aenter__()
    waiting = asyncio.create_task(room.taken("ada", LARGEST, 30).__aenter__())
    await asyncio.sleep(0)
    await held.pop().__aexit__(None, None, None)  # its turn has come,
    waiting.cancel()  # and at the same moment it gives up
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with room.taken("ada", LARGEST, 0.01):
        pass


async def test_bytes_that_come_free_as_a_waiting_request_gives_up_go_to_the_next_one() -> None:
    room = BodyBudget(USUAL)
    held = [room.taken("ada", LARGEST, 1) for _ in range(4)]
    for each in held:
        await each.__aenter__()
    leaving, staying = (asyncio.create_task(room.taken("ada", LARGEST, 30).__aenter__()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()  # it has not run since
    await held.pop().__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await staying


async def test_large_uploads_that_time_out_together_are_all_refused_and_none_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpRequest, "body_s", 0.5)
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.body_limit_kb": 512}) as server:
        uploads = [await _begun(server, Role.OPERATOR, 512 * KB) for _ in range(12)]
        heads = [await reader.readline() for reader, _ in uploads]
        for _, writer in uploads:
            writer.close()
        assert {head.split()[1] for head in heads} <= {b"408", b"503"}, heads
        large = {"name": "greet", "args": {"text": "x" * 400 * KB}}
        assert (await server.ask("POST", "/api/v1/tasks", large)).status == 201
