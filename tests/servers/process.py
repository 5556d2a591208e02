"""A server program as a process that a test may treat badly, and that never outlives the test run."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from tests.servers.binaries import Binary
from tests.servers.blocks import Startable
from tests.servers.ports import HOST, ReservedPort
from tests.servers.waiting import until

START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 30.0

# Linux ends a child when the *thread* that started it ends, so all are started by one thread that lives to the end.
_LAUNCHER = ThreadPoolExecutor(1, "server-launcher")
_PR_SET_PDEATHSIG = 1
_ENDS_WITH_ITS_PARENT = f"""
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerDidNotStart(AssertionError):
    """The process ended, or did not answer in time; the message ends with its log."""


class ServerProcess(Startable):
    """One process with a port and a folder of its own. Both stay the same through every restart."""

    def __init__(self, binary: Binary, arguments: Iterable[str] = ()) -> None:
        self.binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="ade-server-"))
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}  # in addition to that of the test

    def _configuration(self) -> list[str]:
        """The lines of the configuration file, written once: later the server itself may rewrite them."""
        return [
            f"bind {HOST}",
            "protected-mode no",
            "daemonize no",
            f"dir {self.folder}",
            f"logfile {self.folder / 'server.log'}",
        ]

    def _connection(self) -> dict[str, Any]:
        """How the harness itself connects."""
        return {"host": HOST, "port": self.port}

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started yet"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Up and answering when this returns."""
        return self.launch().wait_ready()

    def launch(self) -> Self:
        """Start without waiting, so that several servers can come up together."""
        assert not self.alive, "it runs already"
        configuration = self.folder / "server.conf"
        if not configuration.exists():
            configuration.write_text("\n".join(self._configuration()) + "\n")
        command = [str(self.binary.path), str(configuration), *self._arguments]
        self._process = _LAUNCHER.submit(
            _spawn, command, self.folder / "server.log", {**os.environ, **self.environment}
        ).result()
        return self

    def wait_ready(self, within_s: float = START_PATIENCE_S) -> Self:
        """Wait until it answers PING; loading its data counts as not ready."""
        try:
            until(lambda: self.ready or not self.alive, f"{self} to answer", within_s)
        except AssertionError as late:
            raise ServerDidNotStart(f"{late}\n{self.log()[-2000:]}") from None
        if not self.alive:
            raise ServerDidNotStart(f"{self} ended with code {self._exit_code()}\n{self.log()[-2000:]}")
        return self

    @property
    def ready(self) -> bool:
        """Whether it answers now."""
        try:
            return bool(self.command("PING", timeout_s=0.5))
        except redis.RedisError:
            return False

    def client(self, **options: Any) -> "redis.Redis":
        """A plain client that sends every command once; close it, or use it in a `with` block."""
        given = {
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": 30.0,
            "decode_responses": True,
            # Otherwise every new connection begins with a command that these servers do not know.
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        return redis.Redis(**{**given, **self._connection(), **options})

    def command(self, *words: str | int, timeout_s: float = 30.0) -> Any:
        """The answer to one command, on a connection of its own."""
        with self.client(socket_timeout=timeout_s, socket_connect_timeout=timeout_s) as client:
            return client.execute_command(*words)

    def log(self) -> str:
        file = self.folder / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def kill(self) -> None:
        """End it at once, as a crash would: nothing is flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze it: its sockets stay open and take bytes, nobody reads them."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end, as an operator does; its folder stays."""
        if self._process is None or not self.alive:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> Self:
        """Up again on the same port and folder, after an orderly stop if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End it and remove everything it left."""
        self.kill()
        self._reserved.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self.alive, f"{self} does not run"
        os.kill(self.pid, number)

    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def __str__(self) -> str:
        return f"{self.binary} on {self.address}"


def _spawn(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:  # what is wrong with its configuration a server says here, before it opens its log
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_PARENT, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the test run alone, which then ends its servers in order
        )
