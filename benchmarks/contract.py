"""What every contestant offers and what it is given. Runs in every environment: standard library only."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

Body = Callable[[str], int]


class NotOffered(Exception):
    """The contestant has no such feature; the table shows n/a with this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of one measurement; `place` is an empty folder that is thrown away afterwards."""

    place: str
    tasks: int = 1000
    payload_bytes: int = 200
    batch: int = 1000
    callers: int = 64
    priorities: int = 1
    rate: float = 20.0
    seconds: float = 3.0
    settle: float = 2.0

    @property
    def folder(self) -> Path:
        return Path(self.place)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Options":
        return cls(**json.loads(text))


def payloads(options: Options) -> list[str]:
    """Texts of equal length, each starting with its own number."""
    return [payload(number, options.payload_bytes) for number in range(options.tasks)]


def payload(number: int, size: int) -> str:
    return f"{number:08d}".ljust(size, "x")


def measure_length(text: str) -> int:
    """The no-op task: its result is small and not empty, so that every contestant stores one."""
    return len(text)


class Contestant(Protocol):
    """One queue. Every method opens the queue in `place` anew, and times are in seconds."""

    def describe(self, place: Path) -> Mapping[str, str]:
        """Versions and the configuration in force, read from a live queue where that is possible."""

    def enqueue_one_by_one(self, place: Path, texts: Sequence[str]) -> float:
        """Time for one caller that waits for each task to be durable before the next."""

    def enqueue_in_flight(self, place: Path, texts: Sequence[str], callers: int) -> float:
        """Time when that many callers do the same at once in one process."""

    def enqueue_many(self, place: Path, texts: Sequence[str], batch: int) -> float:
        """Time in batches, by the best public means for it."""

    def fill(self, place: Path, texts: Sequence[str], priorities: int) -> None:
        """Enqueue all of them, not timed, with that many priorities mixed."""

    def drain(self, place: Path, count: int) -> float:
        """Time from the start of one worker until the last of `count` tasks is run and acknowledged."""

    def enqueue_at(self, place: Path, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        """Enqueue each text at its moment (seconds from now); return the monotonic ns before each call."""

    def work(self, place: Path, body: Body) -> None:
        """Run one worker in this process that calls `body` for each task, until SIGTERM."""
