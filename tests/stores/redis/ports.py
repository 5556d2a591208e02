"""The ports of the store on one link, and what stories about them need: answers that get lost, tasks that run."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ade import Task
from ade.stores.redis.blobs import RedisBlobs
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.effects import RedisEffects, RedisOutputs
from ade.stores.redis.event_log import RedisEvents
from ade.stores.redis.invariants import broken_invariants
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.queues import RedisQueues, RedisSchedules
from ade.stores.redis.sweeps import RedisSweeps
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.redis.workers import RedisWorkers
from ade.testing import TestClock
from tests.conformance.scene import raw
from tests.domain import (
    ClaimRequest,
    OutputLine,
    RedisSettings,
    RedisTasks,
    Succeeded,
    Worker,
    admit,
    parse_url,
    settle,
    uuid7,
)


class RepeatingLink(RedisClient):
    """Keeps what it was asked to send, so that it can arrive once more as after a lost answer."""

    loses_answers = False
    sent: list[tuple[str, int, dict[str, Any]]]

    async def run(self, name: str, partition: int, request: dict[str, Any], **options: Any) -> Any:
        if self.clock is not self.server_clock:
            request = {
                "now": self.clock.now(),
                "steady": self.clock.steady(),
                **request,
            }  # a repetition changes nothing
        if self.loses_answers:
            await super().run(name, partition, request, **options)
        self.__dict__.setdefault("sent", []).append((name, partition, request))
        return await super().run(name, partition, request, **options)

    async def send_again(self, name: str, number: int = -1) -> Any:
        """A call of this script, the newest unless told, arrives a second time."""
        _, partition, request = [call for call in self.sent if call[0] == name][number]
        return await super().run(name, partition, request)


class Ports:
    """The small ports of one store, and the tasks they speak of."""

    def __init__(self, link: RepeatingLink, clock: TestClock) -> None:
        self.link = link
        self.clock = clock
        link.clock = clock
        self.places = Partitions(link)
        self.tasks = RedisTasks(link, self.places)
        self.effects = RedisEffects(link, self.places)
        self.outputs = RedisOutputs(link, self.places)
        self.schedules = RedisSchedules(link)
        self.blobs = RedisBlobs(link)
        self.queues = RedisQueues(link, self.places)
        self.sweeps = RedisSweeps(link, self.places, self.blobs)
        self.workers = RedisWorkers(link, self.places)

    def task(self, **fields: Any) -> Task:
        now = self.clock.now()
        known = {"id": uuid7(now, os.urandom(10)), "name": "send", "queue": self.queue_in(0)}
        return admit(Task(**(known | fields)), now=now)

    def queue_in(self, partition: int) -> str:
        """A queue that lies in this partition."""
        return next(name for number in range(10_000) if self.places.of_queue(name := f"q{number}") == partition)

    async def start(self, *, worker: str = "w1", **fields: Any) -> Task:
        """A task that is running."""
        [added] = await self.tasks.add([self.task(**fields)])
        request = ClaimRequest(worker_id=worker, run_ids=[os.urandom(16).hex()], names=frozenset({added.name}))
        [running] = await self.tasks.claim(request)
        assert running.id == added.id
        return running

    async def succeed(self, running: Task) -> None:
        await self.tasks.commit(settle(running, Succeeded(raw("null")), now=self.clock.now(), randomness=0.5))

    async def remove(self, running: Task) -> None:
        """End a running task and prune it."""
        await self.succeed(running)
        assert await self.sweeps.prune([running.id]) == 1

    def worker(self, worker_id: str = "w1") -> Worker:
        return Worker(id=worker_id, hostname="here", pid=1, started_at=self.clock.now(), version="0")

    async def consumers(self) -> set[str]:
        """Who reads the streams of the first partition, by name."""
        names = self.link.names[0]
        streams = [f"{names.tasks}:{self.queue_in(0)}:5", f"{names.prefix}queue:back"]
        there = [stream for stream in streams if (await self.link.ask(0, ("EXISTS", stream)))[0]]
        answers = await self.link.ask(0, *(("XINFO", "CONSUMERS", stream, names.group) for stream in there))
        return {_fact(consumer, b"name").decode() for consumers in answers for consumer in consumers}

    async def keys(self, pattern: str) -> list[bytes]:
        """Keys of all partitions."""
        found: list[bytes] = []
        for partition, names in enumerate(self.link.names):
            escaped = names.prefix.replace("{", "[{]").replace("}", "[}]")
            [keys] = await self.link.ask(partition, ("KEYS", f"{escaped}{pattern}"))
            found += keys
        return found


@asynccontextmanager
async def open_ports(url: str, partitions: int = 1, prefix: str = "ade:") -> AsyncIterator[Ports]:
    link = RepeatingLink(parse_url(url), RedisSettings(partitions=partitions, prefix=prefix))
    for partition, names in enumerate(link.names):
        await link.ask(partition, ("HSET", f"{names.prefix}meta", "partitions", link.partitions))
    yield Ports(link, TestClock())
    await link.close()


class OnePort:
    """A port of one store that tests of its own speak of, and a link to it whose calls can be repeated."""

    def __init__(self, link: RepeatingLink) -> None:
        self.link = link
        self.clock = TestClock()
        self.wakeups = RedisWakeups(link)
        link.clock = self.clock
        self.log = RedisEvents(link, Partitions(link))
        self.prefix = link.names[0].prefix

    async def told(self) -> list[str]:
        return [event.type for event in await self.log.read(0, 1_000)]

    async def broken(self) -> list[str]:
        return await broken_invariants(self.link, Partitions(self.link))

    async def close(self) -> None:
        self.wakeups.close()
        await self.link.close()


def _fact(facts: Any, name: bytes) -> Any:
    return facts[name] if isinstance(facts, dict) else facts[facts.index(name) + 1]


def line(task: Task, text: str) -> OutputLine:
    return OutputLine(task_id=task.id, run_id=str(task.run_id), attempt=task.attempt, at=5, text=text)
