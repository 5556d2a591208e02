"""When each task started, noted by the workers in memory that all processes of a measurement share."""

import mmap
import time
from pathlib import Path

FILE = "starts"
SLOT_BYTES = 8


class Starts:
    """One number per task and one per worker process: the monotonic nanoseconds of its first start, 0 before.

    Shared memory, because a line in a file for every task would weigh on the fast contestants.
    """

    def __init__(self, folder: Path, processes: int, process: int = 0) -> None:
        with (folder / FILE).open("r+b") as file:
            slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._processes, self._tasks = slots[:processes], slots[processes:]
        self._process = process
        self._seen = 0

    @classmethod
    def create(cls, folder: Path, tasks: int, processes: int = 1) -> "Starts":
        (folder / FILE).write_bytes(bytes(SLOT_BYTES * (tasks + processes)))
        return cls(folder, processes)

    def note(self, text: str) -> None:
        now = time.monotonic_ns()
        self._tasks[int(text[:8])] = now
        if not self._processes[self._process]:
            self._processes[self._process] = now

    def all_began(self) -> bool:
        """Whether every worker process has started a task."""
        return all(self._processes)

    def when_all_began(self) -> int:
        return max(self._processes)

    def any_task(self) -> bool:
        return any(self._tasks)

    def in_order(self) -> int:
        """How many tasks have started with none before them missing; a call looks only at what is new."""
        while self._seen < len(self._tasks) and self._tasks[self._seen]:
            self._seen += 1
        return self._seen

    def every_task(self) -> bool:
        return self.in_order() == len(self._tasks)

    def count_since(self, moment: int) -> int:
        return sum(1 for each in self._tasks if each >= moment)

    def moments(self) -> list[int]:
        return self._tasks.tolist()
