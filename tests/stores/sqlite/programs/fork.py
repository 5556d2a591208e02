"""Fork with an open store: say what the child meets when it uses the store of its parent."""

import asyncio
import os
import sys

from ade.errors import AdeError
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Stores, StoreSettings, open_sqlite


async def tries(stores: Stores, scene: Scene) -> list[str]:
    async def add() -> object:
        return await scene.add()

    async def read() -> object:
        return await stores.tasks.get(["x"])

    async def renew() -> object:
        return scene.renew()

    async def close() -> object:
        await stores.close()
        return None

    met = []
    for action in (add, read, renew, close):
        try:
            await asyncio.wait_for(action(), 30)
            met.append(f"{action.__name__}:went_through")
        except AdeError as error:
            met.append(f"{action.__name__}:{error.code}")
        except TimeoutError:
            met.append(f"{action.__name__}:hung")
    return met


async def open_and_use(path: str) -> tuple[Stores, Scene]:
    clock = TestClock()
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0), clock)
    scene = Scene(stores, clock)
    await scene.add()
    await stores.tasks.get(["x"])
    scene.renew()
    return stores, scene


def main(path: str) -> None:
    loop = asyncio.new_event_loop()
    stores, scene = loop.run_until_complete(open_and_use(path))
    child = os.fork()
    if child == 0:
        print(" ".join(asyncio.new_event_loop().run_until_complete(tries(stores, scene))), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    loop.run_until_complete(scene.add())
    assert loop.run_until_complete(stores.maintenance.check_invariants()) == []
    loop.run_until_complete(stores.close())
    print("parent:fine", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
