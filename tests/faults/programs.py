"""Programs that tests start as processes of their own, treat badly, and always end."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.faults.workers import ROOT, ChildProcess, until


class Program(ChildProcess):
    """A module run by Python; what it says goes to a file."""

    def __init__(self, folder: Path, name: str, module: str, arguments: list[str], settings: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**os.environ, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        return self._log.read_text()

    async def until_it_says(self, word: str) -> None:
        await until(lambda: word in self.log() or self.process.poll() is not None, f"{self.name} says {word!r}")
        assert word in self.log(), f"{self.name} ended with {self.process.returncode}:\n{self.log()}"


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
