"""Enqueue one by one on a disk whose syncs fail: say, as JSON, which ids were accepted, which not, and what was met."""

import asyncio
import json
import sys

from ade.errors import AdeError
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import StoreSettings, open_sqlite


async def main(path: str, count: int) -> None:
    clock = TestClock()
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0), clock)
    scene = Scene(stores, clock)
    accepted: list[str] = []
    refused: list[str] = []
    met: list[str] = []
    for _ in range(count):
        task = scene.task()
        try:
            await scene.add_all(task)
            accepted.append(task.id)
        except AdeError as error:
            refused.append(task.id)
            met.append(str(error))
    broken = await stores.maintenance.check_invariants()
    await stores.close()
    print(json.dumps({"accepted": accepted, "refused": refused, "met": met, "broken": broken}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
