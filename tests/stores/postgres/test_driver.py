"""URLs and the driver: what is wrong is said before any work begins, and never with the password."""

import sys

import pytest

from ade.composition.audit import open_audit
from ade.errors import DriverMissing, InvalidUrl, StoreUnavailable
from ade.stores.postgres.audit import address_of


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ade:hush@hush@host/db",
        "postgresql://ade:hush/hush@host/db",
        "postgresql://ade:hush@host:hush/db",
        "postgresql://ade:hush@host/db?hush=1",
        "postgresql://ade:hush%zz@host/db",
    ],
)
async def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidUrl, match="%40") as caught:
        async with open_audit("redis://localhost", url):
            pass
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_a_url_of_another_kind_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidUrl, match=r"events\.audit_url") as caught:
        async with open_audit("redis://localhost", "mysql://ade:hush@host/db"):
            pass
    assert "hush" not in str(caught.value)


async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    for loaded in ("driver", "audit"):
        monkeypatch.delitem(sys.modules, f"ade.stores.postgres.{loaded}", raising=False)
    with pytest.raises(DriverMissing, match=r"community-ade\[postgres\]"):
        async with open_audit("redis://localhost", "postgresql://host/db"):
            pass


async def test_a_server_that_is_away_keeps_nobody_from_starting() -> None:
    async with open_audit("redis://localhost", "postgresql://127.0.0.1:1/db") as copy:
        with pytest.raises(StoreUnavailable):  # it is asked when it is used, and not before
            await copy.head()


def test_an_address_is_shown_without_the_password() -> None:
    address = address_of("postgresql://ade:hush@one:5432,two:5433/db?password=hush")
    assert f"{address}" == repr(address) == "PostgreSQL database 'db' on one,two, port 5432,5433"
