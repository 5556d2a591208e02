"""Metrics of requests, read by the parser of Prometheus: rate, status, and duration by route."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import parser
from prometheus_client.openmetrics import parser as open_parser

from tests.domain import OPEN, PLAIN, REQUEST_BOUNDS, RequestMetrics, written
from tests.server.conftest import ServerHarness
from tests.server.test_streams import listening

TASKS = "/api/v1/tasks"


def samples(families: Iterable[Any], name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


async def scrape(server: ServerHarness) -> list[Any]:
    answer = await server.ask("GET", "/metrics")
    assert answer.status == 200
    return list(parser.text_string_to_metric_families(answer.body.decode()))


async def test_requests_are_counted_by_route_and_status(sqlite_server: ServerHarness) -> None:
    server = sqlite_server
    task = await server.task()
    for _ in range(3):
        assert (await server.ask("GET", f"{TASKS}/{task['id']}")).status == 200
    assert (await server.ask("GET", f"{TASKS}/{'0' * 8}-0000-7000-8000-{'0' * 12}")).status == 404
    assert (await server.ask("POST", TASKS, {"name": "greet", "priority": 99})).status == 422
    assert (await server.ask("GET", TASKS, by=None)).status == 401

    families = await scrape(server)
    counted = samples(families, "ade_http_requests_total")
    route = f"{TASKS}/{{task_id}}"
    assert counted["GET", route, "200"] == 3
    assert counted["GET", route, "404"] == 1
    assert counted["POST", TASKS, "201"] == 1
    assert counted["POST", TASKS, "422"] == 1
    assert counted["GET", TASKS, "401"] == 1
    durations = samples(families, "ade_http_request_duration_ms_count")
    assert durations["GET", route] == 4
    assert samples(families, "ade_http_request_duration_ms_bucket")["GET", route, "+Inf"] == 4
    again = samples(await scrape(server), "ade_http_requests_total")
    assert again["GET", "/metrics", "200"] == counted.get(("GET", "/metrics", "200"), 0) + 1  # not cached


async def test_no_client_adds_labels(sqlite_server: ServerHarness) -> None:
    server = sqlite_server
    for number in range(30):
        await server.ask("GET", f"/nothing/{number}")
        await server.ask("PURGE", f"{TASKS}/{number}")
        await server.ask("GET", f"{TASKS}/task-{number}")

    counted = samples(await scrape(server), "ade_http_requests_total")
    assert counted["GET", "unknown", "404"] == 30
    assert sum(count for (method, *_), count in counted.items() if method == "other") == 30
    assert len(counted) < 10
    assert not [labels for labels in counted if "task-" in labels[1] or "PURGE" in labels[0]]


async def test_a_stream_is_counted_when_it_starts(sqlite_server: ServerHarness) -> None:
    async with listening(sqlite_server, "/api/v1/events"):
        counted = samples(await scrape(sqlite_server), "ade_http_requests_total")
    assert counted["GET", "/api/v1/events", "200"] == 1


def test_both_text_formats_have_all_buckets() -> None:
    requests = RequestMetrics()
    for seconds in (0.0004, 0.0016, 0.2, 100):
        requests.note("GET", TASKS, 200, seconds)

    for families in (
        list(parser.text_string_to_metric_families(written(requests.samples(), PLAIN))),
        list(open_parser.text_string_to_metric_families(written(requests.samples(), OPEN))),  # type: ignore[no-untyped-call]
    ):
        found = samples(families, "ade_http_request_duration_ms_bucket")
        assert len(found) == len(REQUEST_BOUNDS) + 1
        assert [found["GET", TASKS, bound] for bound in ("1.0", "2.0", "250.0", "60000.0", "+Inf")] == [1, 2, 3, 3, 4]
        assert samples(families, "ade_http_request_duration_ms_sum")["GET", TASKS] == 100_202
