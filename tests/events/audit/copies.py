"""The places where an audit copy may lie, and what somebody with access to such a place can do there."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import apsw

from ade.composition.audit import open_audit
from ade.events.audit_copy import AuditCopy
from tests.stores.postgres.server import PostgresServer


class Place(Protocol):
    """Where a copy lies, beside a store of its own."""

    url: str  # of the store
    audit_url: str | None
    table: str
    changed_body: str  # SQL for a body in which one word is another

    def open(self) -> AbstractAsyncContextManager[AuditCopy]:
        """A copier's way to it."""

    def execute(self, statement: str) -> None:
        """Somebody sends SQL to it."""

    def tamper(self, statement: str) -> None:
        """Somebody does away with the triggers and then does as they please."""

    def remove(self) -> None:
        """The whole copy is gone."""


class BesideTheDatabase:
    """The default of the SQLite store."""

    audit_url: str | None = None
    table = "entry"
    changed_body = "CAST(replace(CAST(body AS TEXT), 'created', 'deleted') AS BLOB)"

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'ade.db'}"
        self.file = folder / "ade.audit.db"

    def open(self) -> AbstractAsyncContextManager[AuditCopy]:
        return open_audit(self.url)

    def execute(self, statement: str) -> None:
        connection = apsw.Connection(str(self.file))
        try:
            connection.execute(statement)
        finally:
            connection.close()

    def tamper(self, statement: str) -> None:
        self.execute("DROP TRIGGER entry_is_never_changed; DROP TRIGGER entry_is_never_removed")
        self.execute(statement)

    def remove(self) -> None:
        self.file.unlink()


class OnPostgres:
    """A schema of its own on a real server."""

    table = "ade_audit"
    changed_body = "convert_to(replace(convert_from(body, 'UTF8'), 'created', 'deleted'), 'UTF8')"

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.url = f"sqlite:///{folder / 'ade.db'}"
        self.server = server
        self.schema = server.new_schema()
        self.audit_url: str | None = server.url(self.schema)

    def open(self) -> AbstractAsyncContextManager[AuditCopy]:
        return open_audit(self.url, self.audit_url)

    def execute(self, statement: str) -> None:
        self.server.execute(statement, self.schema)

    def tamper(self, statement: str) -> None:
        self.execute("ALTER TABLE ade_audit DISABLE TRIGGER USER")
        self.execute(statement)

    def remove(self) -> None:
        self.execute("DROP TABLE ade_audit")
