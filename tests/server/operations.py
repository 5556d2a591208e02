"""Operations called in process, on real stores, by accounts with any role."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ade import VERSION, Ade
from ade.composition.app_store import services_of_app
from ade.server.context import RequestContext, Services
from ade.server.operation import PROGRAMS, check_access
from ade.settings import load
from ade.testing import TestClock
from tests.domain import ROUTE_OF, Caller, Definition, Role, User, Worker, add_user
from tests.stores.urls import store_url


@dataclass
class Operations:
    """The services of an app on an empty store, with a clock that stands still and the task `greet` defined."""

    services: Services
    clock: TestClock

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
        worker = Worker(id="w", hostname="h", pid=1, started_at=self.clock.now(), version=VERSION, names=names)
        await self.services.stores.workers.register(worker, [Definition(name=name) for name in names], 60_000)


LOCAL = RequestContext(actor="cli:tester", author="tester")  # on a local store, where nobody is asked who he is


@pytest.fixture(params=["sqlite", "valkey"])
async def ops(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Operations]:
    clock = TestClock()
    flags = {"store.url": store_url(request.param, tmp_path), "redis.allow_volatile": True}
    async with Ade(settings=load(flags=flags, files=[]).settings, clock=clock) as app:
        made = Operations(services_of_app(app, await app.open()), clock)
        await made.define("greet")
        yield made
