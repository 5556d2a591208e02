"""Operations on real stores: an office, and people who ask."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ade.accounts.model import Caller, Role, User
from ade.accounts.users import add_user
from ade.app.ade import Ade
from ade.composition.app_store import services_of_app
from ade.server.operations import RequestContext, Services
from ade.server.routes import ROUTE_OF
from ade.server.routing import PROGRAMS, check_access
from ade.settings import load
from ade.tasks.model import Definition, Worker
from tests.conformance.clock import StoryClock
from tests.servers.pool import POOL


@dataclass
class Desk:
    """An office on an empty store whose clock stands still, where the task `greet` is known."""

    services: Services
    clock: StoryClock

    async def account(self, name: str, role: Role = Role.OPERATOR, *, owner: str | None = None) -> User:
        is_human = role not in PROGRAMS
        if not is_human and owner is None:
            owner = (await self.account(f"{name}-owner")).id
        user = User(id=name, roles=frozenset({role}), is_human=is_human, owner=owner or "")
        return await add_user(self.services.stores, user)

    def request(self, user: User, operation: str, **more: object) -> RequestContext:
        """As this account asks for an operation. Raises NotPermitted."""
        caller = Caller(user=user)
        access = check_access(ROUTE_OF[operation], caller)
        return RequestContext(actor=user.id, author=user.id, caller=caller, access=access, **more)  # type: ignore[arg-type]

    async def define(self, *names: str) -> None:
        """A worker tells of these names."""
        worker = Worker(id="w", hostname="h", pid=1, started_at=self.clock.now(), version="0", names=names)
        await self.services.stores.workers.register(worker, [Definition(name=name) for name in names], 60_000)


LOCAL = RequestContext(actor="cli:tester", author="tester")  # on a local store, where nobody is asked who he is


@pytest.fixture(params=["sqlite", "valkey"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    url = f"sqlite:///{tmp_path / 'ade.db'}" if request.param == "sqlite" else POOL.standalone("valkey").url
    clock = StoryClock()
    flags = {"store.url": url, "redis.allow_volatile": True}
    async with Ade(settings=load(flags=flags, files=[]).settings, clock=clock) as app:
        made = Desk(services_of_app(app, await app.open()), clock)
        await made.define("greet")
        yield made
