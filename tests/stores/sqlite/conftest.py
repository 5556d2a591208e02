"""What only the SQLite store has: a file, its companions, a machine that can fail under it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ade.settings.sections import LimitSettings, StoreSettings
from ade.stores.ports import Clock, Stores
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import open_sqlite

OpenStore = Callable[..., Awaitable[Stores]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database of a story lies."""
    return tmp_path / "ade.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[OpenStore]:
    """Opens the store with any option by its name, as often as a story likes."""
    opened: list[Stores] = []

    async def open_it(clock: Clock | None = None, queue_depth: int = 0, **options: object) -> Stores:
        chosen = StoreSettings(**({"ballast_mb": 0} | options))  # type: ignore[arg-type]  # any option, by its name
        stores = await open_sqlite(f"sqlite:///{path}", chosen, clock, limits=LimitSettings(queue_depth=queue_depth))
        opened.append(stores)
        return stores

    yield open_it
    for stores in opened:
        await stores.close()


@pytest.fixture
async def scene(open_store: OpenStore, clock: TestClock) -> Scene:
    return Scene(await open_store(clock), clock)
