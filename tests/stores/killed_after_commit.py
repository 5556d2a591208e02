"""Apply a rulebook and be killed right after the commit, before any wake-up is sent."""

import asyncio
import os
import signal
import sys
from unittest.mock import patch

from ade.approvals.repository import apply
from ade.stores.sqlite.wakeups import FileWakeups
from tests.domain import StoreSettings, open_sqlite, read_rulebook


async def main(path: str) -> None:
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0))

    def kill(_wakeups: FileWakeups, _topic: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with patch.object(FileWakeups, "notify", kill):
        await apply(stores, read_rulebook({"guard": [{"do": "deny", "reason": "not today"}]}), actor="ada")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
