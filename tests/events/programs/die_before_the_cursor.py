"""Copy the events of a store, and be killed in the moment when the copy is made and the cursor is not yet moved."""

import asyncio
import os
import signal
import sys

from ade.composition.audit import open_audit
from tests.domain import open_stores


async def main(url: str, audit_url: str | None) -> None:
    stores = await open_stores(url)
    async with open_audit(url, audit_url) as copy:
        await copy.append(await stores.events.read(0, 1_000))
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] or None))
