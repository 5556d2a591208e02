"""Opens audit copies: in a file beside the store, or on a PostgreSQL server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ade.composition.stores import exists, file_of
from ade.errors import InvalidUrl
from ade.events.audit_copy import AuditCopy, AuditLocation
from ade.settings import Settings
from ade.stores.sqlite.files import audit_file

if TYPE_CHECKING:
    from ade.stores.postgres.audit import PostgresAudit
    from ade.stores.sqlite.audit import SqliteAudit

AUDIT_FILE = Path(".ade/audit.db")  # for stores that are not files


def audit_exists(url: str, audit_url: str | None = None) -> bool:
    """Return whether an audit copy exists. Always True for PostgreSQL, where a read detects an empty copy."""
    if _is_postgres(audit_url):
        return True
    file = _audit_file(url, audit_url)
    return file is not None and exists(file)


def _audit_file(url: str, audit_url: str | None) -> Path | None:
    """Return the file of an audit copy that is not on a server; None for memory://."""
    if audit_url is not None:
        if not audit_url.startswith("sqlite:"):  # the message omits the URL: it might contain a password
            raise InvalidUrl(
                "events.audit_url is not supported: use sqlite:///path/to/file.db or postgresql://host/database"
            )
        return file_of(audit_url)
    if url != "memory://" and not url.startswith("sqlite:"):
        return AUDIT_FILE.absolute()
    return audit_file(url)


def _is_postgres(audit_url: str | None) -> bool:
    return audit_url is not None and audit_url.startswith(("postgresql:", "postgres:"))


@asynccontextmanager
async def open_audit(url: str, audit_url: str | None = None) -> AsyncIterator[AuditCopy]:
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


def audit_place(settings: Settings) -> AuditLocation:
    """Return the location of the audit copy of the configured store."""
    url, audit_url = settings.store.url, settings.events.audit_url
    return AuditLocation(exists=lambda: audit_exists(url, audit_url), open=lambda: open_audit(url, audit_url))
