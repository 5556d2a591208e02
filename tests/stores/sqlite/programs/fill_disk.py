"""Live through a full disk: say, as JSON, what was refused and what went through."""

import asyncio
import json
import sys
from pathlib import Path

from ade.errors import DiskFull
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import Stores, StoreSettings, open_sqlite
from tests.waiting import eventually

LARGE = '"' + "x" * 100_000 + '"'


def fill(file: Path) -> None:
    """Another program takes the rest of the disk."""
    with file.open("ab", buffering=0) as stream:
        for size in (65_536, 4_096, 1):
            try:
                while stream.write(b"\0" * size):
                    pass
            except OSError:
                continue


async def add_until_full(scene: Scene) -> str:
    for _ in range(1_000):
        try:
            await scene.add(description=LARGE)
        except DiskFull as refusal:
            return str(refusal)
    return "never full"


async def refused(scene: Scene) -> bool:
    try:
        await scene.add()
    except DiskFull:
        return True
    return False


async def becomes(scene: Scene, *, full: bool) -> bool:
    """Whether new work is soon refused, or accepted again: the disk is looked at once a second."""

    async def is_so() -> bool:
        return await refused(scene) == full

    try:
        return await eventually(is_so, 10)
    except TimeoutError:
        return False


async def live_through(stores: Stores, scene: Scene, folder: Path) -> dict[str, object]:
    story: dict[str, object] = {}
    (folder / "filler").write_bytes(b"\0" * (30 << 20))
    await scene.add_many(6)
    running = await scene.claim(6)
    story["near_the_end"] = await add_until_full(scene)
    fill(folder / "filler")
    story["full"] = await becomes(scene, full=True)
    ballast = folder / "ade.db.ballast"
    story["ballast_before"] = ballast.exists()
    story["finished"] = await stores.tasks.commit_each([scene.success(task, LARGE) for task in running[:5]])
    story["renewed"] = scene.renew(running[5])
    await scene.succeed(running[5])
    story["ballast_after"] = ballast.exists()
    story["still_refused"] = await refused(scene)
    (folder / "filler").unlink()
    story["accepted_again"] = await becomes(scene, full=False)
    await stores.maintenance.checkpoint()
    story["ballast_back"] = ballast.exists()
    story["counts"] = await scene.counts()
    story["broken"] = await stores.maintenance.check_invariants()
    story["check"] = (await stores.maintenance.health()).facts["quick_check"]
    return story


async def main(folder: Path) -> None:
    clock = TestClock()
    options = StoreSettings(ballast_mb=16, min_free_percent=10)
    stores = await open_sqlite(f"sqlite:///{folder / 'ade.db'}", options, clock)
    print(json.dumps(await live_through(stores, Scene(stores, clock), folder)), flush=True)
    await stores.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
