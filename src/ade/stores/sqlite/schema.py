"""The schema of a database: its versions, the check of a file that is opened, and the creation of a new one."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import apsw

from ade.errors import StoreForeign, StoreTooNew, StoreTooOld

APPLICATION_ID = 0x41444551  # "ADEQ"
_FOLDER = Path(__file__).parent / "migrations"  # importlib.resources would double the import time of this module


@cache
def migrations() -> tuple[str, ...]:
    """Return the migrations in order. The schema version of a database is the number of applied migrations."""
    names = sorted(path.name for path in _FOLDER.iterdir() if path.name.endswith(".sql"))
    return tuple((_FOLDER / name).read_text(encoding="utf-8") for name in names)


@contextmanager
def one_read(connection: apsw.Connection) -> Iterator[None]:
    """Read one snapshot inside the block: another process might create the database between two statements."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_schema(connection: apsw.Connection) -> bool:
    """Return whether the database has the schema of this release, False if it is new and empty. Changes nothing.

    Raises StoreForeign, StoreTooNew, StoreTooOld.
    """
    with one_read(connection):
        owner, version = connection.pragma("application_id"), schema_version(connection)
        has_tables = bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())
    if owner != APPLICATION_ID:
        if owner or version or has_tables:
            raise StoreForeign(
                f"{connection.filename} is an SQLite database of another program. Choose another path; nothing was"
                " changed"
            )
        return False
    check_version(version, connection.filename)
    return True


def check_version(version: int, name: str) -> None:
    """Raise StoreTooNew or StoreTooOld unless the schema version of a database is the one of this release."""
    own = len(migrations())
    if version > own:
        raise StoreTooNew(
            f"{name} has schema {version}, and this ADE supports schemas up to {own}: a newer version has upgraded it."
            " Upgrade ADE here too, and restart; nothing was changed"
        )
    if version < own:
        raise StoreTooOld(
            f"{name} has schema {version}, and this ADE needs schema {own}. Nothing was changed",
            advice=StoreTooOld.usual_advice,
        )


def schema_version(connection: apsw.Connection) -> int:
    """Return the schema version that the database has now."""
    version = connection.pragma("user_version")
    assert isinstance(version, int)
    return version


def create_schema(connection: apsw.Connection) -> None:
    """Create the tables of a new database, unless another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.pragma("application_id") != APPLICATION_ID:
            apply_migrations(connection, 0)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def apply_migrations(connection: apsw.Connection, version: int) -> None:
    """Apply the migrations after a version, inside the open transaction."""
    for script in migrations()[version:]:
        connection.execute(script).fetchall()
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", len(migrations()))
