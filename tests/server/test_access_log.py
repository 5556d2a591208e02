"""The access log: one line for each request, with what helps an operator and nothing that a stranger may write."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ade.logs import JsonFormatter, TextFormatter
from tests.domain import CLIENT_GONE, Role
from tests.server.conftest import ServerHarness, start_server
from tests.server.test_streams import listening
from tests.stalls import undisturbed
from tests.stores.urls import store_url

TASKS = "/api/v1/tasks"


class Lines(logging.Handler):
    """What is told, and when something is."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.more.set()

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(JsonFormatter().format(record)) for record in self.records]

    async def when(self, path: str) -> dict[str, Any]:
        """The line about this route, as soon as it is there: it is written after the answer was sent."""
        async with asyncio.timeout(60):
            while True:
                self.more.clear()
                for line in self.told:
                    if line["path"] == path:
                        return line
                await self.more.wait()


@contextmanager
def logged() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger("ade.http.access")
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


async def test_a_request_is_told_in_one_line(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "all"}) as server:
        task = await server.task()
        with logged() as lines:
            answer = await server.ask("GET", f"{TASKS}/{task['id']}?whole=true")
            line = await lines.when(f"{TASKS}/{{task_id}}")

    assert (line["event"], line["method"], line["status"]) == ("http.request", "GET", 200)
    assert (line["account"], line["bytes"]) == ("the-operator", len(answer.body))
    assert line["request"] == answer.headers["x-request-id"]
    assert 0 <= line["ms"] < 60_000
    assert len(lines.records) == 1


async def test_who_was_refused_is_told_too(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "errors"}) as server:
        with logged() as lines:
            await server.ask("GET", TASKS)  # nothing is wrong with it
            await server.ask("POST", TASKS, {"name": "greet"}, by=Role.VIEWER)
            refused = await lines.when(TASKS)
            await server.ask("GET", "/api/v1/policies", by=None)
            stranger = await lines.when("/api/v1/policies")

    assert (refused["method"], refused["status"], refused["account"]) == ("POST", 403, "the-viewer")
    assert (stranger["status"], "account" in stranger) == (401, False)
    assert len(lines.records) == 2


async def test_nothing_that_strangers_write_is_in_it(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "all"}) as server:
        with logged() as lines:
            for path in (
                "/hush%0d%0aevent",
                f"{TASKS}?hush=secret",
                f"{TASKS}/hush%0A",
                f"{TASKS}?token=ade_hush",
                f"/{'hush' * 20_000}",
            ):
                await server.ask("GET", path, user_agent="hush", referer="hush")
            await server.ask("GET", "/livez", by=None)
            await lines.when("/livez")

    for record in lines.records:
        for written in (TextFormatter().format(record), JsonFormatter().format(record), record.getMessage()):
            assert "hush" not in written
            assert "\n" not in written
            assert len(written) < 500
    assert {line["path"] for line in lines.told} == {"unknown", TASKS, "/livez"}


async def test_a_stream_is_told_when_it_has_ended(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "all"}) as server:
        await server.task()
        with logged() as lines:
            async with listening(server, "/api/v1/events?after=0&type=task.*") as listener:
                await listener.event()
                assert lines.records == []
            line = await lines.when("/api/v1/events")

    assert (line["status"], line["account"]) == (200, "the-viewer")
    assert line["bytes"] > 100


async def test_who_did_not_wait_for_the_answer_is_told_as_gone(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.access_log": "errors"}) as server:
        task = await server.task(delay=3_600)
        with logged() as lines:

            async def story() -> dict[str, Any]:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await server.ask("GET", f"{TASKS}/{task['id']}?wait=30")
                return await lines.when(f"{TASKS}/{{task_id}}")

            line = await undisturbed(story, stall_s=0.1)

    assert (line["status"], line["bytes"], line["account"]) == (CLIENT_GONE, 0, "the-operator")


async def test_without_the_setting_nothing_is_told(sqlite_server: ServerHarness) -> None:
    with logged() as lines:
        await sqlite_server.ask("GET", TASKS)
        await sqlite_server.ask("GET", "/api/v1/nowhere")

    assert lines.records == []
