"""The composition root: settings become stores, stores become what the front ends use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ade.common.rate_limit import read_rate
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

AUDIT_FILE = Path(".ade/audit.db")  # of a store that is no file itself


def store_exists(url: str) -> bool:
    """Whether a store was made there before; what is in memory is made as it is opened."""
    if url == "memory://" or not url.startswith("sqlite:"):
        return True
    file = _file_of(url)
    return _exists(file) and not (file is not None and _is_blank(file))


def audit_exists(url: str, audit_url: str | None = None) -> bool:
    """Whether an audit copy was ever made there. A server is not asked: an empty copy there is found by reading it."""
    if _is_postgres(audit_url):
        return True
    file = _audit_file(url, audit_url)
    return file is not None and _exists(file)


def _audit_file(url: str, audit_url: str | None) -> Path | None:
    """Where the copy lies that is no server; None for memory://."""
    if audit_url is not None:
        if not audit_url.startswith("sqlite:"):  # the URL is not repeated: it may hold a password
            raise InvalidUrl(
                "events.audit_url is not known: use sqlite:///path/to/file.db or postgresql://host/database"
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
    """False only when it is known to be missing: what cannot be looked at is told of by who opens it."""
    try:
        return file is None or bool(file.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_blank(file: Path) -> bool:
    """Whether nobody has made a store of this file yet; a log beside it would tell that somebody has."""
    try:
        return file.is_file() and file.stat().st_size == 0 and not file.with_name(f"{file.name}-wal").exists()
    except OSError:
        return False


async def open_stores(
    url: str, settings: Settings | None = None, clock: Clock | None = None, *, must_exist: bool = False
) -> Stores:
    """Open the store a URL names, as the settings say. Raises StoreMissing instead of making one that must exist."""
    if must_exist and not store_exists(url):
        raise StoreMissing(f"there is no store at {_file_of(url)}", advice=StoreMissing.usual_advice)
    settings = settings or Settings()
    if url.startswith(_REDIS):
        from ade.stores.redis.store import open_redis

        return await open_redis(url, settings.redis, clock, limits=settings.limits)
    if url == "memory://" or url.startswith("sqlite:"):
        from ade.stores.sqlite.store import open_sqlite  # only the store that is used is loaded

        return await open_sqlite(url, settings.store, clock, limits=settings.limits)
    raise InvalidUrl(
        f"store URL {without_password(url)!r} is not known: use sqlite:///path/to/file.db, memory://, redis://host:port,"
        " rediss://, redis+sentinel:// or redis+cluster://"
    )


def lock_limits(settings: Settings) -> LockLimits:
    """How many locks an owner may ask for, and how often."""
    locks = settings.locks
    acquires, per_ms = read_rate(locks.acquire_rate) or (None, None)
    return LockLimits(
        waiters_per_resource=locks.waiters_per_resource,
        requests_per_owner=locks.requests_per_owner,
        acquires=acquires,
        acquires_per_ms=per_ms,
    )


def open_read_only(url: str, settings: Settings) -> Stores | None:
    """A store that can be read without an event loop and loads fast; None where there is no such way to open it."""
    if not url.startswith("sqlite:") or not store_exists(url):
        return None
    from ade.stores.sqlite.read_only_store import open_read_only_store as open_file

    blob_dir = settings.store.blob_dir
    return open_file(url, None if blob_dir is None else Path(blob_dir))


@asynccontextmanager
async def open_audit(url: str, audit_url: str | None = None) -> "AsyncIterator[AuditCopy]":
    """The audit copy that belongs to a store, where `events.audit_url` says, for as long as the block lasts."""
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
    """Where the audit copy of the store is."""
    from ade.events.audit_copy import AuditLocation

    url, audit_url = settings.store.url, settings.events.audit_url
    return AuditLocation(exists=lambda: audit_exists(url, audit_url), open=lambda: open_audit(url, audit_url))
