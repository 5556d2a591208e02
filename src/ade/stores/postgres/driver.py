"""The border to psycopg: loaded only when used, its addresses checked, its errors made ours without a password."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ade.core.errors import (
    DiskFull,
    DriverMissing,
    InvalidUrl,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreReadOnly,
    StoreUnavailable,
)

if TYPE_CHECKING:
    import psycopg

_CONNECT_S = 10
_PORTS = re.compile(r"[\d,]*")
_BAD_URL = (
    "the PostgreSQL URL cannot be read: use postgresql://user:password@host:port/database, and write characters such as"
    " @ / : % in a password as %40 %2F %3A %25"
)
# A connection whose other end is gone is noticed, also while nothing is sent.
_KEEP_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, and as whom. `str` leaves the password out, and so does `repr`."""

    parts: dict[str, Any]

    def __str__(self) -> str:
        host, port = self.parts.get("host"), self.parts.get("port")
        place = ", ".join(filter(None, [str(host or "the default host"), f"port {port}" if port else ""]))
        return f"PostgreSQL database {self.parts.get('dbname') or 'by default'!r} on {place}"

    __repr__ = __str__


def load_driver() -> None:
    """Raises DriverMissing."""
    try:
        import psycopg  # noqa: F401 - whether it can be imported is the question
    except ImportError as error:
        raise DriverMissing(
            f"the audit copy in PostgreSQL needs psycopg ({error}); install it with"
            " `pip install 'community-ade[postgres]'`"
        ) from None


def address_of(url: str) -> Address:
    """The address that a URL names. Raises InvalidUrl, without a word of the URL: a password may be anywhere in it."""
    load_driver()
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except (ProgrammingError, UnicodeError, ValueError):
        raise InvalidUrl(_BAD_URL) from None
    misread = "@" in f"{parts.get('host', '')}{parts.get('dbname', '')}"
    if misread or not _PORTS.fullmatch(str(parts.get("port") or "")):
        raise InvalidUrl(_BAD_URL)
    return Address({"application_name": "ade-audit", "connect_timeout": _CONNECT_S, **_KEEP_ALIVE, **parts})


def connect(address: Address) -> "psycopg.Connection[Any]":
    """A connection on which every block of `transaction()` sees what others committed before each statement."""
    import psycopg

    connection = psycopg.connect(
        **address.parts,
        autocommit=True,
        prepare_threshold=None,  # a pooler between us and the server may give each transaction another session
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def translated(error: "psycopg.Error | OSError", address: Address) -> StoreError:
    """Our error for one of the server's."""
    from psycopg import errors

    reason = _reason(error, address)
    match error:
        case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
            return StoreReadOnly(
                f"{address} cannot be written ({reason}). Check the role's rights, and that it is no replica"
            )
        case errors.DiskFull():
            return DiskFull(
                f"the disk of {address} is full. Free some space; nothing of the event log is lost meanwhile"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return StoreCorrupt(f"{address} is damaged ({reason}). Restore the newest backup; do not write to it")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.WrongObjectType() | errors.DatatypeMismatch():
            return StoreForeign(f"the table ade_audit in {address} is not ADE's ({reason}); nothing was changed")
        case _:
            return StoreUnavailable(f"{address} could not be used ({reason}). Nothing is lost: it is tried again")


def _reason(error: "psycopg.Error | OSError", address: Address) -> str:
    """What the server or the network said, in one line."""
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error) or type(error).__name__
    line = " ".join(str(said).split())
    password = address.parts.get("password")
    return line.replace(str(password), "***") if password else line
