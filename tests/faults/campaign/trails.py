"""What the processes of a campaign write down: files of lines that are only ever added to, and outlive a kill."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ACKNOWLEDGED, RUNS, PAYMENTS = "acknowledged", "runs", "payments"


class Run(NamedTuple):
    """One line of a worker: a run began, or came to an end."""

    what: str
    task_id: str
    generation: int
    attempt: int
    run_id: str


class Acknowledgement(NamedTuple):
    """One line of a producer: the store has said yes to this."""

    what: str  # enqueued, cancelled
    key: str  # of the request
    task_id: str


class Trail:
    """One process's file of one kind. Nothing is buffered, so a killed process has written what it has written."""

    def __init__(self, folder: Path, kind: str, writer: str) -> None:
        self._path = folder / f"{writer}.{kind}"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._descriptor, whole_length(self._path))  # the last one may have died in mid-line

    def write(self, *lines: tuple[object, ...]) -> None:
        text = "".join(" ".join(map(str, line)) + "\n" for line in lines)
        os.write(self._descriptor, text.encode())


def whole_length(path: Path) -> int:
    """How much of the file is whole lines."""
    return path.read_bytes().rfind(b"\n") + 1


def lines_of(path: Path) -> Iterator[list[str]]:
    whole = path.read_bytes()[: whole_length(path)]
    for line in whole.decode().splitlines():
        yield line.split(" ")


def acknowledgements(folder: Path, writer: str = "*") -> list[Acknowledgement]:
    """What producers were told, in the order of each one's file."""
    return [
        Acknowledgement(what, key, task_id)
        for path in sorted(folder.glob(f"{writer}.{ACKNOWLEDGED}"))
        for what, key, task_id in lines_of(path)
    ]


def runs(folder: Path) -> list[Run]:
    """What workers did."""
    return [
        Run(what, task_id, int(generation), int(attempt), run_id)
        for path in sorted(folder.glob(f"*.{RUNS}"))
        for what, task_id, generation, attempt, run_id in lines_of(path)
    ]


def payments(folder: Path) -> list[str]:
    """The keys of the side effects that were performed, one for each time."""
    return [key for path in sorted(folder.glob(f"*.{PAYMENTS}")) for (key,) in lines_of(path)]
