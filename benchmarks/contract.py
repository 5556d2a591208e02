"""What every contestant offers and what it is given. Runs in every environment: standard library only."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

Body = Callable[[str], int]


class NotOffered(Exception):
    """The contestant has no such feature; the table shows n/a with this reason."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue lives for one measurement: an empty folder, and the URL of an empty server where it needs one."""

    folder: Path
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of one measurement; `folder` is empty before and thrown away afterwards."""

    folder: str
    server: str = ""
    tasks: int = 1000
    payload_bytes: int = 200
    batch: int = 1000
    callers: int = 64
    priorities: int = 1
    processes: int = 1
    finished: int = 0
    sample: int = 10_000
    rate: float = 20.0
    seconds: float = 3.0
    settle: float = 2.0
    agents: int = 50
    connections: int = 16
    stock: int = 0  # tasks that are stored before anybody asks
    subscribers: int = 1000

    @property
    def place(self) -> Place:
        return Place(Path(self.folder), self.server)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingClient:
    """An open producer whose calls return when the task is durable."""

    put: Callable[[str], object]
    put_many: Callable[[Sequence[str]], object] | None = None  # None: the library has no bulk call
    put_mixed: Callable[[Sequence[str], int], object] | None = None  # with so many priorities; None: it has none
    not_for_threads: str = ""  # why it cannot be called from several at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncClient:
    """The same, awaited."""

    put: Callable[[str], Awaitable[object]]
    put_many: Callable[[Sequence[str]], Awaitable[object]] | None = None
    put_mixed: Callable[[Sequence[str], int], Awaitable[object]] | None = None


Connection = AbstractContextManager[BlockingClient] | AbstractAsyncContextManager[AsyncClient]


class Contestant(Protocol):
    """One queue. Every method opens the queue in `place` anew."""

    def describe(self, place: Place) -> Mapping[str, str]:
        """Versions and the configuration in force, read from a live queue where that is possible."""

    def connect(self, place: Place) -> Connection:
        """A producer for as long as the block lasts."""

    def watch(self, place: Place) -> AbstractContextManager[Callable[[int], int]]:
        """Tells, given the number of all tasks, how many of them are not yet run, acknowledged and stored."""

    def work(self, place: Place, body: Body) -> None:
        """Run one worker in this process that calls `body` for each task, until SIGTERM."""


@dataclass(frozen=True, slots=True)
class BlockingLocks:
    """Makes the lock that an agent of this name enters; it is always on the same thing."""

    lock: Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class AsyncLocks:
    """The same for coroutines."""

    lock: Callable[[str], AbstractAsyncContextManager[object]]


LockConnection = AbstractContextManager[BlockingLocks] | AbstractAsyncContextManager[AsyncLocks]


class LockContestant(Protocol):
    """One kind of lock."""

    def describe(self, place: Place) -> Mapping[str, str]:
        """Its version and the configuration in force."""

    def locks(self, place: Place) -> LockConnection:
        """Locks that can be taken for as long as the block lasts."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a server answers on this machine, to whom, and some tasks it knows."""

    port: int
    token: str = ""
    ids: Sequence[str] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Site":
        return cls(**json.loads(text))


class HttpContestant(Protocol):
    """One server that takes, shows and lists tasks below `/api/v1/tasks`, as ADE does."""

    def describe(self, place: Place) -> Mapping[str, str]:
        """Its version and the configuration in force."""

    def serve(self, place: Place, stock: int, announce: Callable[[Site], None]) -> int | None:
        """Answer in this process until SIGTERM, with so many tasks from the start; `announce` when it does.

        Returns how many tasks are stored at the end; None if it stores none.
        """
