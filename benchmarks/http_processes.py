"""The processes of a measurement over HTTP: the server that is measured, and those who ask it."""

import json
import subprocess
import sys
from types import TracebackType
from typing import Any

from benchmarks.contract import Options, Site
from benchmarks.process_usage import cpu_seconds, resident_megabytes

STOP_SECONDS = 20.0


class Talking:
    """A process that answers a line with a line of JSON; ended, by its own pid, on exit."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Talking":
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.kill()
        self._running.communicate()

    @property
    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "used outside its block"
        return self._process

    def hear(self) -> Any:
        """The next line. Raises RuntimeError when the process has ended or tells of a failure."""
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[2]} ended by itself")
        told = json.loads(line)
        if isinstance(told, dict) and "failure" in told:
            raise RuntimeError(told["failure"])
        return told

    def ask(self, *words: object) -> Any:
        self.say(*words)
        return self.hear()

    def say(self, *words: object) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(" ".join(map(str, words)) + "\n")
        self._running.stdin.flush()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._running.pid)

    def resident_megabytes(self) -> float:
        return resident_megabytes(self._running.pid)

    def terminate(self) -> Any:
        """Its last line, after SIGTERM."""
        self._running.terminate()
        last = self.hear()
        self._running.wait(STOP_SECONDS)
        return last


def server(contestant: str, options: Options) -> Talking:
    """Tells its site first, and at its end how many tasks are stored."""
    return Talking("http_server", contestant, options.to_json())


def requests(kind: str, site: Site, options: Options) -> Talking:
    return Talking("http_load", kind, site.to_json(), options.to_json())


def subscribers(site: Site, options: Options) -> Talking:
    return Talking("http_subscribers", site.to_json(), options.to_json())


def answer(told: object) -> None:
    """For the process itself: one line."""
    print(json.dumps(told), flush=True)
