"""Enqueue, claim, renew and finish as fast as it goes; say how often, or fail with the first error."""

import asyncio
import sys

from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import StoreSettings, open_sqlite


async def main(path: str, name: str, rounds: int) -> None:
    clock = TestClock()
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0), clock)
    scene = Scene(stores, clock)
    finished = 0
    for _ in range(rounds):
        await asyncio.gather(*(scene.add() for _ in range(5)))
        running = await scene.claim(5, worker=name)
        gone = await asyncio.to_thread(scene.renew, *running, worker=name)
        assert gone == {}, gone
        answers = await stores.tasks.commit_each([scene.success(task) for task in running])
        assert answers == [None] * len(running), answers
        finished += len(running)
    await stores.close()
    print(finished, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
