"""The tables and indexes of a new SQLite store, read back from one that the migrations have just made."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ade.stores.sql_files import parse_statements
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.maintenance import INVARIANTS
from docs.generators.tables import listed, table

TABLES: Mapping[str, str] = {
    "task": "one row for each task: the columns that claims, leases, and sweeps use",
    "task_detail": "arguments and options of a task, as JSON; written once",
    "task_label": "tasks by team and ticket",
    "task_outcome": "result, error and progress of a task",
    "dependency": "which task waits for which; a row exists until the dependency completes, and is marked if it cannot",
    "event": "the event log",
    "cursor": "the position of each reader of the event log",
    "tally": "number of tasks by queue, name, and status, updated by every commit",
    "queue": "queues that are paused or have an admission limit",
    "definition": "registered definitions of task names: limits, argument schema, state of the rate limit",
    "worker": "workers and until when their last heartbeat counts",
    "duty": "which process performs each maintenance job",
    "effect": "the ledger of `ctx.once`",
    "output": "lines that runs wrote with `ctx.log`",
    "schedule": "schedules and their next firing",
    "quarantine": "copies of records that could not be decoded",
    "lock_request": "lock requests, granted or waiting, as JSON",
    "lock_item": "one row for each resource of a request, in the order of the wait queue",
    "lock_namespace": "the highest seq and fencing token of each lock namespace",
    "lock_rate": "states of the rate limits of lock owners",
    "agent": "agents: type, capabilities, capacity, and until when the last heartbeat counts",
    "agent_lease": "holders of units of an agent's capacity, with their leases",
    "document": "accounts, rules, and settings as JSON, by kind and id",
    "document_mark": "the highest deleted version of each kind; new documents start above it",
    "document_rate": "states of rate limits, such as of sign-in attempts",
    "inbox": "inboxes of conversations: version, consumer, batch lease, and the rest as JSON",
    "inbox_item": "items of inboxes, as JSON; a row is written once",
    "meta": "facts about the store itself: the boot it was last used in, the offset of the steady clock",
}


@cache
def _schema() -> tuple[tuple[str, str, str, str], ...]:
    """Rows of (type, name, table, sql)."""
    connection = connect(None)
    try:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return tuple((str(kind), str(name), str(of), str(text)) for kind, name, of, text in rows.fetchall())
    finally:
        connection.close()


@cache
def _columns(name: str) -> tuple[str, ...]:
    connection = connect(None)
    try:
        rows = connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (name,))
        return tuple(str(column) for (column,) in rows.fetchall())
    finally:
        connection.close()


def schema_tables() -> str:
    names = [name for kind, name, _, _ in _schema() if kind == "table" and not name.startswith("sqlite_")]
    rows = [[f"`{name}`", TABLES[name], listed(_columns(name))] for name in names]
    return table(["table", "what it holds", "columns"], rows)


def schema_indexes() -> str:
    def row(name: str, sql: str) -> list[str]:
        on, _, where = " ".join(sql.split()).partition(" ON ")[2].partition(" WHERE ")
        return [f"`{name}`", f"`{on}`", f"`{where}`" if where else "all rows"]

    rows = [row(name, sql) for kind, name, _, sql in _schema() if kind == "index"]
    return table(["index", "on", "only rows where"], rows)


def store_pragmas() -> str:
    """As they are on a file that was opened with default settings."""
    shown = {
        "journal_mode": "readers never wait for a writer (`delete` on a network file system)",
        "synchronous": "2 is `FULL`: a commit is on the disk before it is answered (`store.synchronous`)",
        "wal_autocheckpoint": "pages after which SQLite itself moves the log into the file",
        "mmap_size": "no memory mapping: it would turn a stray write into a damaged file",
        "trusted_schema": "functions with side effects cannot be called from the schema",
        "cache_size": "negative: KiB",
        "temp_store": "2 is memory",
        "user_version": "number of migrations applied",
        "application_id": "marks the file as ADE's",
    }
    with TemporaryDirectory() as folder:
        connection = connect(Path(folder, "shown.db"))
        try:
            rows = [[f"`{name}`", f"`{connection.pragma(name)}`", why] for name, why in shown.items()]
        finally:
            connection.close()
    return table(["pragma", "value", "why"], rows)


def store_invariants() -> str:
    rows = ([f"`{name}`", comment] for name, comment, _ in parse_statements(INVARIANTS))
    return table(["invariant", "what holds"], rows)
