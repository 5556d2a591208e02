"""TaskStore on SQLite: add, claim, and commit through the single writer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Raw

from ade.errors import StaleLease, StaleWrite
from ade.stores.ports import WORK, ClaimRequest, Clock, Wakeups
from ade.stores.sqlite.claims import ClaimOperation
from ade.stores.sqlite.commits import CommitOperation
from ade.stores.sqlite.connection import run
from ade.stores.sqlite.inserts import InsertOperation
from ade.stores.sqlite.task_reader import SqliteTaskReader
from ade.tasks.changes import Change
from ade.tasks.model import Task

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import WriteChecks, Writer


class SqliteBlockingInserts:
    """BlockingInserts: adds tasks from a thread without an event loop."""

    def __init__(self, tasks: "SqliteTasks") -> None:
        self._tasks = tasks

    def add(self, tasks: Sequence[Task]) -> list[Task]:
        return self._tasks.add_blocking(tasks)


class SqliteTasks(SqliteTaskReader):
    """TaskStore: adds, claims, and commits tasks, and stores their progress."""

    def __init__(
        self,
        writer: "Writer",
        readers: "Readers",
        clock: Clock,
        wakeups: Wakeups,
        guard: "WriteChecks",
        usual_depth: int | None,
    ) -> None:
        self._writer = writer
        super().__init__(readers)
        self._clock = clock
        self._wakeups = wakeups
        self._guard = guard
        self._usual_depth = usual_depth  # queue limit of queues without their own

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = await self._writer.do(self._add(tasks))
        return stored

    def add_blocking(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = self._writer.do_blocking(self._add(tasks))
        return stored

    def _add(self, tasks: Sequence[Task]) -> InsertOperation:
        self._guard.before_admission()
        return InsertOperation(tasks, self._clock.now, self._usual_depth, self._ring_for_work)

    def _ring_for_work(self) -> None:
        self._wakeups.ring(WORK)

    async def claim(self, request: ClaimRequest) -> list[Task]:
        claimed: list[Task] = await self._writer.do(ClaimOperation(request, self._clock.now, self._clock.steady))
        return claimed

    async def commit(self, *changes: Change) -> None:
        await self._do_commit(CommitOperation(changes, True, self._clock.now))

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        answers: list[StaleWrite | None] = await self._do_commit(CommitOperation(changes, False, self._clock.now))
        return answers

    async def _do_commit(self, commit: CommitOperation) -> Any:
        answer = await self._writer.do(commit)
        if commit.frees_work:
            self._ring_for_work()
        return answer

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        text = bytes(progress).decode()

        def write(connection: apsw.Connection) -> bool:
            return bool(run(connection, "tasks.report_progress", id=task_id, run_id=run_id, progress=text))

        if not await self._writer.call(write):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}; its progress was not stored")
