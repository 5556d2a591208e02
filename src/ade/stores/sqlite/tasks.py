"""TaskStore on SQLite. Whoever only looks does not load the parts that write."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Raw

from ade.core.change import Change
from ade.core.errors import StaleLease, StaleWrite
from ade.core.records import Task
from ade.ports import WORK, ClaimRequest, Clock, Hints, TaskPage, TaskQuery
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.finding import find_tasks
from ade.stores.sqlite.records import read_records
from ade.stores.sqlite.statements import run

if TYPE_CHECKING:
    from ade.stores.sqlite.adding import Add
    from ade.stores.sqlite.committing import Commit
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.transactions import WriteGuard
    from ade.stores.sqlite.writer import Writer


class SqliteBlockingAdds:
    def __init__(self, tasks: "SqliteTasks") -> None:
        self._tasks = tasks

    def add(self, tasks: Sequence[Task]) -> list[Task]:
        return self._tasks.add_blocking(tasks)


class SqliteTasks:
    def __init__(
        self,
        writer: "Writer",
        readers: "Readers",
        clock: Clock,
        hints: Hints,
        guard: "WriteGuard",
        usual_depth: int | None,
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._hints = hints
        self._guard = guard
        self._usual_depth = usual_depth  # of queues that set no limit of their own

    async def add(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = await self._writer.do(self._add(tasks))
        return stored

    def add_blocking(self, tasks: Sequence[Task]) -> list[Task]:
        stored: list[Task] = self._writer.do_blocking(self._add(tasks))
        return stored

    def _add(self, tasks: Sequence[Task]) -> "Add":
        from ade.stores.sqlite.adding import Add

        self._guard.before_admission()
        add = Add(tasks, self._clock.now, self._usual_depth)
        add.afterwards = self._ring_for_work
        return add

    def _ring_for_work(self) -> None:
        self._hints.ring(WORK)

    async def claim(self, request: ClaimRequest) -> list[Task]:
        from ade.stores.sqlite.claiming import Claim

        claimed: list[Task] = await self._writer.do(Claim(request, self._clock.now, self._clock.steady))
        return claimed

    async def commit(self, *changes: Change) -> None:
        from ade.stores.sqlite.committing import Commit

        await self._do_commit(Commit(changes, True, self._clock.now))

    async def commit_each(self, changes: Sequence[Change]) -> list[StaleWrite | None]:
        from ade.stores.sqlite.committing import Commit

        answers: list[StaleWrite | None] = await self._do_commit(Commit(changes, False, self._clock.now))
        return answers

    async def _do_commit(self, commit: "Commit") -> Any:
        answer = await self._writer.do(commit)
        if commit.frees_work:
            self._ring_for_work()
        return answer

    async def get(self, task_ids: Sequence[str]) -> list[Task | None]:
        def read(connection: apsw.Connection) -> list[Task | None]:
            found = {task.id: task for task in read_records(connection, "records_by_id", ids=packed(task_ids))}
            return [found.get(task_id) for task_id in task_ids]

        return await self._readers.call(read)

    async def find(self, query: TaskQuery) -> TaskPage:
        return await self._readers.call(lambda connection: find_tasks(connection, query))

    async def report_progress(self, task_id: str, run_id: str, progress: Raw) -> None:
        text = bytes(progress).decode()

        def write(connection: apsw.Connection) -> bool:
            return bool(run(connection, "report_progress", id=task_id, run_id=run_id, progress=text))

        if not await self._writer.call(write):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}; its progress was not stored")
