"""Opens stores and audit copies by URL, and checks whether they exist."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ade.common.gcra import read_rate
from ade.common.text import without_password
from ade.errors import InvalidUrl, StoreMissing
from ade.locks.model import LockLimits
from ade.settings import Settings
from ade.stores.ports import Clock, Stores
from ade.stores.sqlite.files import audit_file, place_of

_REDIS = ("redis://", "rediss://", "redis+sentinel://", "redis+cluster://")

if TYPE_CHECKING:
    from ade.events.audit_copy import AuditCopy, AuditLocation
    from ade.stores.postgres.audit import PostgresAudit
    from ade.stores.sqlite.audit import SqliteAudit

AUDIT_FILE = Path(".ade/audit.db")  # for stores that are not files


def store_exists(url: str) -> bool:
    """Return whether a store exists at a URL. Always True for stores that are not files."""
    if url == "memory://" or not url.startswith("sqlite:"):
        return True
    file = _file_of(url)
    return _exists(file) and not (file is not None and _is_blank(file))


def audit_exists(url: str, audit_url: str | None = None) -> bool:
    """Return whether an audit copy exists. Always True for PostgreSQL, where a read detects an empty copy."""
    if _is_postgres(audit_url):
        return True
    file = _audit_file(url, audit_url)
    return file is not None and _exists(file)


def _audit_file(url: str, audit_url: str | None) -> Path | None:
    """Return the file of an audit copy that is not on a server; None for memory://."""
    if audit_url is not None:
        if not audit_url.startswith("sqlite:"):  # the message omits the URL: it might contain a password
            raise InvalidUrl(
                "events.audit_url is not supported: use sqlite:///path/to/file.db or postgresql://host/database"
            )
        return _file_of(audit_url)
    if url != "memory://" and not url.startswith("sqlite:"):
        return AUDIT_FILE.absolute()
    return audit_file(url)


def _is_postgres(audit_url: str | None) -> bool:
    return audit_url is not None and audit_url.startswith(("postgresql:", "postgres:"))


def _file_of(url: str) -> Path | None:
    place = place_of(url)
    return None if place is None else place.path


def _exists(file: Path | None) -> bool:
    """Return False only if the file is missing. If it is inaccessible, opening it raises the proper error."""
    try:
        return file is None or bool(file.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_blank(file: Path) -> bool:
    """Return whether the file is empty and has no write-ahead log, so that it is not a store yet."""
    try:
        return file.is_file() and file.stat().st_size == 0 and not file.with_name(f"{file.name}-wal").exists()
    except OSError:
        return False


async def open_stores(
    url: str, settings: Settings | None = None, clock: Clock | None = None, *, must_exist: bool = False
) -> Stores:
    """Open the store at a URL. With `must_exist`, raises StoreMissing instead of creating it. Raises InvalidUrl."""
    if must_exist and not store_exists(url):
        raise StoreMissing(f"there is no store at {_file_of(url)}", advice=StoreMissing.usual_advice)
    settings = settings or Settings()
    if url.startswith(_REDIS):
        from ade.stores.redis.store import open_redis

        return await open_redis(url, settings.redis, clock, limits=settings.limits)
    if url == "memory://" or url.startswith("sqlite:"):
        from ade.stores.sqlite.store import open_sqlite  # import only the backend in use

        return await open_sqlite(url, settings.store, clock, limits=settings.limits)
    raise InvalidUrl(
        f"store URL {without_password(url)!r} is not supported: use sqlite:///path/to/file.db, memory://, redis://host:port,"
        " rediss://, redis+sentinel:// or redis+cluster://"
    )


def lock_limits(settings: Settings) -> LockLimits:
    """Return the lock limits of the settings."""
    locks = settings.locks
    acquires, per_ms = read_rate(locks.acquire_rate) or (None, None)
    return LockLimits(
        waiters_per_resource=locks.waiters_per_resource,
        requests_per_owner=locks.requests_per_owner,
        acquires=acquires,
        acquires_per_ms=per_ms,
    )


def open_read_only(url: str, settings: Settings) -> Stores | None:
    """Open a store that is fast to load and readable without an event loop; None if that is not possible."""
    if not url.startswith("sqlite:") or not store_exists(url):
        return None
    from ade.stores.sqlite.read_only_store import open_read_only_store as open_file

    blob_dir = settings.store.blob_dir
    return open_file(url, None if blob_dir is None else Path(blob_dir))


@asynccontextmanager
async def open_audit(url: str, audit_url: str | None = None) -> "AsyncIterator[AuditCopy]":
    """Open the audit copy of a store, or the one at `audit_url`, and close it after the block."""
    copy: PostgresAudit | SqliteAudit
    if audit_url is not None and _is_postgres(audit_url):
        from ade.stores.postgres.audit import open_audit as open_postgres_audit

        copy = open_postgres_audit(audit_url)
    else:
        from ade.stores.sqlite.audit import open_audit_file

        copy = await open_audit_file(_audit_file(url, audit_url))
    try:
        yield copy
    finally:
        await copy.close()


def audit_place(settings: Settings) -> "AuditLocation":
    """Return the location of the audit copy of the configured store."""
    from ade.events.audit_copy import AuditLocation

    url, audit_url = settings.store.url, settings.events.audit_url
    return AuditLocation(exists=lambda: audit_exists(url, audit_url), open=lambda: open_audit(url, audit_url))
