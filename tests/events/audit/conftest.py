"""Each story of the audit copy is told once for every place where one may lie."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.events.audit_copy import AuditCopy
from tests.domain import Stores, open_stores
from tests.events.audit.copies import BesideTheDatabase, OnPostgres, Place
from tests.stores.postgres.plugin import postgres_or_skip, postgres_server

__all__ = ["postgres_server"]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return OnPostgres(tmp_path, postgres_or_skip())
    return BesideTheDatabase(tmp_path)


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[Stores]:
    opened = await open_stores(place.url)
    yield opened
    await opened.close()


@pytest.fixture
async def audit(place: Place) -> AsyncIterator[AuditCopy]:
    async with place.open() as opened:
        yield opened
