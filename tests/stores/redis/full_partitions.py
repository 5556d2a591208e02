"""A store in which every kind of place is taken: what can be lost there, and how the story ends if nothing is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade import Task
from ade.testing import TestClock
from tests.conformance.scene import LEASE_MS, Scene, raw
from tests.domain import (
    Definition,
    LockLimits,
    LockMode,
    RedisMaintenance,
    RedisSettings,
    Schedule,
    lose_lease,
    open_redis,
    validate_request,
)
from tests.servers.cluster import Cluster
from tests.servers.server import Server

OPTIONS = RedisSettings(allow_volatile=True, partitions=4)


class Village:
    """A scene on a real server, with tasks in all places."""

    def __init__(self, server: Server | Cluster, scene: Scene, maintenance: RedisMaintenance) -> None:
        self.server = server
        self.scene = scene
        self.maintenance = maintenance
        self.tasks: list[Task] = []
        self.running: list[Task] = []

    def command(self, *words: str | int) -> object:
        assert isinstance(self.server, Server)
        return self.server.command(*words)

    def keys_like(self, pattern: str = "*") -> list[str]:
        found = self.command("KEYS", f"ade:{pattern}")
        assert isinstance(found, list)
        return sorted(found)

    def lose(self, pattern: str) -> list[str]:
        """Delete all keys of a pattern; answers which."""
        keys = self.keys_like(pattern)
        for key in keys:
            self.command("DEL", key)
        return keys

    async def settle_in(self) -> None:
        """Take every place there is."""
        scene = self.scene
        await scene.stores.workers.register(
            scene.worker("w1"), [Definition(name="build", concurrency_per_key=1)], ttl_ms=LEASE_MS
        )
        await scene.stores.schedules.put(Schedule(name="nightly", cron="0 3 * * *", task_name="send", next_at=1))
        await self._end_some()
        stalled = await self._start(priority=0)
        await scene.stores.effects.begin("mail", stalled.id, str(stalled.run_id))
        await scene.stores.effects.finish("mail", str(stalled.run_id), raw("1"))
        stall = lose_lease(stalled, now=scene.clock.now())
        self.running.append(await self._start(priority=1))
        self.running.append(await self._start("build", concurrency_key="k", priority=1))
        kept = await self._start(priority=0)
        await scene.stores.tasks.commit(stall)
        await scene.fail(kept)  # its retry is delayed
        parked = await self._add("build", concurrency_key="k", priority=2)
        await self._add(needs=("gpu",), priority=7)
        await self._add("build", needs=("gpu", "net"), concurrency_key="k", priority=7)
        self.running.append((await self._claimed_again(stalled))[0])  # delivered out of a line
        assert await scene.claim(names=["build"], can=["gpu", "net"]) == [], "its key is taken"
        parent = await self._add(priority=8)
        await self._add(parent_id=parent.id, priority=8, idempotency_key="once", team="payments", ticket_ref="OPS-7")
        await self._add(author_id="ann", tags=("urgent",), resources=("db:main",), priority=8)
        await self._add(depends_on=(self.running[0].id, parent.id))
        await self._add(run_after=scene.clock.now() + 60_000)
        await self._add("report", priority=3, deadline=scene.clock.now() + 3_600_000)
        released = await self._start(priority=0)
        await scene.release(released)
        assert parked.id != parent.id
        for holder in ("first", "second"):  # and who waits for it
            wanted = validate_request(id=holder, owner=holder, scope=holder, wanted=[("db:main", LockMode.EXCLUSIVE)])
            await scene.stores.locks.acquire(wanted, wait_ms=None, limits=LockLimits())

    async def _end_some(self) -> None:
        done = await self._start(result_ttl_ms=3_600_000)
        await self.scene.succeed(done, '{"x":1}')
        dead = await self._start()
        await self.scene.fail_for_good(dead)
        await self._add(depends_on=(dead.id,))  # waits in vain

    async def _add(self, name: str = "send", **fields: object) -> Task:
        task = await self.scene.add(name, **fields)
        self.tasks.append(task)
        return task

    async def _start(self, name: str = "send", **fields: object) -> Task:
        added = await self._add(name, **fields)
        [running] = await self.scene.claim(worker="w1", names=[name])
        assert running.id == added.id
        return running

    async def _claimed_again(self, task: Task) -> list[Task]:
        [again] = await self.scene.claim(worker="w2")
        assert again.id == task.id
        return [again]

    async def run_out(self) -> None:
        """All work is done by the workers of the story: what runs ends, what waits comes to run."""
        for task in self.running:
            await self.scene.succeed(task)
        self.running = []
        for _ in range(30):
            await self.scene.sweep()
            while tasks := await self.scene.claim(10, worker="w3", can=["gpu", "net"]):
                for task in tasks:
                    await self.scene.succeed(task)
            self.scene.clock.advance(600)

    async def unfinished(self) -> list[str]:
        """What is lost, stuck, or ended twice."""
        wrong = []
        for task, found in zip(self.tasks, await self.scene.stores.tasks.get([t.id for t in self.tasks]), strict=True):
            ends = [kind for kind in await self.scene.event_types(task.id) if kind in ("task.succeeded", "task.failed")]
            if found is None or not found.is_final or len(ends) > 1:
                wrong.append(f"{task.id}: {found.status if found else 'gone'} {ends}")
        return wrong


@asynccontextmanager
async def village(server: Server | Cluster) -> AsyncIterator[Village]:
    """A store on this server, settled."""
    clock = TestClock()
    stores = await open_redis(server.url, OPTIONS, clock)
    try:
        assert isinstance(stores.maintenance, RedisMaintenance)
        built = Village(server, Scene(stores, clock), stores.maintenance)
        await built.settle_in()
        yield built
    finally:
        await stores.close()
