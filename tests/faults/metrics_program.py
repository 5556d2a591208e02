"""Counts figures: `python -m tests.faults.metrics_program <url> <write at which it dies> <before or after>`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from ade.events.metrics_collector import MetricsCollector, load_totals
from ade.settings import Settings
from ade.settings.sections import FigureSettings, RedisSettings, StoreSettings
from ade.stores.resource_ports import DocumentStore, DocumentWrite
from tests.domain import open_stores
from tests.worker.harness import Replaced

PAGE = 7


async def count(url: str, die_at: int, before: bool) -> None:
    settings = Settings(store=StoreSettings(url=url), redis=RedisSettings(allow_volatile=True))
    stores = await open_stores(url, settings)
    written = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def write(writes: Sequence[DocumentWrite], events: Any = ()) -> None:
        nonlocal written
        written += 1
        if written == die_at and before:
            die()
        await stores.documents.write(writes, events)
        if written == die_at:
            die()

    doomed = replace(stores, documents=cast(DocumentStore, Replaced(stores.documents, {"write": write})))
    keeper = MetricsCollector(doomed, FigureSettings(), page=PAGE, pages=1)
    [newest] = await stores.events.newest(1)
    while (await load_totals(stores)).totals.seq < newest.seq:
        await keeper.keep()
    await stores.close()


if __name__ == "__main__":
    asyncio.run(count(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "before"))
