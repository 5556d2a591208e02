"""Payloads made of ADE's own words: user data comes back as it was sent, and is never taken for a reference."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.approvals import repository as approvals_repository
from tests.depth import examples
from tests.domain import Role, read_rulebook
from tests.server.conftest import ServerHarness, start_server
from tests.server.test_remote_workers import API, claim, registered, say
from tests.stores.urls import store_url
from tests.waiting import eventually

WORDS = (
    *("$blob", "size", "sha256", "$ref", "$json", "result", "result_expired", "error", "released", "args", "detail"),
    *("outcome", "progress", "review", "kind", "type", "id", "version", "whole", "silent", "cut", "__ade__", "null"),
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.sampled_from(WORDS),
    st.text('$"\\/abl\u00e9 ', max_size=8),
)
_references = st.fixed_dictionaries(
    {"$blob": _scalars}, optional={"size": _scalars, "sha256": _scalars, "x": _scalars, "$blob ": _scalars}
)
_values = st.recursive(
    _scalars | _references,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)
_arguments = st.one_of(_references, st.dictionaries(st.sampled_from(WORDS), _values, max_size=4))


async def _arguments_of(server: ServerHarness, task_id: str) -> Any:
    answer = await server.ask("GET", f"{API}/tasks/{task_id}?whole=true")
    assert answer.status == 200, answer
    return answer.json()["args"]


async def _next_run(server: ServerHarness) -> Any:
    """Claim a task. A new one can be due some milliseconds later, when the server's clock is behind the client's."""
    [run] = await claim(server, Role.WORKER, wait=20)
    return run


async def _round_trip(server: ServerHarness, args: dict[str, Any], value: Any) -> None:
    """A draft is edited, submitted, run with a result, failed, and replayed, each with one of the payloads."""
    draft = await server.task(args={"text": "harmless"}, draft=True)
    path = f"{API}/tasks/{draft['id']}"
    edited = await server.ask("PATCH", path, {"args": args}, if_match="*")
    assert edited.status == 200, edited
    assert await _arguments_of(server, draft["id"]) == args
    await server.ask("POST", f"{path}/cancel", {})

    task = await server.task(args=args)
    assert await _arguments_of(server, task["id"]) == args
    run = await _next_run(server)
    assert run["task"]["args"] == args
    assert (await say(server, Role.WORKER, run, "progress", progress=value)).status == 204
    assert (await server.ask("GET", f"{API}/tasks/{task['id']}")).json().get("progress") == value
    details = {"details": value} if isinstance(value, dict) else {}
    error = {"type": "X", "message": "no", "kind": "unrecoverable", **details}
    failed = await say(server, Role.WORKER, run, "fail", error=error)
    assert (failed.status, failed.json()["status"]) == (200, "failed"), failed.body

    again = {**args, "$blob": value}
    replayed = await server.ask("POST", f"{API}/dlq/{task['id']}/replay", {"args": again})
    assert replayed.status == 200, replayed
    run = await _next_run(server)
    assert run["task"]["args"] == again
    assert (await say(server, Role.WORKER, run, "complete", result=value)).status == 200
    result = await server.ask("GET", f"{API}/tasks/{task['id']}/result")
    assert (result.status, result.json().get("result")) == (200, value)


async def _round_trips(store: str, payloads: list[tuple[dict[str, Any], Any]]) -> int:
    with tempfile.TemporaryDirectory() as name:
        async with start_server(store_url(store, Path(name)), Path(name)) as server:
            await registered(server, Role.WORKER)
            for args, value in payloads:
                await _round_trip(server, args, value)
            return len((await server.ask("GET", f"{API}/tasks?status=completed&limit=100")).json()["items"])


@pytest.mark.parametrize("store", ["sqlite", "valkey"])
@settings(max_examples=examples(25))
@given(st.lists(st.tuples(_arguments, _values), min_size=1, max_size=6))
def test_payloads_made_of_reserved_words_come_back_as_they_were_sent(
    store: str, payloads: list[tuple[dict[str, Any], Any]]
) -> None:
    assert asyncio.run(_round_trips(store, payloads)) == len(payloads)


STRANGE: list[dict[str, Any]] = [
    {"$blob": 1},
    {"$blob": "01a1e503-5dba-7f16-87d1-29e75c2bd002.args"},
    {"$blob": "01a1e503-5dba-7f16-87d1-29e75c2bd002.args", "size": 1, "sha256": "x"},
    {"$blob": {"$blob": None}, "size": [], "more": 1},
    {"text": "first", "$blob": "01a1e503-5dba-7f16-87d1-29e75c2bd002.args"},
]


@pytest.mark.parametrize("args", STRANGE)
async def test_arguments_that_look_like_a_reference_are_arguments(server: ServerHarness, args: dict[str, Any]) -> None:
    await registered(server, Role.WORKER)
    await _round_trip(server, args, args)


async def test_the_guard_reads_corrected_arguments_as_arguments(server: ServerHarness) -> None:
    rules = {"guard": [{"do": "deny", "name": "never", "reason": "it is not used here"}]}
    await approvals_repository.apply(server.stores, read_rulebook(rules), actor="root")
    await registered(server, Role.WORKER)
    await _round_trip(server, {}, "01a1e503-5dba-7f16-87d1-29e75c2bd002.args")


async def test_a_result_that_names_the_blob_of_another_task_removes_nothing_when_it_expires(
    server: ServerHarness,
) -> None:
    await registered(server, Role.WORKER)
    large = await server.task(args={"text": "x" * 200_000})
    run = await _next_run(server)
    assert (await say(server, Role.WORKER, run, "complete", result="kept")).status == 200
    for forged in ({"first": 1, "$blob": f"{large['id']}.args"}, {"$blob": "../../etc"}):
        await server.task(result_ttl=0.001)
        run = await _next_run(server)
        assert (await say(server, Role.WORKER, run, "complete", result=forged)).status == 200
    await until_expired(server, 2)
    assert await _arguments_of(server, large["id"]) == {"text": "x" * 200_000}


async def until_expired(server: ServerHarness, count: int) -> None:
    """Wait until so many results have expired."""
    expired = 0

    async def look() -> bool:
        nonlocal expired
        expired += await server.stores.sweeps.expire_results(10)
        return expired >= count

    await eventually(look)
