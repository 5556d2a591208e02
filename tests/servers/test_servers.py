"""One server: what survives which end, who may enter, and that nobody is left behind."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis

from tests.servers.binaries import Binary
from tests.servers.plugin import tls_or_skip
from tests.servers.pool import NoSuchServer, Pool
from tests.servers.process import ServerDidNotStart
from tests.servers.server import DURABLE, Options, Server, User
from tests.servers.waiting import until

ROOT = Path(__file__).parents[2]


def test_what_was_acknowledged_survives_a_kill_when_the_log_is_on(server_binary: Binary) -> None:
    with Server(server_binary, DURABLE) as server:
        server.command("SET", "greeting", "hello")
        server.kill()
        assert not server.ready

        server.restart()

        assert server.command("GET", "greeting") == "hello"


def test_a_volatile_server_comes_back_empty_on_the_same_port(server_binary: Binary) -> None:
    with Server(server_binary) as server:
        port = server.port
        server.command("SET", "greeting", "hello")

        server.restart()

        assert (server.port, server.command("DBSIZE")) == (port, 0)


def test_a_paused_server_keeps_its_connections_and_answers_late(server_binary: Binary) -> None:
    with Server(server_binary) as server, server.client(socket_timeout=0.2) as client:
        assert client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.incr("count")

        server.resume()

        assert until(lambda: server.command("GET", "count"), "the late command") == "1"


def test_a_full_server_refuses_writes_and_evicts_nothing(server_binary: Binary) -> None:
    with Server(server_binary, Options(maxmemory="1")) as server:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            server.command("SET", "greeting", "hello")

        assert server.command("CONFIG", "GET", "maxmemory-policy")


def test_a_password_keeps_strangers_out(server_binary: Binary) -> None:
    with Server(server_binary, Options(password="p@ss/word")) as server:
        with pytest.raises(redis.AuthenticationError), server.client(username=None, password=None) as stranger:
            stranger.ping()

        with redis.from_url(server.url) as known:
            assert known.ping()


def test_a_user_may_do_what_its_rules_say_and_the_default_user_nothing(server_binary: Binary) -> None:
    with Server(server_binary, Options(users=(User("ade", "secret", "~ade:* +@all"),))) as server:
        with redis.from_url(server.url) as user:
            user.set("ade:greeting", "hello")
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.set("other", "hello")

        with pytest.raises(redis.AuthenticationError), server.client(username=None, password=None) as stranger:
            stranger.ping()


def test_a_server_with_tls_is_trusted_by_its_certificate_alone(server_binary: Binary) -> None:
    tls_or_skip(server_binary)
    with Server(server_binary, Options(tls=True)) as server:
        with redis.from_url(server.url) as client:
            assert client.ping()

        with pytest.raises(redis.ConnectionError), server.client(ssl_ca_certs=None) as distrustful:
            distrustful.ping()


def test_a_server_that_cannot_start_shows_its_log(server_binary: Binary) -> None:
    broken = Options(appendonly=True).plus(appenddirname="no/such/folder")

    with pytest.raises(ServerDidNotStart, match="appenddirname"), Server(server_binary, broken):
        pass


def test_a_server_outlives_the_thread_that_asked_for_it(server_binary: Binary) -> None:
    with Server(server_binary) as server:
        server.kill()
        asking = threading.Thread(target=server.start)
        asking.start()
        asking.join()

        assert server.ready


def test_no_server_outlives_a_killed_test_run(server_binary: Binary) -> None:
    program = f"""
import time
from tests.servers.binaries import available
from tests.servers.server import Server
server = Server(available()[{server_binary.kind!r}]).start()
print(server.pid, server.folder, flush=True)
time.sleep(60)
"""
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run.stdout:
        pid, folder = run.stdout.readline().split()
    assert is_running(int(pid))

    run.send_signal(signal.SIGKILL)
    run.wait()

    until(lambda: not is_running(int(pid)), "the server to end")
    shutil.rmtree(folder)


def test_the_pool_hands_out_one_server_empty_and_replaces_a_dead_one(server_pool: Pool, server_binary: Binary) -> None:
    first = server_pool.standalone(server_binary.kind)
    first.command("SET", "greeting", "hello")

    again = server_pool.standalone(server_binary.kind)
    assert (again is first, again.command("DBSIZE")) == (True, 0)

    again.kill()
    assert server_pool.standalone(server_binary.kind).ready


def test_a_kind_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.pool.available", dict)

    with pytest.raises(NoSuchServer, match="no redis server: there is no redis-server on PATH"):
        Pool().standalone("redis")


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that waits for its parent to notice its end does not run."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
