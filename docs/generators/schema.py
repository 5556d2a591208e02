"""The tables and indexes of a new SQLite store, read back from one that the migrations have just made."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ade.stores.sqlite import connection as sqlite_connection
from ade.stores.sqlite.connection import connect, sql
from docs.generators.tables import listed, table

_ROOM = Path(sqlite_connection.__file__).parent
TABLES: Mapping[str, str] = {
    "task": "one row for each task: what claims, leases and sweeps touch",
    "task_detail": "arguments and options of a task, as JSON; written once",
    "task_outcome": "result, error and progress of a task",
    "dependency": "who waits for whom; a row goes when its task completes, and stays, broken, when it does not",
    "event": "the event log",
    "cursor": "how far each named reader of the event log has come",
    "tally": "number of tasks by queue, name and status, moved by every commit",
    "queue": "queues that are paused or have an admission limit",
    "definition": "what workers have registered about task names: limits, argument schema, state of the rate limit",
    "worker": "workers and until when their last heartbeat counts",
    "duty": "which process performs a duty of the sweep at the moment",
    "effect": "the ledger of `ctx.once`",
    "output": "lines that runs wrote with `ctx.log`",
    "schedule": "schedules and their next firing",
    "quarantine": "records that could not be read any more, kept as they were",
    "lock_request": "who holds resources or waits for them, as JSON",
    "lock_item": "where each request stands: one row for each of its resources, in the order of the line",
    "lock_namespace": "the highest seq and fencing token of each namespace of locks",
    "lock_rate": "how far owners have used up how often they may ask for locks",
    "agent": "agents: of which type each is, what it can do and how much at once, and until when it was heard of",
    "agent_lease": "who holds a unit of an agent's capacity, and for how long",
    "document": "people, rules and settings as JSON, by kind and id",
    "document_mark": "the highest version of each kind that was removed; new documents begin above it",
    "document_rate": "how far somebody has used up how often he may try, such as to log in",
    "inbox": "inboxes of conversations: version, consumer, lease of the batch that is out, and the rest as JSON",
    "inbox_item": "what lies in inboxes, as JSON; a row is written once and goes when its item does",
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
    def sentence(name: str) -> str:
        return sql(f"invariants/{name}").partition("\n")[0].removeprefix("-- ")

    names = sorted(path.stem for path in (_ROOM / "sql" / "invariants").iterdir())
    return table(["invariant", "what holds"], ([f"`{name}`", sentence(name)] for name in names))
