"""Open a store on a disk without any room: say what became of the work that was under way."""

import asyncio
import sys
from pathlib import Path

from ade.errors import AdeError
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import StoreSettings, open_sqlite
from tests.stores.sqlite.programs.fill_disk import fill


async def main(folder: Path) -> None:
    clock, options = TestClock(), StoreSettings(ballast_mb=2)
    stores = await open_sqlite(f"sqlite:///{folder / 'ade.db'}", options, clock)
    running = await Scene(stores, clock).start()
    await stores.close()
    fill(folder / "filler")
    again = await open_sqlite(f"sqlite:///{folder / 'ade.db'}", options, clock)
    scene = Scene(again, clock)
    await scene.succeed(running)
    print(await scene.status(running.id))
    await again.close()
    fill(folder / "filler")
    try:
        await open_sqlite(f"sqlite:///{folder / 'new.db'}", options, clock)
    except AdeError as error:
        print(error.code)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
