"""Workers and producers on real servers, and what must hold when the trouble is over."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from ade import Status, Task
from ade.errors import NotConfirmed, StoreError
from ade.failures import Backoff
from ade.settings import Settings
from tests.domain import Event, Payloads, RedisSettings, Stores, enqueue, open_stores, uuid7
from tests.faults.campaign.history import Story
from tests.faults.workers import Site, WorkerProcess
from tests.waiting import eventually, is_set_within

VOLATILE = RedisSettings(allow_volatile=True)
GENEROUS = 50  # attempts: faults use some up
_BATCH = 5
_PACE_S = 0.05
_PAGE = 2_000
_AT_ONCE = 8  # tasks of one worker


class ServerSite(Site):
    """Workers on servers, and the stores as the test itself sees them."""

    def __init__(self, folder: Path, stores: Stores, url: str, redis: RedisSettings) -> None:
        super().__init__(folder, stores, url)
        self._redis = msgspec.to_builtins(redis)
        self.queues: Sequence[str] = ("default",)  # tasks go to any of them

    async def crew(self, count: int = 2, **options: Any) -> list[WorkerProcess]:
        """Several workers with leases of a few seconds."""
        usual = {"lease_s": 4.0, "heartbeat_s": 1.0, "concurrency": _AT_ONCE, "redis": self._redis}
        return list(await asyncio.gather(*(self.worker(**usual | options) for _ in range(count))))

    def task(self, seconds: float = 0.0, **fields: Any) -> Task:
        """One that leaves its runs in the journal."""
        return Task(
            id=uuid7(self.stores.clock.now(), os.urandom(10)),
            name="traced",
            queue=random.choice(self.queues),
            args=Raw(msgspec.json.encode({"journal": str(self.journal), "seconds": seconds})),
            max_attempts=GENEROUS,
            backoff=Backoff(base_ms=0, cap_ms=0),
            **fields,
        )

    async def add(self, *tasks: Task) -> list[Task]:
        return await enqueue(self.stores, Payloads(self.stores.blobs), tasks)

    async def all_final(self, ids: Sequence[str], within_s: float = 60.0) -> list[Task]:
        """The tasks, once all of them have ended."""
        left, found = list(ids), dict[str, Task]()

        async def look() -> bool:
            nonlocal left
            got = [task for task in await self.stores.tasks.get(left) if task is not None and task.is_final]
            found.update((task.id, task) for task in got)
            left = [task_id for task_id in left if task_id not in found]
            return not left

        try:
            await eventually(look, within_s)
        except TimeoutError:
            states = [task and f"{task.id} {task.status} {task.attempt}" for task in await self.stores.tasks.get(left)]
            raise AssertionError(f"{len(left)} tasks have not ended: {states[:10]}\n{self.logs()}") from None
        return [found[task_id] for task_id in ids]

    def runs(self, what: str = "began") -> dict[str, list[tuple[int, int]]]:
        """By task: attempt and process, in the order of the journal."""
        found = defaultdict(list)
        for line in self.journal.read_text().splitlines() if self.journal.exists() else []:
            words, pid = line.rsplit(" ", 1)
            kind, *run = words.split(":")
            if kind == what and run:
                found[run[0]].append((int(run[1]), int(pid)))
        return dict(found)

    async def stories(self) -> dict[str, Story]:
        histories: dict[str, list[Event]] = defaultdict(list)
        last = 0
        while page := await self.stores.events.read(last, _PAGE):
            for event in page:
                if event.task_id is not None:
                    histories[event.task_id].append(event)
            last = page[-1].seq
        return {task_id: Story(task_id).tell(events) for task_id, events in histories.items()}

    async def judge(self, acknowledged: Sequence[str], within_s: float = 60.0) -> None:
        """Nothing acknowledged is lost, nothing ended twice, nobody is deaf, and all sums are right."""
        ended = await self.all_final(acknowledged, within_s)
        failed = [f"{task.id} {task.error}" for task in ended if task.status is not Status.COMPLETED]
        assert not failed, failed
        await self.all_hear()
        stories = await self.judge_events()
        untold = [task_id for task_id in acknowledged if task_id not in stories]
        assert not untold, untold

    async def judge_events(self) -> dict[str, Story]:
        """One lease at a time, one final event for each generation, and the invariants hold once all is quiet."""
        stories = await self.stories()
        wrongs = [wrong for story in stories.values() for wrong in story.wrongs]
        assert not wrongs, wrongs

        async def sound() -> bool:
            return await self.stores.maintenance.check_invariants() == []

        try:
            await eventually(sound, 30.0)
        except TimeoutError:
            broken = await self.stores.maintenance.check_invariants()
            assert not broken, broken
        return stories

    async def all_hear(self, within_s: float = 30.0) -> None:
        """Every worker process is alive and takes new work."""
        ended = [worker.log()[-2000:] for worker in self.workers if worker.process.poll() is not None]
        assert not ended, ended
        listening = {worker.pid for worker in self.workers}
        heard: set[int] = set()
        asked: list[str] = []

        async def look() -> bool:
            runs = self.runs()
            heard.update(pid for task_id in asked for _, pid in runs.get(task_id, []))
            if heard < listening and all(task_id in runs for task_id in asked):
                tasks = [self.task(0.3) for _ in range(_AT_ONCE * len(listening))]
                with suppress(NotConfirmed):  # accepted all the same
                    await self.add(*tasks)
                asked.extend(task.id for task in tasks)
            return heard >= listening

        try:
            await eventually(look, within_s)
        except TimeoutError:
            raise AssertionError(f"processes {listening - heard} hear nothing\n{self.logs()}") from None
        await self.all_final(asked)

    def warnings(self) -> list[str]:
        """What the workers have said that is more than a remark."""
        lines = [line for worker in self.workers for line in worker.log().splitlines()]
        return [line for line in lines if '"level": "warning"' in line or '"level": "error"' in line]

    def logs(self) -> str:
        return "\n".join(f"--- {worker.pid}\n{worker.log()[-3000:]}" for worker in self.workers)


class Load:
    """Producers that ask again for as long as they get no answer; what they were told is kept."""

    def __init__(self, site: ServerSite, stores: Stores) -> None:
        self._site = site
        self._stores = stores
        self._stopping = asyncio.Event()
        self.acknowledged: list[str] = []
        self.unconfirmed: list[str] = []
        self.troubles: list[StoreError] = []

    async def produce(self, seconds: float) -> None:
        payloads = Payloads(self._stores.blobs)
        while not self._stopping.is_set():
            tasks = [self._site.task(seconds) for _ in range(_BATCH)]
            ids = [task.id for task in tasks]
            while not self._stopping.is_set():
                try:
                    await enqueue(self._stores, payloads, tasks)
                except NotConfirmed:
                    self.unconfirmed += ids
                    break
                except StoreError as error:
                    self.troubles.append(error)
                    await is_set_within(self._stopping, _PACE_S)
                else:
                    self.acknowledged += ids
                    break
            await is_set_within(self._stopping, _PACE_S)

    def stop(self) -> None:
        self._stopping.set()

    async def more(self, count: int = 20, within_s: float = 60.0) -> None:
        """Wait until this many more tasks were accepted."""
        enough = len(self.acknowledged) + len(self.unconfirmed) + count

        async def look() -> bool:
            return len(self.acknowledged) + len(self.unconfirmed) >= enough

        try:
            await eventually(look, within_s)
        except TimeoutError:
            raise AssertionError(f"no new work was accepted in {within_s:g} s: {self.troubles[-1:]}") from None


@asynccontextmanager
async def under_load(site: ServerSite, seconds: float = 0.05, stores: Stores | None = None) -> AsyncIterator[Load]:
    """Two producers are at it while the block lasts, and the first tasks are accepted when it begins."""
    load = Load(site, stores or site.stores)
    producers = [asyncio.create_task(load.produce(seconds)) for _ in range(2)]
    try:
        await load.more()
        yield load
    finally:
        load.stop()
        await asyncio.gather(*producers)


@asynccontextmanager
async def site_on(url: str, folder: Path, redis: RedisSettings = VOLATILE) -> AsyncIterator[ServerSite]:
    """Everything it started has ended when the block is left."""
    stores = await open_stores(url, Settings(redis=redis))
    site = ServerSite(folder, stores, url, redis)
    try:
        yield site
    finally:
        site.end()
        await stores.close()
