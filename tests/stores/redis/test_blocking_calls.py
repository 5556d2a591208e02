"""Threads without an event loop enqueue by themselves; when anything is amiss they go the usual way, and once only."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ade import Ade, Status, TaskHandle
from ade.errors import (
    IdempotencyConflict,
    InvalidArguments,
    QueueFull,
    StoreFull,
    StoreUnavailable,
    StoreUnsupported,
    UnknownDependency,
    WouldBlock,
)
from ade.settings import Settings
from ade.stores.redis.client import sync_client
from ade.stores.redis.client.client import RedisClient
from tests.domain import RULES, Queue, RedisSettings, RedisTasks, StoreSettings, TaskFunction, open_redis
from tests.servers.binaries import Binary
from tests.servers.plugin import tls_or_skip
from tests.servers.proxy import Proxy
from tests.servers.server import PLAIN, Options, Server, User
from tests.servers.waiting import until
from tests.stores.redis.counting import QUICK

HASTY = 0.4  # seconds for each try, where a story is about answers that do not come
SOURCE = Path(__file__).parents[3] / "src"
Work = TaskFunction[[str], None]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread whose answer is late closes every connection that is idle. Here none is late because of the machine."""
    monkeypatch.setattr(sync_client, "_ANSWER_S", 40.0)


class Program:
    """A program without an event loop, and the task it enqueues."""

    def __init__(self, url: str, **more: Any) -> None:
        usual = {"allow_volatile": True, "command_timeout_s": 40.0, "confirm_timeout_s": 0.2, "patience_s": 60.0}
        settings = Settings(store=StoreSettings(url=url), redis=RedisSettings(**usual | more))
        self.ade = Ade(settings=settings)

        @self.ade.task(name="work")
        async def work(what: str) -> None: ...

        self.work: Work = work

    def __enter__(self) -> "Program":
        self.work.enqueue("first").wait()  # opens the store, which takes an event loop
        opened = self.ade.opener.opened
        assert opened is not None
        until(lambda: opened.stores.wakeups.lag_s(RULES) < 1, "a subscription")
        self.ade.portal.run(opened.current_rules())  # the new subscription has made them old
        return self

    def __exit__(self, *_: object) -> None:
        self.ade.close().wait()

    def lines(self) -> sync_client.SyncClient:
        """The connections of threads."""
        opened = self.ade.opener.opened
        assert opened is not None
        assert isinstance(opened.stores.tasks, RedisTasks)
        lines = opened.stores.tasks._link.direct
        assert lines is not None
        return lines

    def stored(self) -> int:
        """How many tasks there are."""
        opened = self.ade.opener.opened
        assert opened is not None
        return sum(tally.count for tally in self.ade.portal.run(opened.stores.queues.tallies()))


@pytest.fixture
def program(server: Server, path: Proxy) -> Iterator[Program]:
    with Program(path.url(server.url)) as program:
        yield program


@pytest.fixture
def hasty(server: Server, path: Proxy) -> Iterator[Program]:
    with Program(path.url(server.url), command_timeout_s=HASTY) as program:
        yield program


