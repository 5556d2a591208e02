"""The tasks of a campaign: slow, failing, fragile, waiting, paying; and every run leaves a trail."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ade import Ade, Backoff, Context, TaskHandle
from ade.settings import Settings
from ade.tasks.enqueue import Invocation
from ade.tasks.model import Task
from ade.tasks.outcomes import Outcome
from tests.faults.campaign.trails import Trail

GENEROUS, FEW = 50, 2  # attempts: kills use some up
SOON = Backoff(base_ms=20, cap_ms=200)
_QUEUES = ("default", "second", "third", "fourth", "fifth")  # on a cluster they lie in several partitions
STEP_S, LONG_STEP_S = 0.15, 0.4


def key_of(slot: int, number: int) -> str:
    """What makes a repeated request of a producer the same request."""
    return f"{slot}-{number}"


class CampaignApp:
    """`pace` 0 makes all tasks quick. Workers give the trails that runs and payments are written to."""

    def __init__(self, settings: Settings, *, pace: float = 1.0) -> None:
        self.ade = Ade(settings=settings)
        self._pace = pace
        self._queues = _QUEUES if settings.store.url.startswith("redis+cluster:") else _QUEUES[:1]
        self._payments: Trail | None = None
        declare = self.ade.task
        self._step = declare(max_attempts=GENEROUS, backoff=SOON, name="step")(self._run_step)
        self._step_in_thread = declare(max_attempts=GENEROUS, backoff=SOON, name="thread")(self._run_in_thread)
        self._stumble = declare(max_attempts=GENEROUS, backoff=SOON, name="stumble")(self._run_stumbling)
        self._charge = declare(max_attempts=GENEROUS, backoff=SOON, name="charge")(self._run_charging)
        self._fragile = declare(max_attempts=FEW, backoff=SOON, name="fragile")(self._run_long)

    def record_runs(self, runs: Trail, payments: Trail) -> None:
        """Have every run and every payment written down from now on."""
        self._payments = payments

        async def record(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
            run = (task.id, task.generation, task.attempt, task.run_id)
            runs.write(("began", *run))
            outcome = await proceed()
            runs.write(("ended", *run))
            return outcome

        self.ade.middleware(record)

    def calls(self, slot: int, numbers: Sequence[int]) -> list[Invocation[Any]]:
        """What the producer of this slot asks for under these numbers: the same whenever it is asked for again."""
        made: list[Invocation[Any]] = []
        for number in numbers:
            task = self._request(slot, number)
            if number % 20 == 5 and made:
                task = task.with_options(after=[made[-1]], after_failure="run")
            made.append(task.call(slot, number))
        return made

    async def enqueue(self, slot: int, numbers: Sequence[int]) -> list[TaskHandle[Any]]:
        """One by one where it is one, else as a batch."""
        if len(numbers) == 1:
            [number] = numbers
            return [await self._request(slot, number).enqueue(slot, number)]
        return await self.ade.enqueue_many(self.calls(slot, numbers))

    async def unfinished(self) -> int:
        """How many tasks are in flight."""
        stores = (await self.ade.open()).stores
        live = {"pending", "running", "stalled"}
        return sum(tally.count for tally in await stores.queues.tallies() if tally.status in live)

    def _request(self, slot: int, number: int) -> Any:
        """The task with the key and queue that are its own whenever it is asked for."""
        queue = self._queues[number % len(self._queues)]
        return self._task_for(number).with_options(key=key_of(slot, number), queue=queue)

    def _task_for(self, number: int) -> Any:
        special = {0: self._fragile, 1: self._charge, 2: self._stumble, 3: self._step_in_thread}
        return special.get(number % 20, self._step)

    async def _run_step(self, slot: int, number: int) -> int:
        await self._take(STEP_S)
        return number

    def _run_in_thread(self, slot: int, number: int) -> int:
        time.sleep(STEP_S * self._pace)
        return number

    async def _run_stumbling(self, ctx: Context, slot: int, number: int) -> int:
        await self._take(STEP_S / 2)
        if ctx.attempt <= 1 + number % 3:
            raise ConnectionError(f"attempt {ctx.attempt} stumbles")
        return number

    async def _run_charging(self, ctx: Context, slot: int, number: int) -> str:
        key = key_of(slot, number)
        return await ctx.once(key, self._pay, key)

    async def _pay(self, key: str) -> str:
        if self._payments is not None:
            self._payments.write((key,))
        await self._take(STEP_S)  # a kill in here leaves the effect unknown
        return f"receipt for {key}"

    async def _run_long(self, slot: int, number: int) -> int:
        await self._take(LONG_STEP_S)
        return number

    async def _take(self, seconds: float) -> None:
        """The time that a step takes, for as long as nobody is in a hurry."""
        await asyncio.sleep(seconds * self._pace)
