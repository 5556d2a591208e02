"""Apply a rulebook and die right after the commit: what is told before it is told, and what follows is not."""

import asyncio
import os
import signal
import sys
from unittest.mock import patch

from ade.approvals.repository import apply
from ade.approvals.rulebook_document import read_rulebook
from ade.settings.sections import StoreSettings
from ade.stores.sqlite.store import open_sqlite
from ade.stores.sqlite.wakeups import FileWakeups


async def main(path: str) -> None:
    stores = await open_sqlite(f"sqlite:///{path}", StoreSettings(ballast_mb=0))
    ring, rung = FileWakeups.ring, 0

    def ring_once(wakeups: FileWakeups, topic: str) -> None:
        nonlocal rung
        rung += 1
        if rung > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ring(wakeups, topic)
        print("told", flush=True)
        sys.stdin.readline()

    with patch.object(FileWakeups, "ring", ring_once):
        await apply(stores, read_rulebook({"guard": [{"do": "deny", "reason": "not today"}]}), actor="ada")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
