"""The stores under test: how each is opened, and how each can be harmed in ways its own API does not allow."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ade.ports import Clock, Stores
from ade.stores.sqlite.opening import StoreOptions, open_sqlite
from ade.stores.sqlite.tasks import SqliteTasks


@dataclass(frozen=True)
class Backend:
    """One kind of store."""

    open: Callable[[Path, Clock], Awaitable[Stores]]
    damage: Callable[[Stores, str, str], Awaitable[None]]  # make the record of a task unreadable, in one of these ways


CUT, NOT_TEXT, UNKNOWN_WORD, MISSING = "cut", "not_text", "unknown_word", "missing"
DAMAGES = (CUT, NOT_TEXT, UNKNOWN_WORD, MISSING)


async def _open_memory(_folder: Path, clock: Clock) -> Stores:
    return await open_sqlite("memory://", StoreOptions(), clock)


async def _open_file(folder: Path, clock: Clock) -> Stores:
    return await open_sqlite(f"sqlite:///{folder / 'ade.db'}", StoreOptions(ballast_mb=0), clock)


_SQLITE_DAMAGES = {
    CUT: "UPDATE task_detail SET detail = substr(detail, 1, 12)",
    NOT_TEXT: "UPDATE task_detail SET detail = CAST(X'7B2266FF00' AS TEXT)",
    UNKNOWN_WORD: "UPDATE task_detail SET detail = json_set(detail, '$.after_failure', 'of a newer version')",
    MISSING: "DELETE FROM task_detail",
}


async def _damage_sqlite(stores: Stores, task_id: str, way: str) -> None:
    assert isinstance(stores.tasks, SqliteTasks)
    statement = f"{_SQLITE_DAMAGES[way]} WHERE seq = (SELECT seq FROM task WHERE id = ?)"
    await stores.tasks._writer.call(lambda connection: connection.execute(statement, (task_id,)).fetchall())


BACKENDS = {
    "memory": Backend(open=_open_memory, damage=_damage_sqlite),
    "sqlite": Backend(open=_open_file, damage=_damage_sqlite),
}
