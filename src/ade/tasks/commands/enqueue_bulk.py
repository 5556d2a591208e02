"""`ade enqueue --file`: enqueue tasks from JSON lines. Every line is checked before the first task is stored."""

import copy
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from ade.cli.interaction import progress
from ade.cli.output import all_of
from ade.cli.parameters import now_ms
from ade.errors import AdeError, DependencyCycle, InvalidArguments, InvalidTask, UnknownName
from ade.server.request_types import MOST_TOGETHER, with_field_names
from ade.server.wire_format import members_of
from ade.settings.sections import TaskSettings
from ade.tasks.admission import check_no_cycle
from ade.tasks.api.requests import CreatedTasks
from ade.tasks.commands.options import unknown_name
from ade.tasks.commands.wait import wait_for
from ade.tasks.definitions import checked_arguments
from ade.tasks.enqueue import Invocation, make_plan, make_tasks, template_of
from ade.tasks.identifiers import is_task_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task
from ade.tasks.options import BatchTask, TaskOptions

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.cli.session import Session
    from ade.client.client import Client

_MOST_BYTES = 4 << 20  # per request; servers accept twice that by default


def _decode(text: bytes) -> BatchTask:
    """Parse one line, with names as over HTTP or in Python. Times without a zone are local, and a single policy need
    not be a list."""
    given = msgspec.json.decode(text)
    if isinstance(given, dict):
        given = with_field_names(BatchTask, given)
        if isinstance(given.get("run_at"), str):
            given["run_at"] = _moment(given["run_at"])
        if isinstance(given.get("approval"), str):
            given["approval"] = [given["approval"]]
    return msgspec.convert(given, BatchTask)


class NumberedTask(NamedTuple):
    """A parsed line of the file, with its line number."""

    number: int
    line: BatchTask
    size: int  # bytes


_NO_TASK = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def enqueue_file(session: "Session", file: IO[bytes], *, allow_unknown: bool, wait: bool) -> int:
    """Check all lines, then store the tasks with a progress bar. Prints the ID of each task."""
    async with session.api_for_new() as (app, api):
        maker = _TaskFileReader(session, app, api, allow_unknown)
        lines, tasks = await maker.make([(number, line) for number, line in enumerate(file, 1) if line.strip()])
        if not tasks:
            session.out.note("The file has no lines.")
            return 0
        if app is not None:
            batches = _local_batches(app, tasks, all_or_none=maker.has_refs)
        else:
            batches = _remote_batches(api, lines, allow_unknown=allow_unknown, all_or_none=maker.has_refs)
        stored = await _store(session, batches, len(tasks))
        return await wait_for(session, api, [task.id for task in stored], None) if wait else 0


class _TaskFileReader:
    """Builds the tasks of a file. Errors name the line number."""

    def __init__(self, session: "Session", app: "Ade | None", api: "Client", allow_unknown: bool) -> None:
        self._session = session
        self._app = app
        self._api = api
        self._known: Mapping[str, Definition] = {}
        self._allow_unknown = allow_unknown
        self.has_refs = False

    async def make(self, numbered: Sequence[tuple[int, bytes]]) -> tuple[list[NumberedTask], list[Task]]:
        """Check the lines and build their tasks. A server builds its own; these only prove that the lines are valid."""
        self._known = {known.name: known for known in await all_of(self._api, self._api.list_definitions)}
        lines: list[NumberedTask] = []
        invocations: list[Invocation[Any]] = []
        with progress(self._session, "Checking", len(numbered)) as bar:
            for number, text in numbered:
                try:
                    line = _decode(text)
                    invocations.append(await self._invocation(line))
                except _NO_TASK as error:  # includes lines without the fields of a task
                    raise InvalidTask(f"line {number}: {error}; nothing was stored") from None
                except AdeError as error:
                    raise described_error(error, f"line {number}: {error.detail}") from None
                lines.append(NumberedTask(number, line, len(text)))
                bar.advance()
        return lines, self._linked(lines, make_tasks(invocations, now=now_ms()))

    async def _invocation(self, line: BatchTask) -> Invocation[Any]:
        options: TaskOptions = line.options()  # type: ignore[assignment] # its fields are named after the options
        options.pop("after", None)  # resolved when all IDs are known
        if self._app is not None:
            options = {**options, "author": self._session.account}
            if line.name in self._app.registry.by_name:
                return await self._app.call_by_name(line.name, line.args, False, options)
        allow_unknown = self._allow_unknown or line.allow_unknown
        try:
            definition, args = checked_arguments(self._known, line.name, line.args, allow_unknown=allow_unknown)
        except UnknownName:
            raise await unknown_name(self._session, self._api, line.name) from None
        defaults = TaskSettings() if self._app is None else self._app.settings.task
        return Invocation(make_plan(template_of(definition, defaults), options), args)

    def _linked(self, lines: Sequence[NumberedTask], tasks: Sequence[Task]) -> list[Task]:
        """Resolve dependencies to task IDs. Raises DependencyCycle with line numbers and refs."""
        ids: dict[str, str] = {}
        for (number, line, _), task in zip(lines, tasks, strict=True):
            if line.ref is not None and ids.setdefault(line.ref, task.id) != task.id:
                raise InvalidTask(f"line {number}: another line already has the ref {line.ref!r}; nothing was stored")
        self.has_refs = bool(ids)
        linked = [
            structs.replace(
                task,
                status=Status.DRAFT if line.draft else task.status,
                depends_on=tuple(_id_of(name, ids, number) for name in line.after or ()),
            )
            for (number, line, _), task in zip(lines, tasks, strict=True)
        ]
        try:
            check_no_cycle(linked)
        except DependencyCycle as error:
            detail = error.detail
            for (number, line, _), task in zip(lines, tasks, strict=True):
                detail = detail.replace(task.id, f"line {number} ({line.ref})")
            raise DependencyCycle(f"{detail}; nothing was stored") from None
        return linked