@pytest.fixture
def without_help(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls fail that need an event loop."""

    def refuse(coroutine: Any) -> NoReturn:
        coroutine.close()
        raise AssertionError("a call needed an event loop")

    with monkeypatch.context() as patch:
        patch.setattr(program.ade.portal, "run", refuse)
        yield


# Without an event loop.


def test_a_thread_enqueues_by_itself(program: Program, without_help: None, server: Server) -> None:
    task = program.work.enqueue("a").wait()
    many = program.ade.enqueue_many([program.work.call("b"), program.work.call("c")]).wait()

    assert all(server.command("EXISTS", f"ade:task:{each.id}") == 1 for each in [task, *many])
    assert server.command("HGET", "ade:tally", "default:work:pending") == "4"


def test_what_it_stored_is_like_any_other_task(program: Program) -> None:
    before = program.work.enqueue("a").wait()
    after = program.work.with_options(after=[before], priority=2).enqueue("b").wait()

    assert before.status().wait() is Status.PENDING
    assert after.get().wait().depends_on == (before.id,)
    assert [event.type for event in before.events()] == ["task.created"]


def test_a_key_is_used_once_and_misuse_is_told(program: Program, without_help: None) -> None:
    keyed = program.work.with_options(key="one")
    first = keyed.enqueue("a").wait()

    assert keyed.enqueue("a").wait() == first
    with pytest.raises(IdempotencyConflict, match="other arguments"):
        keyed.enqueue("b").wait()
    with pytest.raises(UnknownDependency):
        program.work.with_options(after=["01a1e239-0fc7-7920-93f4-1509a1538f5f"]).enqueue("a").wait()
    with pytest.raises(InvalidArguments):
        program.work.enqueue(3).wait()  # type: ignore[arg-type] # the mistake in question


def test_a_full_queue_is_told(program: Program) -> None:
    opened = program.ade.opener.opened
    assert opened is not None
    program.ade.portal.run(opened.stores.queues.configure(Queue(name="default", max_depth=2)))
    program.work.enqueue("a").wait()

    with pytest.raises(QueueFull, match="at most 2"):
        program.work.enqueue("b").wait()


def test_a_script_the_server_has_forgotten_is_sent_whole(program: Program, without_help: None, server: Server) -> None:
    server.command("SCRIPT", "FLUSH")

    assert server.command("EXISTS", f"ade:task:{program.work.enqueue('a').wait().id}") == 1


def test_a_call_is_used_once(program: Program) -> None:
    call = program.work.enqueue("a")
    call.wait()

    with pytest.raises(RuntimeError, match="already awaited"):
        call.wait()
    assert program.stored() == 2


async def test_on_an_event_loop_it_is_refused_because_it_would_block(server: Server) -> None:
    program = Program(server.url)

    with pytest.raises(WouldBlock, match="await"):
        program.work.enqueue("a").wait()


def test_threads_share_few_connections(server: Server, path: Proxy) -> None:
    with Program(path.url(server.url), connections=3) as program, ThreadPoolExecutor(16) as pool:
        handles = list(pool.map(lambda number: program.work.enqueue(str(number)).wait(), range(200)))

        assert len({handle.id for handle in handles}) == 200
        assert program.stored() == 201
        assert path.connections <= 3 + 3 + 1  # of threads, of the portal's loop, and the one that hears of news


def test_threads_that_come_at_once_share_few_connections_too(server: Server) -> None:
    at_once = threading.Barrier(24)
    with Program(server.url, connections=2) as crowded, ThreadPoolExecutor(24) as pool:

        def enqueue(number: int) -> str:
            at_once.wait(60)
            return crowded.work.enqueue(str(number)).wait().id

        crowded.lines()._close_idle()
        ids = set(pool.map(enqueue, range(24)))

        assert len(ids) == 24
        assert crowded.stored() == 25
        assert len(crowded.lines()._lines) <= 2


def test_large_arguments_and_very_many_tasks_go_the_usual_way(program: Program) -> None:
    large = program.work.enqueue("x" * 300_000).wait()
    many = program.ade.enqueue_many([program.work.call("x") for _ in range(600)]).wait()

    assert large.status().wait() is Status.PENDING
    assert len(many) == 600
    assert program.stored() == 602


def test_a_closed_app_keeps_no_connection_and_can_be_used_again(program: Program, path: Proxy) -> None:
    program.work.enqueue("a").wait()
    program.ade.close().wait()
    until(lambda: path.open_connections == 0, "all connections to be closed")

    program.work.enqueue("b").wait()
    assert program.stored() == 3


def test_a_forgotten_app_keeps_no_connection(server: Server, path: Proxy) -> None:
    """Not even a warning: most programs just end."""
    program = textwrap.dedent(f"""
        from ade import Ade
        from ade.settings import RedisSettings, Settings, StoreSettings

        url, redis = {path.url(server.url)!r}, RedisSettings(allow_volatile=True)
        ade = Ade(settings=Settings(store=StoreSettings(url=url), redis=redis))

        @ade.task
        async def work() -> None: ...

        work.enqueue().wait()
        work.enqueue().wait()
    """)
    done = run_program(program)

    assert (done.returncode, done.stderr) == (0, "")


# Who gets in.


@pytest.mark.parametrize(
    "options",
    [
        PLAIN,
        Options(password="sesame"),
        Options(users=(User("worker", "s3cret", "~ade:* &ade:* +@all"),)),
        Options(tls=True),
    ],
    ids=["plain", "password", "user", "tls"],
)
def test_it_gets_in_as_the_url_says(server_binary: Binary, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    if options.tls:
        tls_or_skip(server_binary)
    with Server(server_binary, options) as server, Program(server.url) as program:
        monkeypatch.setattr(program.ade, "portal", None)
        handle = program.work.enqueue("a").wait()
        monkeypatch.undo()

        assert handle.status().wait() is Status.PENDING


def test_where_servers_change_places_or_replicas_confirm_it_is_not_offered() -> None:
    strong = RedisSettings(durability="strong")

    assert RedisClient.to("redis://localhost").direct is not None
    assert RedisClient.to("redis://localhost", strong).direct is None
    assert RedisClient.to("redis+cluster://localhost").direct is None
    assert RedisClient.to("redis+sentinel://localhost/main").direct is None


# When something is amiss.


def test_a_lost_answer_does_not_make_two_tasks(hasty: Program, path: Proxy) -> None:
    path.drop_replies(1, containing="EVALSHA")

    task = hasty.work.enqueue("a").wait()

    path.wait_lost()
    assert task.status().wait() is Status.PENDING
    assert hasty.stored() == 2


def test_a_closed_connection_is_not_noticed(program: Program, path: Proxy) -> None:
    for number in range(3):
        path.cut()
        program.work.enqueue(str(number)).wait()

    assert program.stored() == 4


@pytest.mark.faults
def test_a_silent_path_is_waited_for_and_used_again(
    hasty: Program, path: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_client, "_RESTING_S", 0.0)
    path.blackhole()
    waiting = Background(lambda: hasty.work.enqueue("a").wait())
    until(lambda: path.connections > 2, "another try")
    path.heal(forget=True)

    assert waiting.result().status().wait() is Status.PENDING
    assert hasty.stored() == 2
    monkeypatch.setattr(hasty.ade, "portal", None)
    hasty.work.enqueue("b").wait()
    monkeypatch.undo()
    assert hasty.stored() == 3


@pytest.mark.faults
def test_a_path_that_stays_silent_is_told(server: Server, path: Proxy) -> None:
    with Program(path.url(server.url), command_timeout_s=HASTY, patience_s=1.0) as program:
        path.blackhole()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            program.work.enqueue("a").wait()

        assert time.monotonic() - began < 30  # and not a minute, as usual
        path.heal()


@pytest.mark.faults
def test_a_server_killed_in_the_middle_of_a_call(server_binary: Binary) -> None:
    with (
        Server(server_binary, Options(appendonly=True, appendfsync="always")) as server,
        Proxy(server.port) as path,
        Program(path.url(server.url)) as program,
    ):
        path.delay(200)
        waiting = Background(lambda: program.work.enqueue("a").wait())
        server.kill()
        path.delay(0)
        server.restart()

        assert waiting.result().status().wait() is Status.PENDING
        assert program.stored() == 2


def test_a_full_server_says_so(program: Program, server: Server) -> None:
    server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreFull, match="memory of"):
            program.work.enqueue("a").wait()
    finally:
        server.command("CONFIG", "SET", "maxmemory", "0")
    assert program.stored() == 1


def test_closing_lets_a_thread_go_that_waits(program: Program, path: Proxy) -> None:
    program.work.enqueue("first of its connection").wait()
    path.blackhole()
    lines = program.lines()
    assert lines._idle
    waiting = Background(lambda: program.work.enqueue("a").wait())
    until(lambda: not lines._idle, "the call to take a connection")
    began = time.monotonic()
    program.ade.close().wait()

    with pytest.raises((StoreUnavailable, CancelledError)):
        waiting.result()
    assert time.monotonic() - began < 30  # and not for as long as an answer may take
    path.heal()


def test_a_line_that_was_opened_while_all_were_closed_is_not_used(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would let the thread go that waits for an answer on it."""
    lines, open_line = program.lines(), sync_client.SyncConnection.open

    def slow_to_open(*where: Any) -> sync_client.SyncConnection:
        opened = open_line(*where)
        lines.close()
        return opened

    monkeypatch.setattr(sync_client.SyncConnection, "open", slow_to_open)
    with pytest.raises(sync_client.NotAnswered):
        lines._new_line()
    assert not lines._lines


# Forked processes.


def test_a_forked_process_has_connections_of_its_own(server: Server, path: Proxy) -> None:
    program = textwrap.dedent(f"""
        import os, sys
        from ade import Ade
        from ade.settings import RedisSettings, Settings, StoreSettings

        url, redis = {path.url(server.url)!r}, RedisSettings(allow_volatile=True)
        ade = Ade(settings=Settings(store=StoreSettings(url=url), redis=redis))

        @ade.task
        async def work() -> None: ...

        ids = [work.enqueue().wait().id for _ in range(3)]
        child = os.fork()
        ids += [work.enqueue().wait().id for _ in range(50)]
        print(*ids, flush=True)
        if child:
            assert os.waitpid(child, 0)[1] == 0
            work.enqueue().wait()
        ade.close().wait()
    """)
    done = run_program(program)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(set(done.stdout.split())) == 103
    assert server.command("HLEN", "ade:tally") == 1
    assert list(server.command("HGETALL", "ade:tally").values()) == ["104"]


async def test_a_store_of_the_parent_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = await open_redis(server.url, QUICK)
    assert stores.blocking is not None
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreUnsupported, match="fork"):
            stores.blocking.add([])
    await stores.close()


class Background:
    """A call in a thread of its own."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._answer: TaskHandle[None] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> TaskHandle[None]:
        self._thread.join(90)
        if self._error is not None:
            raise self._error
        assert self._answer is not None, "the call has not come back"
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error


def run_program(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
