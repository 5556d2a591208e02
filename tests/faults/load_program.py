"""A producer or a worker under load: `python -m tests.faults.load_program produce|work <url> [seconds]`.

A producer that meets any error ends with it; so does a worker. What a producer was told stands in its last line.
"""

import asyncio
import sys
import time
from typing import Any

from ade import Ade, Settings, TaskHandle
from tests.domain import StoreSettings

BATCH = 40
AT_ONCE = 8
LEAST = 120  # tasks in batches, however slow the machine is


def make_app(url: str) -> tuple[Ade, Any]:
    ade = Ade(settings=Settings(store=StoreSettings(url=url)))

    @ade.task
    async def double(number: int) -> int:
        return 2 * number

    return ade, double


async def produce(url: str, seconds: float) -> int:
    """One by one, several at once, and in batches; look at some of them as a user would."""
    ade, double = make_app(url)
    async with ade:
        deadline = time.monotonic() + seconds
        one_by_one, at_once, in_batches = await asyncio.gather(
            _one_by_one(double, deadline), _at_once(double, deadline), _in_batches(ade, double, deadline)
        )
    return one_by_one + at_once + in_batches


async def _one_by_one(double: Any, deadline: float) -> int:
    """Each is waited for."""
    count = 0
    while time.monotonic() < deadline:
        task: TaskHandle[int] = await double.enqueue(count)
        assert await task.result(timeout=180) == 2 * count
        assert [event.type async for event in task.events()][-1] == "task.succeeded"
        count += 1
    return count


async def _at_once(double: Any, deadline: float) -> int:
    count = 0
    while time.monotonic() < deadline:
        tasks = await asyncio.gather(*(double.enqueue(number) for number in range(AT_ONCE)))
        await tasks[0].status()
        await tasks[-1].explain()
        count += AT_ONCE
    return count


async def _in_batches(ade: Ade, double: Any, deadline: float) -> int:
    count = 0
    while time.monotonic() < deadline or count < LEAST:
        tasks = await ade.enqueue_many([double.call(number) for number in range(BATCH)])
        count += len(tasks)
        await tasks[-1].result(timeout=180)
    return count


def main() -> None:
    role, url = sys.argv[1:3]
    if role == "produce":
        print("acknowledged", asyncio.run(produce(url, float(sys.argv[3]))), flush=True)
    else:
        make_app(url)[0].run_worker()


if __name__ == "__main__":
    main()
