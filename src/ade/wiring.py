"""The composition root: settings become stores, stores become what the front ends use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ade.core.errors import InvalidUrl, StoreMissing
from ade.ports import Clock, Stores
from ade.settings import Settings

if TYPE_CHECKING:
    from ade.events.audit import AuditCopy


def store_exists(url: str) -> bool:
    """Whether a store was made there before; what is in memory is made as it is opened."""
    return url == "memory://" or not url.startswith("sqlite:") or _exists(_file_of(url))


def audit_exists(url: str) -> bool:
    """Whether events were ever copied to an audit file there."""
    from ade.stores.sqlite.audit import audit_file

    file = audit_file(url)
    return file is not None and _exists(file)


def _file_of(url: str) -> Path | None:
    from ade.stores.sqlite.places import place_of

    place = place_of(url)
    return None if place is None else place.path


def _exists(file: Path | None) -> bool:
    """False only when it is known to be missing: what cannot be looked at is told of by who opens it."""
    try:
        return file is None or bool(file.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


async def open_stores(
    url: str, settings: Settings | None = None, clock: Clock | None = None, *, must_exist: bool = False
) -> Stores:
    """Open the store a URL names, as the settings say. Raises StoreMissing instead of making one that must exist."""
    if must_exist and not store_exists(url):
        raise StoreMissing(f"there is no store at {_file_of(url)}; `ade up` or `ade enqueue` makes one")
    if url == "memory://" or url.startswith("sqlite:"):
        from ade.stores.sqlite.opening import StoreOptions, open_sqlite  # only the store that is used is loaded

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


def open_to_look(url: str, settings: Settings) -> Stores | None:
    """A store that can be read without an event loop and loads fast; None where there is no such way to open it."""
    if not url.startswith("sqlite:") or not store_exists(url):
        return None
    from ade.stores.sqlite.looking import open_to_look as open_file

    blob_dir = settings.store.blob_dir
    return open_file(url, None if blob_dir is None else Path(blob_dir))


@asynccontextmanager
async def open_audit(url: str) -> "AsyncIterator[AuditCopy]":
    """The audit copy that belongs to a store, for as long as the block lasts."""
    from ade.stores.sqlite.audit import open_audit as open_sqlite_audit

    copy = await open_sqlite_audit(url)
    try:
        yield copy
    finally:
        await copy.close()
