"""Use a store on a file system that becomes read-only: say which errors are met, while open and when opened."""

import asyncio
import subprocess
import sys
from pathlib import Path

from ade.errors import AdeError
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import StoreSettings, open_sqlite


async def code_of(action: object) -> str:
    try:
        await action  # type: ignore[misc]  # any awaitable
    except AdeError as error:
        return error.code
    return "went_through"


async def main(folder: Path) -> None:
    url, clock = f"sqlite:///{folder / 'ade.db'}", TestClock()
    stores = await open_sqlite(url, StoreSettings(ballast_mb=0), clock)
    scene = Scene(stores, clock)
    task = await scene.add()
    await stores.close()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    print(await code_of(open_sqlite(url, StoreSettings(ballast_mb=0), clock)))
    print(await code_of(open_sqlite(f"sqlite:///{folder / 'sub' / 'new.db'}", StoreSettings(), clock)))
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    again = await open_sqlite(url, StoreSettings(ballast_mb=0), clock)
    print((await Scene(again, clock).get(task.id)).status, flush=True)
    await again.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
