"""Events become audit entries, beside the work and in no hurry."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ade.events.audit import CURSOR, copy_events
from ade.ports import Stores
from ade.wiring import open_audit
from ade.worker.duties import Duty

_EVERY_S = 1.0
_PAGE = 5_000
_FAR_BEHIND = 100_000  # events: from here on they are copied without rest, however busy the worker is


@asynccontextmanager
async def audit_duties(url: str, stores: Stores) -> AsyncIterator[list[Duty]]:
    """The duty of copying events, for as long as the block lasts. What is in memory leaves nothing to audit."""
    if url == "memory://":
        yield []
        return
    async with open_audit(url) as copy:

        async def copy_page() -> int:
            copied = await copy_events(stores.events, copy, limit=_PAGE)
            behind = await stores.events.last_seq() - await stores.events.cursor(CURSOR)
            return copied if behind > _FAR_BEHIND else 0

        yield [Duty(name="audit", every_s=_EVERY_S, perform=copy_page)]
