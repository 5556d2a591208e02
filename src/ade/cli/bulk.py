"""Many tasks from a file of JSON lines: every line is checked before the first task is stored."""

import copy
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO, Any

import msgspec
from msgspec import Struct, structs

from ade.app.ade import Ade
from ade.app.functions import TaskFunction
from ade.app.options import Options, make_plan
from ade.cli.finishing import wait_for
from ade.cli.identity import acting
from ade.cli.naming import unknown_name
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.core.admission import check_no_cycle
from ade.core.errors import AdeError, DependencyCycle, InvalidArguments, InvalidTask, UnknownName
from ade.core.ids import is_task_id
from ade.core.locks.wishes import Wish
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.names import arguments_by_name
from ade.queue.plans import Invocation, make_tasks

_BATCH = 1_000


class Line(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One task as a file gives it. Times are seconds."""

    name: str
    args: dict[str, Any] = {}
    ref: str | None = None  # what other lines may call it in `after`
    after: list[str] = []
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: str | None = None
    deadline: float | None = None
    key: str | None = None
    after_failure: str | None = None
    tags: list[str] | None = None
    description: str | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    result_ttl: float | None = None
    concurrency_key: str | None = None
    locks: list[str | Wish] | None = None
    needs: list[str] | None = None
    approval: str | list[str] | None = None
    resources: list[str] | None = None
    rollback: str | None = None
    start: str | None = None

    def options(self) -> Options:
        """What was said, as the options of `with_options`; `after` is settled when all ids are known."""
        apart = ("name", "args", "ref", "after", "run_at")
        said = {name: value for name, value in structs.asdict(self).items() if name not in apart and value is not None}
        if self.run_at is not None:
            said["run_at"] = _moment(self.run_at)
        options: Options = said  # type: ignore[assignment] # the fields above are named after the options
        return options


_decode = msgspec.json.Decoder(Line).decode


async def enqueue_file(session: Session, file: IO[bytes], *, allow_unknown: bool, wait: bool) -> int:
    """Check all lines, then store them with a progress bar. Prints the id of each task."""
    async with session.open_app() as app:
        stores = (await app.open()).stores
        maker = _Maker(session, app, stores, allow_unknown)
        tasks = await maker.make(list(_numbered(file)))
        if not tasks:
            session.out.note("The file has no lines.")
            return 0
        stored = await _store(session, app, tasks, all_or_none=maker.has_refs)
        return await wait_for(session, stores, [task.id for task in stored], None) if wait else 0


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(file, 1) if line.strip())


class _Maker:
    """Makes the tasks of a file; what is wrong with a line is told with its number."""

    def __init__(self, session: Session, app: Ade, stores: Stores, allow_unknown: bool) -> None:
        self._session = session
        self._app = app
        self._stores = stores
        self._allow_unknown = allow_unknown
        self.has_refs = False

    async def make(self, numbered: Sequence[tuple[int, bytes]]) -> list[Task]:
        lines: list[tuple[int, Line]] = []
        invocations: list[Invocation[Any]] = []
        with progress(self._session, "Checking", len(numbered)) as bar:
            for number, text in numbered:
                try:
                    line = _decode(text)
                    invocations.append(await self._invocation(line))
                except msgspec.DecodeError as error:  # also a line that does not have the fields of a task
                    raise InvalidTask(f"line {number}: {error}; nothing was stored") from None
                except AdeError as error:
                    raise retold(error, f"line {number}: {error.detail}") from None
                lines.append((number, line))
                bar.advance()
        return self._linked(lines, make_tasks(invocations, now=self._stores.clock.now()))

    async def _invocation(self, line: Line) -> Invocation[Any]:
        options: Options = {**line.options(), "author": acting(self._session)}
        handler = self._app.registry.by_name.get(line.name)
        if handler is not None:
            function: TaskFunction[..., Any] = TaskFunction(self._app, handler)
            return function.with_options(**options).call(**line.args)
        try:
            definition, args = await arguments_by_name(
                self._stores, line.name, line.args, allow_unknown=self._allow_unknown
            )
        except UnknownName:
            raise await unknown_name(self._app, self._stores, line.name) from None
        return Invocation(make_plan(self._app.template_of(definition), options), args)

    def _linked(self, lines: Sequence[tuple[int, Line]], tasks: Sequence[Task]) -> list[Task]:
        """The tasks with what they wait for, by id. Raises DependencyCycle in the file's own words."""
        ids: dict[str, str] = {}
        for (number, line), task in zip(lines, tasks, strict=True):
            if line.ref is not None and ids.setdefault(line.ref, task.id) != task.id:
                raise InvalidTask(f"line {number}: another line is called {line.ref!r} already; nothing was stored")
        self.has_refs = bool(ids)
        linked = [
            structs.replace(task, depends_on=tuple(_id_of(name, ids, number) for name in line.after))
            for (number, line), task in zip(lines, tasks, strict=True)
        ]
        try:
            check_no_cycle(linked)
        except DependencyCycle as error:
            named = {task.id: f"line {number} ({line.ref})" for (number, line), task in zip(lines, tasks, strict=True)}
            told = error.detail
            for task_id, name in named.items():
                told = told.replace(task_id, name)
            raise DependencyCycle(f"{told}; nothing was stored") from None
        return linked


def _id_of(name: str, ids: dict[str, str], number: int) -> str:
    if name in ids:
        return ids[name]
    if is_task_id(name):
        return name
    raise InvalidTask(f"line {number}: `after` names {name[:80]!r}, which is no `ref` of this file and no task id")


async def _store(session: Session, app: Ade, tasks: Sequence[Task], *, all_or_none: bool) -> list[Task]:
    """In batches, so that others get their turn; as one if the tasks refer to each other."""
    size = len(tasks) if all_or_none else _BATCH
    stored: list[Task] = []
    with progress(session, "Enqueuing", len(tasks)) as bar:
        for start in range(0, len(tasks), size):
            batch = tasks[start : start + size]
            try:
                kept = await app.store_tasks(batch)  # the guard is asked, as for any other task
            except AdeError as error:
                if stored:
                    raise retold(error, f"{error.detail} (the first {len(stored):,} tasks are stored)") from None
                raise
            for made, task in zip(batch, kept, strict=True):
                _tell(session, task, is_new=made.id == task.id)
            stored += kept
            bar.advance(len(batch))
    return stored


def _tell(session: Session, task: Task, *, is_new: bool) -> None:
    if session.out.as_json:
        session.out.record({"id": task.id, "name": task.name, "queue": task.queue, "new": is_new})
    else:
        session.out.line(task.id)


def retold(error: AdeError, detail: str) -> AdeError:
    """The same error with a better sentence."""
    better = copy.copy(error)
    better.args = (detail,)
    return better


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise InvalidArguments(f"run_at {text[:60]!r} is no date and time; write 2026-01-31T12:00:00+01:00") from None
