"""Workers behind HTTP hand in results together, and one by one where that fails."""

import asyncio
from typing import Any

import pytest

from ade import Ade, Status
from ade.errors import ServerUnreachable
from tests.domain import Client
from tests.server.conftest import ServerHarness
from tests.worker.remote.conftest import at_work


async def _run_many(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def quick(number: int) -> int:
        return number

    async with at_work(server, app) as remote:
        batch = {"tasks": [{"name": "quick", "args": {"number": number}} for number in range(120)]}
        made = (await server.ask("POST", "/api/v1/tasks/bulk", batch)).json()["items"]
        ended = await asyncio.gather(*(remote.final(task["id"]) for task in made))
        assert {(task.status, task.attempt) for task in ended} == {(Status.COMPLETED, 1)}
        assert [await remote.value(task["id"]) for task in made[::40]] == [0, 40, 80]


def _counted(monkeypatch: pytest.MonkeyPatch, name: str, fails: bool = False) -> list[Any]:
    """The calls of a client method from now on."""
    calls: list[Any] = []
    usual = getattr(Client, name)

    def call(client: Client, *args: Any, **named: Any) -> Any:
        calls.append(named)
        if fails:
            raise ServerUnreachable("no such route")
        return usual(client, *args, **named)

    monkeypatch.setattr(Client, name, call)
    return calls


async def test_results_that_are_ready_together_are_one_request(
    server: ServerHarness, app: Ade, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, single = _counted(monkeypatch, "complete_runs"), _counted(monkeypatch, "complete_run")
    await _run_many(server, app)
    assert sum(len(call["runs"]) for call in together) + len(single) == 120
    assert len(together) + len(single) < 60


async def test_results_are_handed_in_one_by_one_where_the_server_does_not_take_many(
    server: ServerHarness, app: Ade, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = _counted(monkeypatch, "complete_runs", fails=True)
    single = _counted(monkeypatch, "complete_run")
    await _run_many(server, app)
    assert refused
    assert len(single) == 120
