"""`ade` as a real process: started, watched, told to end."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.waiting import until

ADE = [sys.executable, "-m", "ade.cli"]
PATIENCE_S = 90.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of this machine's settings, and a width that tests can count on."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ADE_")}
    return {**kept, "HOME": str(folder), "COLUMNS": "200", "ADE_STORE__BALLAST_MB": "0", "ADE_HTTP__PORT": "0", **more}


def call(folder: Path, *arguments: str, stdin: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*ADE, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        input=stdin,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def call_json(folder: Path, *arguments: str) -> Any:
    done = call(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout)


@contextmanager
def started(folder: Path, *arguments: str, **more: str) -> "Iterator[subprocess.Popen[str]]":
    """A command that goes on. Whatever happens, it is gone after the block."""
    process = subprocess.Popen(
        [*ADE, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal and wait for the end: exit code, stdout, stderr."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Real processes take real time; look again and again, but not for ever."""
    until(condition, what, PATIENCE_S)


class Terminal:
    """A command on a terminal of its own."""

    _prepare: Callable[[], object] | None = None  # called in the new process

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        self._control, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [*ADE, *arguments],
            cwd=folder,
            env=environment(folder, TERM="xterm-256color", **more),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=self._prepare,
        )
        os.close(terminal)
        self.seen = ""

    def read_until(self, text: str) -> None:
        while text not in self.seen and self._read():
            pass
        assert text in self.seen, self.seen

    @property
    def is_asked(self) -> bool:
        """Whether the command is blocked in a read from its stdin: its system call is about the file 0."""
        return Path(f"/proc/{self.process.pid}/syscall").read_text().split()[1:2] == ["0x0"]

    def answer(self, text: str) -> None:
        os.write(self._control, text.encode())

    def finish(self) -> int:
        """Read on until the command has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            if time.monotonic() > deadline:  # it goes on writing
                self.process.kill()
                raise AssertionError(f"the command has not ended within {PATIENCE_S} s: {self.seen[-5_000:]}")
        os.close(self._control)
        return self.process.wait(timeout=PATIENCE_S)

    def _read(self) -> bool:
        if not select.select([self._control], [], [], PATIENCE_S)[0]:
            self.process.kill()
            raise AssertionError(f"the command has written nothing for {PATIENCE_S} s, and has not ended: {self.seen}")
        try:
            piece = os.read(self._control, 65_536)
        except OSError:  # the other side is closed
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)


class TerminalIgnoringSigint(Terminal):
    """The same, started by a program that ignores SIGINT, such as a job of a script in the background."""

    @staticmethod
    def _prepare() -> object:
        return signal.signal(signal.SIGINT, signal.SIG_IGN)
