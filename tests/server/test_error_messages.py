"""What people are told when a request is not quite right, and what is overlooked."""

import asyncio

import pytest

from tests.server.conftest import ServerHarness

TASKS = "/api/v1/tasks"


@pytest.mark.parametrize(
    ("body", "at", "said"),
    [
        ({"name": "greet", "nope": 1}, "nope", "known are name, args"),
        ({"name": "greet", "after_failure": "bogus"}, "after_failure", "it is one of cancel, fail, run"),
        ({"name": "greet", "start": "never"}, "start", "it is one of at_once, by_hand"),
        ({"name": "greet", "delay": "soon"}, "delay", "Expected `float`, got `str`"),
        ({"name": "greet", "backoff": {"nope": 1}}, "backoff.nope", "there is no field 'nope' here"),
    ],
)
async def test_a_field_that_does_not_fit_is_named_with_what_would(
    sqlite_server: ServerHarness, body: dict[str, object], at: str, said: str
) -> None:
    answer = await sqlite_server.ask("POST", TASKS, body)
    [told] = answer.json()["errors"]
    assert (answer.status, told["at"]) == (422, at)
    assert said in told["reason"]


async def test_what_is_long_is_not_said_again(sqlite_server: ServerHarness) -> None:
    for body in ({"name": "greet", "x" * 1_000_000: 1}, {"name": "greet", "backoff": {"y" * 1_000_000: 1}}):
        answer = await sqlite_server.ask("POST", TASKS, body)
        assert answer.status == 422
        assert len(answer.body) < 10_000


async def test_a_parameter_that_is_none_is_named_with_what_would(sqlite_server: ServerHarness) -> None:
    unknown = await sqlite_server.ask("GET", f"{TASKS}?nope=1")
    assert "known are status, queue" in unknown.json()["detail"]
    status = await sqlite_server.ask("GET", f"{TASKS}?status=done")
    assert "completed" in status.json()["detail"]


async def test_an_empty_object_is_as_good_as_no_body(sqlite_server: ServerHarness) -> None:
    task = await sqlite_server.task()
    assert (await sqlite_server.ask("POST", f"{TASKS}/{task['id']}/cancel", {})).status == 200
    assert (await sqlite_server.ask("POST", "/api/v1/queues/default/pause", {})).status == 200
    assert (await sqlite_server.ask("POST", "/api/v1/queues/default/resume", {})).status == 200
    assert (await sqlite_server.ask("POST", "/api/v1/queues/default/resume", {"a": 1})).status in (400, 422)


async def test_probes_are_answered_by_whatever_name_the_machine_has(sqlite_server: ServerHarness) -> None:
    for path, is_answered in (("/livez", True), ("/readyz", True), ("/api/v1/openapi.json", False)):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(sqlite_server.url.rpartition(":")[2]))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: 10.1.2.3:8411\r\nconnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert (b" 421 " not in answer.partition(b"\r\n")[0]) is is_answered, path
