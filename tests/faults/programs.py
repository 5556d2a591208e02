"""Programs that tests start as processes of their own, treat badly, and always end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.faults.workers import PATIENCE_S, ROOT, until


class Program:
    """A module run by Python; what it says goes to a file."""

    def __init__(self, folder: Path, name: str, module: str, arguments: list[str], settings: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**os.environ, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text()

    async def until_it_says(self, word: str) -> None:
        await until(lambda: word in self.log() or self._process.poll() is not None, f"{self.name} says {word!r}")
        assert word in self.log(), f"{self.name} ended with {self._process.returncode}:\n{self.log()}"

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Stage:
    """Where programs are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs: list[Program] = []

    def start(self, name: str, module: str, *arguments: str, **settings: str) -> Program:
        """`settings` go into the environment, where ADE looks for them."""
        program = Program(self.folder, name, module, list(arguments), settings)
        self._programs.append(program)
        return program

    def end(self) -> None:
        for program in self._programs:
            program.end()


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Every program that is still there at the end is killed."""
    made = Stage(folder)
    try:
        yield made
    finally:
        made.end()
