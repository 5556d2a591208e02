"""A changed rule takes effect everywhere within a second of its commit, and to enqueue reads no rules."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from ade import Ade, Denied
from ade.approvals.repository import CURRENT, NEWEST, RulebookVersion, apply
from ade.approvals.rulebook_document import as_document, read_rulebook
from ade.composition.app_store import OpenStore
from ade.settings import Settings
from tests.approvals.rule_changes import PROMISED_S, after_idle_time, idle, subscribed, takes_effect
from tests.domain import RedisSettings, Stores, StoreSettings, TaskFunction, open_stores, set_value
from tests.servers.binaries import KINDS
from tests.servers.plugin import binary_or_skip
from tests.servers.pool import POOL
from tests.servers.server import Server
from tests.stalls import undisturbed
from tests.stores.sqlite.processes import line_of, started

SETTINGS = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
DENYING = read_rulebook({"guard": [{"do": "deny", "reason": "not today"}]})


@pytest.fixture(params=["sqlite", *KINDS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ade.db'}"
    return POOL.standalone(binary_or_skip(request.param).kind).url


@pytest.fixture
async def elsewhere(url: str) -> AsyncIterator[Stores]:
    """The store as another process has it."""
    stores = await open_stores(url, SETTINGS)
    yield stores
    await stores.close()


class Program:
    """An app that has enqueued something and is subscribed to changes."""

    def __init__(self, url: str) -> None:
        self.app = Ade(url, settings=SETTINGS)

        @self.app.task
        async def work() -> None: ...

        self.work: TaskFunction[[], None] = work

    async def open(self) -> OpenStore:
        await self.work.enqueue()
        self.opened = await self.app.open()
        await subscribed(self.opened.stores)
        await self.work.enqueue()
        return self.opened

    async def is_denied(self) -> bool:
        try:
            await self.work.enqueue()
        except Denied:
            return True
        return False


@pytest.fixture
async def program(url: str) -> AsyncIterator[Program]:
    opened = Program(url)
    await opened.open()
    yield opened
    await opened.app.close()


@pytest.mark.parametrize("place", ["loop", "thread", "fork"])
async def test_a_rule_changed_in_one_process_is_in_force_in_another(url: str, elsewhere: Stores, place: str) -> None:
    words = [sys.executable, "-W", "ignore", "-m", "tests.app.programs.enqueue_on_request", url, place]
    with started(words) as process:
        assert await asyncio.to_thread(line_of, process) == "ready"

        async def answer() -> str:
            return await asyncio.to_thread(asked, process)

        async def is_denied() -> bool:
            return await answer() == "denied"

        assert await answer() == "accepted"
        assert await takes_effect(apply(elsewhere, DENYING, actor="ada"), is_denied) < PROMISED_S
        assert await answer() == "denied"


def asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return line_of(process)


async def test_a_rule_is_in_force_within_a_second_where_no_wakeup_arrives(tmp_path: Path) -> None:
    """As in another container that mounts the database, or for a user who must not touch the files of wake-ups."""
    url = f"sqlite:///{tmp_path / 'ade.db'}"
    program = Program(url)
    opened = await program.open()
    (tmp_path / "ade.db.hints").rename(tmp_path / "elsewhere")  # it still watches these files
    elsewhere = await open_stores(url, SETTINGS)

    async def is_denied() -> bool:
        with after_idle_time(opened):
            return await program.is_denied()

    assert not await is_denied()
    assert await takes_effect(apply(elsewhere, DENYING, actor="ada"), is_denied) < PROMISED_S
    await elsewhere.close()
    await program.app.close()


async def test_a_changed_rule_is_in_force_at_once_where_it_was_changed(program: Program) -> None:
    assert not await program.is_denied()

    await apply(program.opened.stores, DENYING, actor="ada")

    assert await program.is_denied()


def test_a_changed_rule_is_in_force_at_once_for_threads_without_a_loop(url: str) -> None:
    program = Program(url)
    opened = program.app.portal.run(program.open())
    program.work.enqueue().wait()
    program.app.portal.run(apply(opened.stores, DENYING, actor="ada"))

    with pytest.raises(Denied):
        program.work.enqueue().wait()
    program.app.close().wait()


async def test_a_changed_setting_is_in_force_at_once_where_it_was_changed(program: Program) -> None:
    await set_value(program.opened.stores, "task.default_timeout_s", 7, actor="ada")

    task = await program.work.enqueue()

    [stored] = await program.opened.stores.tasks.get([task.id])
    assert stored is not None
    assert stored.timeout_ms == 7_000


@contextmanager
def traced_statements() -> Iterator[list[str]]:
    """All that SQLite is asked in this process, on connections that are made from now on."""
    found: list[str] = []

    def trace(_cursor: object, statement: str, _bindings: object) -> bool:
        found.append(statement)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    apsw.connection_hooks.append(hook)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(hook)


async def test_to_enqueue_after_an_idle_time_reads_no_rules_on_sqlite(tmp_path: Path) -> None:
    with traced_statements() as statements:
        program, neighbor = Program(f"sqlite:///{tmp_path / 'ade.db'}"), Program(f"sqlite:///{tmp_path / 'ade.db'}")
        opened = await program.open()
        await neighbor.open()
        assert any("document" in each for each in statements)  # so they would be seen

        for seconds in (2, 8, 15):  # 25 in all
            idle(opened, seconds=seconds)
            await neighbor.work.enqueue()
            statements.clear()
            await program.work.enqueue()
            assert statements != []
            assert [each for each in statements if "document" in each] == []
        await program.app.close()
        await neighbor.app.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_to_enqueue_after_an_idle_time_is_one_call_to_the_server(kind: str) -> None:
    server = POOL.standalone(binary_or_skip(kind).kind)
    program = Program(server.url)
    opened = await program.open()

    async def story() -> None:
        await program.work.enqueue()
        for seconds in (2, 8, 15):  # 25 in all
            await subscribed(opened.stores)
            idle(opened, seconds=seconds)
            with commands_to(server) as commands:
                await program.work.enqueue()
            assert [each for each in commands if each != "PING"] == ["EVALSHA"]

    await undisturbed(story, stall_s=0.2)  # longer than that, and pings are not answered in time
    await program.app.close()


@contextmanager
def commands_to(server: Server) -> Iterator[list[str]]:
    """The commands that a server has got meanwhile, without those that scripts make."""
    found: list[str] = []
    with (
        server.client(single_connection_client=True) as client,
        server.client() as watcher,
        watcher.monitor() as monitor,
    ):
        yield found
        client.echo("the end")
        while (each := monitor.next_command())["command"] != "ECHO the end":
            if each["client_type"] != "lua":
                found.append(each["command"].split()[0])


async def test_rules_are_read_again_after_half_a_minute(program: Program, elsewhere: Stores) -> None:
    """A safety net for changes that nothing was told of."""
    edition = RulebookVersion(version=1, rules=as_document(DENYING))
    await elsewhere.documents.write([structs.replace(NEWEST.put(CURRENT, edition, seen=0), is_quiet=True)])
    idle(program.opened, seconds=25)
    assert not await program.is_denied()
    idle(program.opened, seconds=6)

    assert await program.is_denied()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rule_changed_while_the_subscription_was_cut_is_in_force_within_a_second(kind: str) -> None:
    server = POOL.standalone(binary_or_skip(kind).kind)
    elsewhere, program = await open_stores(server.url, SETTINGS), Program(server.url)
    opened = await program.open()
    await subscribed(opened.stores)
    for version in range(1, 6):  # the cut, the change and the new subscription meet in different orders
        rulebook = read_rulebook({"guard": [{"do": "deny", "reason": f"{version}"}]} if version % 2 else {})
        wanted = bool(version % 2)

        async def is_seen(wanted: bool = wanted) -> bool:
            with after_idle_time(opened):
                return await program.is_denied() is wanted

        assert server.command("CLIENT", "KILL", "TYPE", "pubsub") >= 1
        assert await takes_effect(apply(elsewhere, rulebook, actor="ada"), is_seen) < PROMISED_S
        await subscribed(opened.stores)
    await program.app.close()
    await elsewhere.close()
