"""A store that refuses, hangs, or is away: no task loses an attempt or a result to it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ade import Status
from tests.domain import Payloads, RedisSettings
from tests.faults.on_servers import ServerSite, site_on
from tests.faults.workers import until
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Options, Server, User
from tests.worker.harness import plain

pytestmark = [pytest.mark.faults]

VOLATILE = RedisSettings(allow_volatile=True)
LARGE = "x" * 2_000_000
_KEYS = (
    *("meta", "void", "task", "queue", "tally", "limits", "rates", "event", "cursors", "claim", "said", "worker"),
    *("definitions", "duty", "document", "schedules", "lock", "agents", "inbox", "recount", "quarantine", "effect"),
)
ALL_BUT_BLOBS = [f"~*{word}*" for word in _KEYS]
WORKER, ADMIN = User("worker", "secret"), User("admin", "secret")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(binary_or_skip("valkey"), Options(users=(WORKER, ADMIN))) as started:
        yield started


@pytest.fixture
async def site(server: Server, tmp_path: Path) -> AsyncIterator[ServerSite]:
    """The test itself is the admin; the workers are the user whose rights it changes."""
    async with site_on(server.url.replace("worker:", "admin:"), tmp_path, VOLATILE) as made:
        made.url = server.url
        yield made


def change_rules(server: Server, *rules: str) -> None:
    with server.client(username=ADMIN.name, password=ADMIN.password) as client:
        client.execute_command("ACL", "SETUSER", WORKER.name, *rules)


@pytest.mark.parametrize(
    ("refusal", "permission"),
    [(("-evalsha", "-eval"), ("+evalsha", "+eval")), (("off",), ("on",))],
    ids=["NOPERM", "NOAUTH"],
)
async def test_a_commit_that_is_refused_is_kept_until_it_is_taken(
    site: ServerSite, server: Server, refusal: tuple[str, ...], permission: tuple[str, ...]
) -> None:
    """For longer than a lease: the work is not done a second time."""
    [worker] = await site.crew(1, lease_s=3.0, heartbeat_s=0.5)
    gate = site.folder / "gate"
    tasks = [await site.enqueue("slow_when_continued", {"until": str(gate)}, max_attempts=1) for _ in range(8)]
    await site.until_noted("began", 8)
    change_rules(server, *refusal)
    if refusal == ("off",):
        with server.client(username=ADMIN.name, password=ADMIN.password) as client:
            client.execute_command("CLIENT", "KILL", "USER", WORKER.name)
    gate.touch()
    await site.until_noted("ended", 8)
    await until(lambda: worker.log().count("lease.not_renewed") >= 8, "more than a lease goes by")
    change_rules(server, *permission)
    ended = await site.all_final([task.id for task in tasks])

    assert [(task.status, task.attempt, plain(task.result)) for task in ended] == [
        (Status.COMPLETED, 1, "attempt 1")
    ] * 8
    assert len(site.noted("began")) == 8
    await site.judge_events()


async def test_a_run_that_was_given_up_is_returned_as_soon_as_the_server_responds(
    site: ServerSite, server: Server
) -> None:
    """And not when the lease expires that the server has just renewed. It uses no attempt."""
    [worker] = await site.crew(1, lease_s=8.0, heartbeat_s=0.5)
    task = await site.enqueue("wait_async", max_attempts=1)
    await site.until_noted("began")
    server.pause()
    try:
        await until(lambda: "task.given_up" in worker.log(), "the worker gives the run up")
        await site.until_noted("ended")
    finally:
        server.resume()
    resumed = asyncio.get_running_loop().time()
    await site.until_noted("began", 2)

    assert asyncio.get_running_loop().time() - resumed < 5.0
    again = await site.get(task)
    assert (again.status, again.attempt) == (Status.RUNNING, 1)
    assert "task.released" in await site.event_types(task)


async def test_work_that_ends_while_the_server_is_away_is_committed_when_it_is_back(
    site: ServerSite, server: Server
) -> None:
    """It is a plain function, which no one can stop, and the server is away for longer than its lease."""
    workers = await site.crew(2, lease_s=4.0, heartbeat_s=0.5)
    gate = site.folder / "gate"
    task = await site.enqueue("until_gate_in_thread", {"gate": str(gate)}, max_attempts=1)
    await site.until_noted("began")
    server.pause()
    try:
        await until(lambda: any("task.given_up" in worker.log() for worker in workers), "the worker gives the run up")
        gate.touch()
        await site.until_noted("ended")
        await until(lambda: sum(each.log().count("lease.not_renewed") for each in workers) >= 6, "more time goes by")
    finally:
        server.resume()
    final = await site.final(task)

    assert (final.status, final.attempt, plain(final.result)) == (Status.COMPLETED, 1, "done")
    assert len(site.noted("began")) == 1
    await site.judge_events()


async def test_a_task_whose_large_arguments_cannot_be_read_goes_back_to_the_queue(
    site: ServerSite, server: Server
) -> None:
    """The handler was not called, so that no attempt is used."""
    [worker] = await site.crew(1, lease_s=30.0, heartbeat_s=1.0)
    change_rules(server, "resetkeys", *ALL_BUT_BLOBS)
    task = await site.enqueue("repeat", {"text": "x", "times": 1, "padding": LARGE}, max_attempts=1)
    await until(lambda: worker.log().count("task.release") >= 2, "it is tried more than once")
    change_rules(server, "allkeys")
    final = await site.final(task)

    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
    assert len(site.noted("ran")) == 1
    await site.judge_events()


async def test_a_large_result_that_cannot_be_stored_is_kept_until_it_can(site: ServerSite, server: Server) -> None:
    [worker] = await site.crew(1, lease_s=3.0, heartbeat_s=0.5)
    change_rules(server, "resetkeys", *ALL_BUT_BLOBS)
    task = await site.enqueue("repeat", {"text": "x", "times": len(LARGE), "padding": ""}, max_attempts=1)
    await until(lambda: worker.log().count("result.repeated") >= 2, "it is tried more than once")
    change_rules(server, "allkeys")
    final = await site.final(task)

    assert (final.status, final.attempt, len(site.noted("ran"))) == (Status.COMPLETED, 1, 1)
    assert final.result is not None
    assert plain(await Payloads(site.stores.blobs).load(final.result)) == LARGE
    await site.judge_events()


@pytest.mark.long
@pytest.mark.realtime
async def test_a_server_that_stands_still_for_30_seconds_costs_no_attempt(site: ServerSite, server: Server) -> None:
    await site.crew(2, lease_s=30.0, heartbeat_s=5.0)
    gate = site.folder / "gate"
    slow = [await site.enqueue("slow_when_continued", {"until": str(gate)}, max_attempts=1) for _ in range(8)]
    quick = [await site.enqueue("until_gate_in_thread", {"gate": str(gate)}, max_attempts=1) for _ in range(4)]
    await site.until_noted("began", 12)
    server.pause()
    try:
        ending = threading.Timer(15.0, gate.touch)
        waiting = threading.Timer(30.0, lambda: None)
        for timer in (ending, waiting):
            timer.start()
        await asyncio.to_thread(waiting.join)
    finally:
        server.resume()
    ended = await site.all_final([task.id for task in (*slow, *quick)], within_s=90.0)

    assert {(task.status, task.attempt) for task in ended} == {(Status.COMPLETED, 1)}
    await site.judge_events()