def _id_of(name: str, ids: dict[str, str], number: int) -> str:
    if name in ids:
        return ids[name]
    if is_task_id(name):
        return name
    raise InvalidTask(
        f"line {number}: `after` names {name[:80]!r}, which is neither a `ref` of this file nor a task id"
    )


Batch = list[tuple[Task, bool]]  # stored tasks, and whether each is new


async def _local_batches(app: "Ade", tasks: Sequence[Task], *, all_or_none: bool) -> AsyncIterator[Batch]:
    """Store in batches so that other writers get a turn; in one batch if the tasks refer to each other."""
    size = len(tasks) if all_or_none else MOST_TOGETHER
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        kept = await app.store_tasks(batch)  # includes the guard check
        yield [(task, task.id == made.id) for task, made in zip(kept, batch, strict=True)]


async def _remote_batches(
    api: "Client", lines: Sequence[NumberedTask], *, allow_unknown: bool, all_or_none: bool
) -> AsyncIterator[Batch]:
    """Send batches to a server. Raises InvalidTask if tasks that belong together exceed its limit."""
    if all_or_none and len(lines) > MOST_TOGETHER:
        raise InvalidTask(
            f"lines that refer to each other are stored all or none, and a server takes at most {MOST_TOGETHER:,} at"
            f" once; the file has {len(lines):,}. Nothing was stored"
        )
    for batch in [lines] if all_or_none else _cut(lines):
        try:
            made = await api.create_tasks(tasks=[_allowing(line) if allow_unknown else line for _, line, _ in batch])
        except AdeError as error:
            raise described_error(error, _with_numbers(error.detail, batch)) from None
        yield _new_once(made)


def _allowing(line: BatchTask) -> BatchTask:
    return structs.replace(line, allow_unknown=True)


def _new_once(made: CreatedTasks) -> Batch:
    """Mark the second of two lines with the same key as not new."""
    known = set(made.earlier)
    batch: Batch = []
    for task in made.items:
        batch.append((task, task.id not in known))
        known.add(task.id)
    return batch


def _cut(lines: Sequence[NumberedTask]) -> Iterator[list[NumberedTask]]:
    """Split the lines into batches that a server accepts."""
    batch: list[NumberedTask] = []
    size = 0
    for each in lines:
        if batch and (len(batch) == MOST_TOGETHER or size + each.size > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size
    yield batch


def _with_numbers(detail: str, batch: Sequence[NumberedTask]) -> str:
    """Replace the positions in a server error with line numbers of the file."""

    def line(found: re.Match[str]) -> str:
        place = int(found[1])
        return f"line {batch[place].number}" if place < len(batch) else found[0]

    return re.sub(r"\btasks\[([0-9]{1,4})\]", line, detail)


async def _store(session: "Session", batches: AsyncIterator[Batch], count: int) -> list[Task]:
    stored: list[Task] = []
    with progress(session, "Enqueuing", count) as bar:
        try:
            async for batch in batches:
                for task, is_new in batch:
                    _print_stored(session, task, is_new=is_new)
                    stored.append(task)
                bar.advance(len(batch))
        except AdeError as error:
            if stored:
                raise described_error(error, f"{error.detail} (the first {len(stored):,} tasks are stored)") from None
            raise
    return stored


def _print_stored(session: "Session", task: Task, *, is_new: bool) -> None:
    if session.out.as_json:
        session.out.record({**members_of(task), "new": is_new})
    else:
        session.out.line(task.id)


def described_error(error: AdeError, detail: str) -> AdeError:
    """Return the same error with a more specific message."""
    better = copy.copy(error)
    better.args = (detail,)
    return better


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise InvalidArguments(
            f"run_at {text[:60]!r} is not a date and time; write 2026-01-31T12:00:00+01:00"
        ) from None
