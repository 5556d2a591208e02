"""`ade` with its audit copy on a PostgreSQL server: the same commands, one setting."""

import pytest

from tests.cli.conftest import Call
from tests.stores.postgres.plugin import postgres_server
from tests.stores.postgres.server import PASSWORD, PostgresServer

__all__ = ["postgres_server"]


@pytest.fixture
def schema(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the shop's copy goes."""
    name = postgres_server.new_schema()
    monkeypatch.setenv("ADE_EVENTS__AUDIT_URL", postgres_server.url(name))
    return name


def test_the_copy_is_made_verified_and_exported(shop: Call, schema: str, postgres_server: PostgresServer) -> None:
    shop("enqueue", "pack", "item=lamp")
    swept = shop("sweep", "--once", "--json")
    assert (swept.code, swept.json["failed"]) == (0, [])
    assert shop("audit", "verify", "--json").json["entries"] == 1
    assert [entry["seq"] for entry in shop("audit", "export").json_lines] == [1]
    assert postgres_server.execute("SELECT count(*) FROM ade_audit", schema) == [(1,)]
    assert finding(shop)["verdict"] == "ok"


def test_a_table_that_is_gone_is_noticed_and_begun_anew_on_demand(
    shop: Call, schema: str, postgres_server: PostgresServer
) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("audit", "verify")
    postgres_server.execute("DROP TABLE ade_audit", schema)
    assert "had reached 1" in finding(shop)["sentence"]
    assert shop("audit", "verify", "--json").error["code"] == "audit_broken"
    assert shop("audit", "begin", "--yes").code == 0
    assert shop("audit", "verify").code == 0


def test_a_server_that_is_away_stops_no_work_and_tells_no_password(
    shop: Call, schema: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADE_EVENTS__AUDIT_URL", postgres_server.url(schema, port=1))
    shop("enqueue", "pack", "item=lamp")
    assert shop("sweep", "--once", "--json").json["failed"] == ["audit"]
    assert (finding(shop)["verdict"], PASSWORD in finding(shop)["sentence"]) == ("problem", False)
    answer = shop("audit", "verify", "--json")
    assert (answer.error["code"], PASSWORD in answer.err) == ("store_unavailable", False)


def test_the_password_is_not_shown_among_the_settings(shop: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_EVENTS__AUDIT_URL", "postgresql://ade:hush@host/db")
    for answer in (shop("config", "show"), shop("config", "show", "--json")):
        assert "postgresql://ade:***@host/db" in answer.out


def finding(shop: Call) -> dict[str, str]:
    """What `ade doctor` says about the copy."""
    [found] = [found for found in shop("doctor", "--json").json["findings"] if found["check"] == "audit"]
    assert isinstance(found, dict)
    return found
