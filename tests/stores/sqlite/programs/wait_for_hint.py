"""Wait for a hint on a database: say when ready, and whether it came."""

import asyncio
import sys
import time

from tests.domain import WORK, StoreSettings, open_sqlite


async def main(path: str) -> None:
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0))
    seen = stores.wakeups.generation(WORK)
    waiting = asyncio.create_task(stores.wakeups.wait(WORK, seen, 60))
    await asyncio.sleep(0)  # the wait begins, and with it the watching
    print("ready", flush=True)
    began = time.monotonic()
    await waiting
    print("rung" if time.monotonic() - began < 45 else "missed", flush=True)
    await stores.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
