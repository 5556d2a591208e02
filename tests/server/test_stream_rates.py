"""Rate limits of routes that offer a page and a stream: a page is a read, and a stream is a stream."""

from pathlib import Path

import pytest

from tests.domain import Role
from tests.server.conftest import start_server
from tests.server.test_streams import listening
from tests.stores.urls import store_url

API = "/api/v1"


@pytest.mark.parametrize("store", ["sqlite", "valkey"])
async def test_page_reads_of_events_and_output_do_not_count_as_streams(store: str, tmp_path: Path) -> None:
    rates = {"http.stream_rate": "2/h", "http.read_rate": "20/h"}  # none comes back during the test
    async with start_server(store_url(store, tmp_path), tmp_path, **rates) as server:
        task = await server.task()
        paths = (f"{API}/events", f"{API}/tasks/{task['id']}/output")
        pages = [await server.ask("GET", path) for path in paths * 5]
        assert [page.status for page in pages] == [200] * 10
        others = [await server.ask("GET", f"{API}/me") for _ in range(11)]
        assert [answer.status for answer in others] == [200] * 10 + [429], "pages count as reads"


async def test_streams_have_a_rate_of_their_own(tmp_path: Path) -> None:
    rates = {"http.stream_rate": "2/h", "http.read_rate": "20/h"}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **rates) as server:
        for _ in range(2):
            async with listening(server, f"{API}/events"):
                pass
        refused = await server.ask("GET", f"{API}/events", by=Role.VIEWER, accept="text/event-stream")
        page = await server.ask("GET", f"{API}/events", by=Role.VIEWER)
        assert (refused.status, page.status) == (429, 200)
