"""How much a store does for a call, counted and not timed: the same on every machine and every day."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw

from ade.settings import Settings
from ade.testing import TestClock
from tests.domain import RedisSettings, Stores, StoreSettings, open_stores
from tests.servers.pool import POOL
from tests.servers.server import Server


class Effort(Protocol):
    """Counts what a store has done since it was opened."""

    def total(self) -> int: ...


class SqliteSteps:
    """Instructions of SQLite's virtual machine: every row that is looked at takes a few."""

    def __init__(self) -> None:
        self._steps = 0
        self._counted: dict[tuple[int, str], int] = {}  # a statement is kept and goes on counting

    def total(self) -> int:
        return self._steps

    @contextmanager
    def counting(self) -> Iterator[None]:
        apsw.connection_hooks.append(self._watch)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add, id=self)

    def _add(self, profile: dict[str, Any]) -> None:
        statement = (id(profile["connection"]), profile["sql"])
        steps = profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        before = self._counted.get(statement, 0)
        self._steps += steps - before if steps >= before else steps
        self._counted[statement] = steps


class ServerCommands:
    """Commands the server has carried out, those inside scripts included, and kilobytes it has sent."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def total(self) -> int:
        calls = sum(int(command["calls"]) for command in self._server.info("commandstats").values())
        return calls + int(self._server.info("stats")["total_net_output_bytes"]) // 1_000


@asynccontextmanager
async def counted(kind: str, folder: Path, clock: TestClock) -> AsyncIterator[tuple[Stores, Effort]]:
    """An empty store of this kind, and the count of what it does."""
    settings = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
    if kind == "sqlite":
        steps = SqliteSteps()
        with steps.counting():
            stores = await open_stores(f"sqlite:///{folder / 'ade.db'}", settings, clock)
            try:
                yield stores, steps
            finally:
                await stores.close()
        return
    server = POOL.standalone(kind)
    stores = await open_stores(server.url, settings, clock)
    try:
        yield stores, ServerCommands(server)
    finally:
        await stores.close()
