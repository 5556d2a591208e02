"""The clock of a server is set forward or back while work is in progress: nothing is taken away from a live holder."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from ade import Ade, Settings, Status, Task
from tests.domain import Event
from tests.faults.on_servers import VOLATILE, ServerSite, site_on
from tests.faults.workers import until
from tests.servers.cluster import Cluster
from tests.servers.plugin import binary_or_skip
from tests.servers.sentinel import Sentinels
from tests.servers.server import Server
from tests.servers.stepped import SteppedClock, SteppedServer, library_or_skip
from tests.waiting import eventually

pytestmark = pytest.mark.faults

STEP_S = 60.0
LEASE_S = 4.0  # of every worker here
TASKS = 4  # on each worker


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> Iterator[SteppedServer]:
    with SteppedServer(binary_or_skip(request.param)) as started:
        yield started


@pytest.fixture
async def site(server: SteppedServer, tmp_path: Path) -> AsyncIterator[ServerSite]:
    async with site_on(server.url, tmp_path) as made:
        yield made


class HeldTasks:
    """Tasks that run until their gate is opened."""

    def __init__(self, site: ServerSite, tasks: Sequence[Task], gate: Path) -> None:
        self._site = site
        self._gate = gate
        self.tasks = tasks

    @classmethod
    async def running(cls, site: ServerSite, count: int, **fields: int) -> "HeldTasks":
        gate = site.folder / "gate"
        args = {"until": str(gate)}
        tasks = [await site.enqueue("slow_when_continued", args, **fields) for _ in range(count)]
        await site.until_noted("began", count)
        return cls(site, tasks, gate)

    async def end(self) -> list[Task]:
        self._gate.touch()
        return [await self._site.final(task, 30.0) for task in self.tasks]


def watched(server: Server) -> tuple[float, float, float]:
    """Since when and until when the processes have watched the clock, and what it shows (all in s)."""
    with server.client(decode_responses=False) as client:
        stored, now_s = client.hget("ade:meta", "continuous"), client.time()[0]
    since, until_ms, *_ = msgspec.msgpack.decode(stored) if stored else (0, 0)
    return since / 1000, until_ms / 1000, now_s


def has_watched_for(server: Server, seconds: float) -> bool:
    """Whether the processes have judged leases again, for so long that every wrong judgment was made."""
    since_s, until_s, now_s = watched(server)
    return until_s - since_s >= seconds and abs(until_s - now_s) < STEP_S / 2


async def judged_again(site: ServerSite, server: SteppedServer) -> None:
    """Wait until leases are judged again after a step. No run is lost meanwhile."""

    def look() -> bool:
        assert "task.worker_lost" not in site.logs()
        return has_watched_for(server, 2 * LEASE_S)

    await until(look, "leases are judged again")


async def alerts(site: ServerSite) -> list[Event]:
    return [event for event in await site.stores.events.read(0, 1000) if event.type == "alert"]


async def reported(site: ServerSite) -> list[Event]:
    return await eventually(lambda: alerts(site), 30.0)


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_running_tasks_outlive_a_step_of_the_clock(
    site: ServerSite, server: SteppedServer, attempts: int
) -> None:
    await site.crew(2, concurrency=TASKS)
    held = await HeldTasks.running(site, 2 * TASKS, max_attempts=attempts)

    server.step(STEP_S)
    await judged_again(site, server)
    [alert] = await reported(site)

    ended = await held.end()
    assert {(task.status, task.attempt) for task in ended} == {(Status.COMPLETED, 1)}
    assert len(site.noted("began")) == 2 * TASKS, "none ran twice"
    assert alert.payload["what"] == "clock_stepped"
    assert abs(int(str(alert.payload["step_ms"])) - STEP_S * 1000) < 2000
    assert len(await alerts(site)) == 1, "one process has reported it"
    health = await site.stores.maintenance.health()
    assert [line for line in health.warnings if "was set forward by 60 s" in line]


async def test_a_worker_that_starts_right_after_the_step_takes_nothing_from_the_others(
    site: ServerSite, server: SteppedServer
) -> None:
    """It has measured nothing before, and the other worker neither sweeps nor renews before the new one has looked."""
    timing = {"concurrency": 1, "lease_s": 12.0, "heartbeat_s": 4.0}
    await site.crew(1, sweep_s=3600.0, **timing)
    held = await HeldTasks.running(site, 1, max_attempts=1)
    before = ends_of_leases(server)
    await until(lambda: ends_of_leases(server) != before, "a renewal")

    server.step(STEP_S)
    server.command("DEL", "ade:duty")  # the jobs of the other worker are those of the new one
    await site.crew(1, **timing)
    await judged_again(site, server)

    [ended] = await held.end()
    assert (ended.status, ended.attempt) == (Status.COMPLETED, 1)
    assert len(site.noted("began")) == 1, "it did not run twice"


def ends_of_leases(server: SteppedServer) -> list[str]:
    return list(server.command("ZRANGE", "ade:queue:leases", 0, -1, "WITHSCORES"))


@pytest.mark.parametrize("step_s", [STEP_S, pytest.param(-STEP_S, marks=pytest.mark.long)])
async def test_a_dead_worker_is_replaced_although_the_clock_was_stepped(
    site: ServerSite, server: SteppedServer, step_s: float
) -> None:
    [doomed] = await site.crew(1, concurrency=1, guarded=False)  # only its lease tells that it is dead
    task = await site.enqueue("first_time_hangs")
    await site.until_noted("began")
    [other] = await site.crew(1, concurrency=1)

    doomed.send(signal.SIGKILL)
    server.step(step_s)

    ended = await site.final(task, 8 * LEASE_S)
    assert (ended.status, ended.attempt) == (Status.COMPLETED, 2)
    assert site.noted("began") == [doomed.pid, other.pid]


async def test_the_first_worker_after_an_idle_time_takes_over_at_once_if_the_last_one_ran_on_its_machine(
    site: ServerSite, server: SteppedServer
) -> None:
    [doomed] = await site.crew(1, concurrency=1, guarded=False)
    task = await site.enqueue("first_time_hangs")
    await site.until_noted("began")
    await until(lambda: watched(server)[0] > 0, "the clock is watched")
    doomed.send(signal.SIGKILL)
    since_s = watched(server)[0]
    await until(lambda: watched(server)[2] - watched(server)[1] > LEASE_S, "the store is idle for a lease")

    [other] = await site.crew(1, concurrency=1)

    ended = await site.final(task, 8 * LEASE_S)
    assert (ended.status, ended.attempt) == (Status.COMPLETED, 2)
    assert site.noted("began") == [doomed.pid, other.pid]
    assert watched(server)[0] == since_s, "it continued what the dead worker had watched"


@pytest.mark.long
async def test_running_tasks_outlive_a_clock_that_is_set_back(site: ServerSite, server: SteppedServer) -> None:
    await site.crew(2, concurrency=TASKS)
    held = await HeldTasks.running(site, 2 * TASKS, max_attempts=1)

    server.step(-STEP_S)
    await judged_again(site, server)
    server.step(STEP_S)
    await judged_again(site, server)

    ended = await held.end()
    assert {(task.status, task.attempt) for task in ended} == {(Status.COMPLETED, 1)}
    assert len(site.noted("began")) == 2 * TASKS, "none ran twice"


@pytest.mark.long
@pytest.mark.parametrize("ahead_s", [STEP_S, -STEP_S])
async def test_running_tasks_outlive_a_failover_to_a_server_with_another_time(tmp_path: Path, ahead_s: float) -> None:
    with Sentinels(binary_or_skip("valkey"), kind=SteppedServer) as sentinels:
        replica = sentinels.replica()
        assert isinstance(replica, SteppedServer)
        replica.step(ahead_s)
        async with site_on(sentinels.url, tmp_path) as site:
            [doomed] = await site.crew(1, concurrency=1, guarded=False)
            lost = await site.enqueue("first_time_hangs")
            await site.until_noted("began")
            timing = {"lease_s": 12.0, "heartbeat_s": 4.0, "sweep_s": 3600.0}
            [stopped] = await site.crew(1, concurrency=1, guarded=False, **timing)
            held = await HeldTasks.running(site, 1, max_attempts=1)
            await site.until_noted("began", 2)
            doomed.send(signal.SIGKILL)
            primary = sentinels.primary()
            primary.command("DEL", "ade:duty")  # its jobs are those of the next worker
            await site.crew(1, concurrency=1)
            begun_s = watched(primary)[2]
            await until(lambda: watched(primary)[1] > begun_s, "the new worker sweeps")

            stopped.send(signal.SIGSTOP)  # it renews late
            killed = await asyncio.to_thread(sentinels.kill_primary)
            assert await asyncio.to_thread(sentinels.wait_promoted, killed) is replica
            await until(lambda: has_watched_for(replica, 2.0), "the other worker has swept")
            stopped.send(signal.SIGCONT)

            await until(lambda: has_watched_for(replica, 12.0), "leases are judged again")
            [ended] = await held.end()
            assert (ended.status, ended.attempt) == (Status.COMPLETED, 1)
            assert (await site.final(lost, 60.0)).attempt == 2, "the dead worker was replaced"


@pytest.mark.long
async def test_a_cluster_whose_servers_show_different_times_judges_each_lease_by_its_own_server(tmp_path: Path) -> None:
    library_or_skip()
    cluster = Cluster(binary_or_skip("valkey"))
    clocks = [SteppedClock(node) for node in cluster.nodes]
    for number, clock in enumerate(clocks):
        clock.step(number * STEP_S)
    with cluster:
        async with site_on(cluster.url, tmp_path, structs.replace(VOLATILE, partitions=6)) as site:
            queues = [f"queue-{number}" for number in range(8)]  # they are in several partitions
            [doomed] = await site.crew(1, concurrency=len(queues), guarded=False)
            lost = [await site.enqueue("first_time_hangs", queue=queue) for queue in queues]
            await site.until_noted("began", len(queues))
            await site.crew(1, concurrency=2 * len(queues))
            args = {"until": str(tmp_path / "gate")}
            held = [await site.enqueue("slow_when_continued", args, queue=queue, max_attempts=1) for queue in queues]
            await site.until_noted("began", 2 * len(queues))

            doomed.send(signal.SIGKILL)
            assert {(await site.final(task, 60.0)).attempt for task in lost} == {2}
            (tmp_path / "gate").touch()
            ended = [await site.final(task, 30.0) for task in held]
            assert {(task.status, task.attempt) for task in ended} == {(Status.COMPLETED, 1)}
            assert await alerts(site) == []


async def test_a_lock_and_its_waiters_outlive_a_step_of_the_clock(site: ServerSite, server: SteppedServer) -> None:
    """The waiter has no time limit, so nothing but its turn ends its wait."""
    settings = Settings(redis=VOLATILE)
    holding, waiting = Ade(site.url, settings=settings), Ade(site.url, settings=settings)
    [worker] = await site.crew(1)  # it removes expired locks
    entered = asyncio.Event()

    async def wait() -> None:
        async with waiting.lock("repo:app"):
            entered.set()

    try:
        async with holding.lock("repo:app", ttl=3) as held:
            waiter = asyncio.create_task(wait())
            await eventually(lambda: has_waiter(server), 10.0)
            server.step(STEP_S)
            await judged_again(site, server)
            await reported(site)
            held.check()
            assert not waiter.done()
        await asyncio.wait_for(waiter, 10.0)
        assert entered.is_set()
    finally:
        await holding.close()
        await waiting.close()
    assert "lock.expired" not in {event.type for event in await site.stores.events.read(0, 1000)}
    assert worker.process.poll() is None


async def has_waiter(server: SteppedServer) -> bool:
    return bool(await asyncio.to_thread(server.command, "EXISTS", "ade:lock:line:default:repo:app"))


async def test_the_lock_of_a_dead_holder_is_free_some_time_after_the_step(
    site: ServerSite, server: SteppedServer
) -> None:
    settings = Settings(redis=VOLATILE)
    waiting = Ade(site.url, settings=settings)
    program = (
        "import sys, time\nfrom ade import Ade, Settings\nfrom ade.settings.sections import RedisSettings\n"
        "app = Ade(sys.argv[1], settings=Settings(redis=RedisSettings(allow_volatile=True)))\n"
        "with app.lock('repo:app', ttl=3):\n    print('held', flush=True)\n    sys.stdin.readline()\n"
    )
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, site.url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"

    holder.kill()
    server.step(STEP_S)

    try:
        async with asyncio.timeout(30), waiting.lock("repo:app") as held:
            held.check()
    finally:
        await waiting.close()
        await holder.wait()
