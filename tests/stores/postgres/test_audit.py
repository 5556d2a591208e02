"""The audit copy on PostgreSQL: rights, and a server that goes away and comes back."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from ade.errors import StoreError, StoreReadOnly, StoreUnavailable
from ade.events.audit_chain import AuditHead, first_break
from ade.stores.postgres.audit import PostgresAudit, address_of
from tests.domain import Event
from tests.servers.proxy import Proxy
from tests.servers.waiting import until
from tests.stores.postgres.server import PASSWORD, PostgresServer

NOW = 1_763_000_000_000_000  # seqs of a store that counts in microseconds


def events(count: int, first: int = NOW) -> list[Event]:
    return [Event(type="task.created", at=0, seq=first + 1_000 * number) for number in range(count)]


@pytest.fixture
def schema(postgres_server: PostgresServer) -> str:
    return postgres_server.new_schema()


@pytest.fixture
async def audit(postgres_server: PostgresServer, schema: str) -> AsyncIterator[PostgresAudit]:
    opened = PostgresAudit(address_of(postgres_server.url(schema)))
    yield opened
    await opened.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as opened:
        yield opened


async def test_reading_makes_no_table_so_that_a_lost_one_is_noticed(
    audit: PostgresAudit, postgres_server: PostgresServer, schema: str
) -> None:
    assert (await audit.head(), await audit.count()) == (AuditHead(), 0)
    assert (await audit.entries(0, 10), await audit.last_entries(10)) == ([], [])
    assert postgres_server.execute("SELECT to_regclass('ade_audit')", schema) == [(None,)]


async def test_seqs_may_be_large_and_have_gaps(audit: PostgresAudit) -> None:
    head = await audit.append(events(250))
    assert head.seq == NOW + 249_000
    assert [entry.seq for entry in await audit.last_entries(2)] == [NOW + 248_000, NOW + 249_000]
    assert [entry.seq for entry in await audit.entries(NOW, 1)] == [NOW + 1_000]


async def test_an_append_is_all_or_nothing(audit: PostgresAudit, postgres_server: PostgresServer, schema: str) -> None:
    await audit.append(events(1))
    postgres_server.execute("ALTER TABLE ade_audit ADD CHECK (seq < 1763000000005000)", schema)
    with pytest.raises(StoreError):
        await audit.append(events(10))
    assert await audit.count() == 1


async def test_the_whole_table_cannot_be_emptied(
    audit: PostgresAudit, postgres_server: PostgresServer, schema: str
) -> None:
    await audit.append(events(1))
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        postgres_server.execute("TRUNCATE ade_audit", schema)


async def test_a_role_that_may_only_read_and_insert_is_enough(
    audit: PostgresAudit, postgres_server: PostgresServer, schema: str
) -> None:
    await audit.append(events(1))
    role = f"{schema}_clerk"
    postgres_server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA {schema} TO {role}")
    clerk = PostgresAudit(address_of(postgres_server.url(schema, user=role, password="x")))
    with pytest.raises(StoreReadOnly, match="role's privileges"):
        await clerk.append(events(2))
    postgres_server.execute(f"GRANT SELECT, INSERT ON ade_audit TO {role}", schema)
    await clerk.append(events(2))
    await clerk.close()
    assert await audit.count() == 2


async def test_a_server_that_was_away_is_used_again_when_it_is_back(
    audit: PostgresAudit, postgres_server: PostgresServer
) -> None:
    first = await audit.append(events(3))
    postgres_server.crash()
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="could not be used"):
                await audit.append(events(5))
    finally:
        postgres_server.start()
    assert await audit.head() == first
    assert (await audit.append(events(5))).seq == NOW + 4_000
    assert await audit.count() == 5


async def test_a_copier_whose_session_ends_in_the_middle_has_added_nothing(
    audit: PostgresAudit, postgres_server: PostgresServer, schema: str
) -> None:
    await audit.append(events(1))
    with psycopg.connect(postgres_server.url(schema)) as other:
        other.execute("SELECT pg_advisory_xact_lock(1094993217, 1)")  # another copier is at work
        appending = asyncio.create_task(audit.append(events(3)))
        end_those_who_wait = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'ade-audit' AND wait_event = 'advisory'"
        )
        await asyncio.to_thread(until, lambda: postgres_server.execute(end_those_who_wait), "the copier to wait")
        with pytest.raises(StoreUnavailable):
            await appending
    assert await audit.count() == 1
    assert (await audit.append(events(3))).seq == NOW + 2_000


async def test_a_path_that_swallows_everything_is_given_up_and_made_anew(
    postgres_server: PostgresServer, schema: str, proxy: Proxy
) -> None:
    audit = PostgresAudit(address_of(postgres_server.url(schema, port=proxy.port)), answer_within_s=3.0)
    await audit.append(events(1))
    proxy.blackhole()
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        await audit.append(events(2))
    proxy.heal()
    assert (await audit.append(events(2))).seq == NOW + 1_000
    await audit.close()
    assert proxy.connections == 2


async def test_a_copier_that_is_stopped_while_the_server_is_silent_does_not_hang(
    postgres_server: PostgresServer, schema: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.stores.postgres.audit._CLOSE_S", 0.1)
    audit = PostgresAudit(address_of(postgres_server.url(schema, port=proxy.port)))
    await audit.append(events(1))
    proxy.blackhole()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(audit.append(events(2)), 0.1)
    await audit.close()
    [thread] = audit._thread._threads
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    postgres_server: PostgresServer, schema: str, proxy: Proxy
) -> None:
    audit = PostgresAudit(address_of(postgres_server.url(schema, port=proxy.port)))
    proxy.drop_replies(1, containing="COMMIT")
    with pytest.raises(StoreUnavailable):
        await audit.append(events(2))
    head = await audit.append(events(3))
    entries = await audit.entries(0, 10)
    await audit.close()
    assert [entry.seq for entry in entries] == [event.seq for event in events(3)]
    assert first_break(AuditHead(), entries) is None
    assert head.hash == entries[-1].hash


async def test_no_password_is_told(postgres_server: PostgresServer, schema: str) -> None:
    wrong = PostgresAudit(address_of(postgres_server.url(schema, password=f"{PASSWORD}!")))
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        await wrong.head()
    await wrong.close()
    assert PASSWORD not in f"{caught.value} {wrong._address!r} {caught.value.__cause__}"
