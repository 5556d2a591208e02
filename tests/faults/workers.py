"""Real worker processes on one database file, and what a test can see of them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Raw

from ade import Task
from ade.failures import Backoff
from tests.domain import Payloads, Stores, enqueue, uuid7
from tests.waiting import eventually, time_until

PATIENCE_S = 90.0
ROOT = Path(__file__).parents[2]


class ChildProcess:
    """A process that a test starts and may treat badly."""

    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class WorkerProcess(ChildProcess):
    """One worker program."""

    def __init__(self, folder: Path, number: int, options: dict[str, Any]) -> None:
        self._log = folder / f"worker-{number}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker_program", msgspec.json.encode(options).decode()],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        return self._log.read_text()

    def children(self) -> set[int]:
        return children_of(self.pid)


class Supervision(ChildProcess):
    """A supervisor process and the processes it keeps."""

    def __init__(self, command: list[str], count: int) -> None:
        program = f"import sys; from ade.worker.supervisor import supervise; sys.exit(supervise({command!r}, {count}))"
        self.process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)

    def workers(self) -> set[int]:
        return {pid for pid in children_of(self.process.pid) if is_alive(pid)}


class Site:
    """The file, the journal that handlers write, and all workers on it."""

    def __init__(self, folder: Path, stores: Stores, url: str) -> None:
        self.folder = folder
        self.stores = stores
        self.url = url
        self.database = str(folder / "ade.db")
        self.journal = folder / "journal"
        self.workers: list[WorkerProcess] = []
        self.supervisions: list[Supervision] = []

    async def worker(self, **options: Any) -> WorkerProcess:
        """A worker that is up, or was: what it is given to do may have ended it already."""
        worker = WorkerProcess(self.folder, len(self.workers), {"url": self.url} | options)
        self.workers.append(worker)
        await until(lambda: "worker.started" in worker.log() or worker.process.poll() is not None, "the worker is up")
        assert "worker.started" in worker.log(), worker.log()
        return worker

    def end(self) -> None:
        """End every process that is left."""
        for worker in self.workers:
            worker.end()
        for supervision in self.supervisions:
            supervision.end()

    async def supervised(self, count: int) -> Supervision:
        """A supervisor whose workers are up."""
        options = msgspec.json.encode({"url": self.url}).decode()
        supervision = self.supervise([sys.executable, "-m", "tests.faults.worker_program", options], count)

        async def all_up() -> bool:
            return len(await self.stores.workers.list_workers()) >= count

        await eventually(all_up)
        return supervision

    def supervise(self, command: list[str], count: int) -> Supervision:
        supervision = Supervision(command, count)
        self.supervisions.append(supervision)
        return supervision

    async def suspend(self, worker: WorkerProcess) -> None:
        """Stop it at a moment when it does not hold the database, or nobody could do anything."""
        while True:
            worker.send(signal.SIGSTOP)
            await until(lambda: state_of(worker.pid) == "T", "the worker is suspended")
            if is_free(self.database):
                return
            worker.send(signal.SIGCONT)

    async def enqueue(self, name: str, args: dict[str, Any] | None = None, **fields: Any) -> Task:
        given = {"journal": str(self.journal)} | (args or {})
        task = Task(
            id=uuid7(self.stores.clock.now(), os.urandom(10)),
            name=name,
            args=Raw(msgspec.json.encode(given)),
            backoff=Backoff(base_ms=0, cap_ms=0),
            **fields,
        )
        [stored] = await enqueue(self.stores, Payloads(self.stores.blobs), [task])
        return stored

    async def get(self, task: Task) -> Task:
        [found] = await self.stores.tasks.get([task.id])
        assert found is not None
        return found

    async def final(self, task: Task, within_s: float = PATIENCE_S) -> Task:
        async def look() -> Task | None:
            found = await self.get(task)
            return found if found.is_final else None

        return await eventually(look, within_s)

    async def event_types(self, task: Task) -> list[str]:
        return [event.type for event in await self.stores.events.read(0, 1000, task_id=task.id)]

    def noted(self, word: str) -> list[int]:
        """The processes that wrote this word, in order."""
        if not self.journal.exists():
            return []
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [int(pid) for written, pid in lines if written == word]

    async def until_noted(self, word: str, count: int = 1) -> None:
        await until(lambda: len(self.noted(word)) >= count, f"{count} x {word!r} in the journal")


async def until(condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Look until it is so. Only for things that other processes do."""
    await time_until(condition, what, within_s)


def state_of(pid: int) -> str:
    """The letter that the kernel has for what a process is doing; nothing when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def is_free(database: str) -> bool:
    """Whether somebody could write to the database now."""
    connection = apsw.Connection(database)
    connection.set_busy_timeout(500)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


def children_of(pid: int) -> set[int]:
    """The processes that this one has started."""
    try:
        lists = [thread.joinpath("children").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return set()
    return {int(child) for listed in lists for child in listed.split()}
