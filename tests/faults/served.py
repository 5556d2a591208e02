"""`ade serve` as a real process on a real store: killed, started again at the same address, and asked by many."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ade.settings import Settings
from tests.accounts.issued_tokens import PLENTY, token_for
from tests.domain import RedisSettings, Role, Stores, open_stores
from tests.faults.programs import Program, Stage, stage
from tests.servers.pool import POOL
from tests.servers.ports import HOST, ReservedPort


class Served:
    """A server, the store behind it as the test sees it, and programs around it."""

    def __init__(self, store_url: str, stores: Stores, programs: Stage) -> None:
        self.stores = stores
        self.url = ""
        self.server: Program | None = None
        self.starts = 0
        self._store_url = store_url
        self.port = ReservedPort()  # nobody gets it while the server is dead, not even who tries to reach it
        self._programs = programs

    async def start(self) -> None:
        """Until it answers, always at the same address."""
        self.starts += 1
        settings = {
            "ADE_STORE__URL": self._store_url,
            "ADE_STORE__BALLAST_MB": "0",
            "ADE_EVENTS__AUDIT_URL": f"sqlite:///{self._programs.folder / 'audit.db'}",
            "ADE_REDIS__ALLOW_VOLATILE": "true",
            **PLENTY,
        }
        arguments = ("serve", "--host", HOST, "--port", str(self.port.number), "--json")
        self.server = self._programs.start(f"server-{self.starts}", "ade.cli", *arguments, **settings)
        await self.server.until_it_says('"serving"')
        [hello] = [line for line in self.server.log().splitlines() if '"serving"' in line]
        self.url = json.loads(hello)["url"]

    async def kill(self) -> None:
        """From one moment to the next."""
        assert self.server is not None
        self.server.send(signal.SIGKILL)
        assert await self.server.exit_code() == -signal.SIGKILL

    async def token(self, role: Role) -> str:
        """Of a new account that has this role."""
        return await token_for(self.stores, role)

    def worker(self, name: str, app: str, token: str, **settings: str) -> Program:
        """`ade worker --url`, which knows of no store."""
        return self._programs.start(
            name,
            "ade.cli",
            *("worker", "--url", self.url, "--app", app),
            **{"ADE_TOKEN": token, "ADE_STORE__URL": "sqlite:////nowhere/at/all.db", **settings},
        )


@asynccontextmanager
async def served_on(store: str, folder: Path) -> AsyncIterator[Served]:
    url = f"sqlite:///{folder / 'ade.db'}" if store == "sqlite" else POOL.standalone(store).url
    stores = await open_stores(url, Settings(redis=RedisSettings(allow_volatile=True)))
    try:
        with stage(folder) as programs:
            served = Served(url, stores, programs)
            try:
                await served.start()
                yield served
            finally:
                served.port.release()
        assert await stores.maintenance.check_invariants() == []
    finally:
        await stores.close()
