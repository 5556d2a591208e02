"""The stores under test: how each is opened, and how each can be harmed in ways its own API does not allow."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ade.ports import Clock, Stores
from ade.stores.sqlite import StoreOptions, open_sqlite
from ade.stores.sqlite.tasks import SqliteTasks


@dataclass(frozen=True)
class Backend:
    """One kind of store."""

    open: Callable[[Path, Clock], Awaitable[Stores]]
    damage: Callable[[Stores, str], Awaitable[None]]  # make the stored record of a task unreadable


async def _open_memory(_folder: Path, clock: Clock) -> Stores:
    return await open_sqlite("memory://", StoreOptions(), clock)


async def _open_file(folder: Path, clock: Clock) -> Stores:
    return await open_sqlite(f"sqlite:///{folder / 'ade.db'}", StoreOptions(ballast_mb=0), clock)


async def _damage_sqlite(stores: Stores, task_id: str) -> None:
    assert isinstance(stores.tasks, SqliteTasks)
    await stores.tasks._writer.call(
        lambda connection: connection.execute(
            "UPDATE task_detail SET detail = '{\"args\":' WHERE seq = (SELECT seq FROM task WHERE id = ?)", (task_id,)
        ).fetchall()
    )


BACKENDS = {
    "memory": Backend(open=_open_memory, damage=_damage_sqlite),
    "sqlite": Backend(open=_open_file, damage=_damage_sqlite),
}
