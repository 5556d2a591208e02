"""Requests carry the ID of their caller through the response, problems, and the log; others get one."""

from pathlib import Path

import pytest

from tests.server.conftest import ServerHarness, start_server
from tests.server.test_access_log import logged
from tests.stores.urls import store_url

API = "/api/v1"


@pytest.mark.parametrize("sent", ["a", "01J9Z3-trace.7:4", "x" * 128])
async def test_the_server_adopts_the_request_id_of_its_caller(sqlite_server: ServerHarness, sent: str) -> None:
    answer = await sqlite_server.ask("GET", f"{API}/me", x_request_id=sent)
    refused = await sqlite_server.ask("GET", f"{API}/nowhere", x_request_id=sent)

    assert answer.headers["x-request-id"] == refused.headers["x-request-id"] == sent
    assert refused.json()["instance"] == f"urn:ade:request:{sent}"


@pytest.mark.parametrize("sent", ["", "x" * 129, "two words", "-first", 'quo"te', "a,b", "a\tb", "<script>"])
async def test_an_invalid_request_id_is_replaced(sqlite_server: ServerHarness, sent: str) -> None:
    answer = await sqlite_server.ask("GET", f"{API}/me", x_request_id=sent)

    assert answer.status == 200
    assert answer.headers["x-request-id"] not in ("", sent)


async def test_the_access_log_has_the_request_id_of_the_caller(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "all"}) as server:
        with logged() as lines:
            await server.ask("GET", f"{API}/me", x_request_id="trace-7")
            line = await lines.when(f"{API}/me")

    assert line["request"] == "trace-7"
