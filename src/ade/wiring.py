"""The composition root: settings become stores, stores become what the front ends use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ade.core.errors import InvalidUrl
from ade.ports import Clock, Stores
from ade.settings import Settings

if TYPE_CHECKING:
    from ade.events.audit import AuditCopy


async def open_stores(url: str, settings: Settings | None = None, clock: Clock | None = None) -> Stores:
    """Open the store a URL names, as the settings say."""
    if url == "memory://" or url.startswith("sqlite:"):
        from ade.stores.sqlite import StoreOptions, open_sqlite  # only the store that is used is loaded

        settings = settings or Settings()
        store = settings.store
        options = StoreOptions(
            synchronous=store.synchronous,
            allow_network_fs=store.allow_network_fs,
            ballast_mb=store.ballast_mb,
            min_free_percent=store.min_free_percent,
            wal_alarm_mb=store.wal_alarm_mb,
            blob_dir=None if store.blob_dir is None else Path(store.blob_dir),
            queue_depth=settings.limits.queue_depth,
        )
        return await open_sqlite(url, options, clock)
    raise InvalidUrl(f"store URL {url!r} is not known: use sqlite:///path/to/file.db or memory://")


@asynccontextmanager
async def open_audit(url: str) -> "AsyncIterator[AuditCopy]":
    """The audit copy that belongs to a store, for as long as the block lasts."""
    from ade.stores.sqlite.audit import open_audit as open_sqlite_audit

    copy = await open_sqlite_audit(url)
    try:
        yield copy
    finally:
        await copy.close()
