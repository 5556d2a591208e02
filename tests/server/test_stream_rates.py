"""Rate limits of routes that offer a page and a stream: a page is a read."""

from pathlib import Path

import pytest

from tests.server.conftest import start_server
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
