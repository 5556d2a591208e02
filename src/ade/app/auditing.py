"""Events become audit entries, beside the work and in no hurry."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ade.core.errors import AdeError
from ade.events.audit import AuditCopy, copy_events
from ade.ports import EventLog, Stores
from ade.wiring import open_audit
from ade.worker.duties import Duty

_EVERY_S = 1.0
_PAGE = 5_000
_FAR_BEHIND = 20  # full pages in a row: from here on they are copied without rest, however busy the worker is
_STANDS_BACK_S = 10.0


@asynccontextmanager
async def audit_duties(url: str, stores: Stores, audit_url: str | None = None) -> AsyncIterator[list[Duty]]:
    """The duty of copying events, for as long as the block lasts. What is in memory leaves nothing to audit."""
    if url == "memory://" and audit_url is None:
        yield []
        return
    async with open_audit(url, audit_url) as copy:
        copier = Copier(stores.events, copy)
        yield [Duty(name="audit", every_s=_EVERY_S, perform=copier.copy_page, may_run=copier.may_run)]


class Copier:
    """Copies page by page. One that cannot stands back for a while: another process may have the way, or the file."""

    def __init__(self, log: EventLog, copy: AuditCopy, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._copy = copy
        self._clock = clock
        self._full_pages = 0
        self._stands_back_until = float("-inf")

    def may_run(self) -> bool:
        return self._clock() >= self._stands_back_until

    async def copy_page(self) -> int:
        """Copy some events; answers how many, or 0 when there is time for a rest."""
        try:
            copied = await copy_events(self._log, self._copy, limit=_PAGE)
        except AdeError:
            self._stands_back_until = self._clock() + _STANDS_BACK_S
            raise
        self._full_pages = self._full_pages + 1 if copied == _PAGE else 0
        return copied if self._full_pages >= _FAR_BEHIND else 0
