"""People of a small company, on every kind of store, under a clock that moves only when a story says so."""

from collections.abc import Awaitable, Callable

import pytest

from tests.domain import HashCost, Stores, User, add_user

CHEAP = HashCost(n=2, r=1, p=1)  # these passwords protect nothing
PASSWORD = "correct horse battery staple"

Hire = Callable[..., Awaitable[User]]


@pytest.fixture
def hire(stores: Stores) -> Hire:
    """`hire("ada", "admin")`: a person with a password and these roles."""

    async def make(name: str, *roles: str, password: str | None = PASSWORD, **more: object) -> User:
        user = User(id=name, roles=frozenset(roles), **more)  # type: ignore[arg-type]  # its fields by name
        return await add_user(stores, user, password=password if user.is_human else None, actor="ada", cost=CHEAP)

    return make


async def everything(stores: Stores) -> str:
    """All that is in the log."""
    return "\n".join(map(repr, await stores.events.read(0, 1_000)))


async def told(stores: Stores) -> list[str]:
    return [event.type for event in await stores.events.read(0, 1_000)]
