"""Request and response types for tasks, dead letters, and schedules, and links between tasks of one request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field, structs

from ade.errors import DependencyCycle, InvalidTask
from ade.failures import TaskError
from ade.server.request_types import (
    MOST_TOGETHER,
    Form,
    Label,
    Line,
    LockName,
    PageSize,
    Priority,
    QueueName,
    TaskName,
    described,
)
from ade.tasks.admission import admit, check_no_cycle
from ade.tasks.identifiers import is_task_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import MaybeRaw, Task

TaskId = Annotated[str, Meta(max_length=60)]


class TaskFilter(Form):
    """Which tasks; all that is said must hold."""

    json_names: ClassVar[Mapping[str, str]] = {
        "parent": "parent_id",
        "author": "author_id",
        "ticket": "ticket_ref",
        "worker": "worker_id",
    }

    status: list[Status] = field(default_factory=list)
    queue: str | None = None
    name: str | None = None
    tag: str | None = None
    resource: str | None = None  # that it changes or locks
    parent: str | None = None
    author: str | None = None
    team: str | None = None
    ticket: str | None = None
    worker: str | None = None
    text: str | None = None  # in the description, the name or the error's message
    created_from: datetime | None = None
    created_before: datetime | None = None
    discarded: bool | None = None


class ListTasks(TaskFilter):
    """Filters, order, and page of a task list."""

    order: Literal["newest", "oldest"] = "newest"
    cursor: str | None = None
    limit: PageSize = 50
    ids: Annotated[list[TaskId], described(maxItems=50)] = field(default_factory=list)  # of these tasks, in this order
    count: bool = False  # with the number of all tasks that match; only with status, queue, and name


class Cancel(Form):
    """The reason for a cancellation."""

    reason: Line | None = None


class RetryTask(Form):
    """With the same arguments, or with corrected ones: all of them, not only those that change."""

    args: dict[str, Any] | None = None


class EditTask(Form):
    """What is said becomes different; of the arguments all are said anew."""

    args: dict[str, Any] | None = None
    description: str | None = None
    priority: Priority | None = None
    tags: Annotated[list[Label], described(maxItems=50)] | None = None
    resources: list[LockName] | None = None


class RescheduleTask(Form):
    """Another priority, another start time, or both. A `delay` of 0 starts it now; `delay` and `run_at` exclude each
    other."""

    priority: Priority | None = None
    delay: Annotated[float, described(minimum=0)] | None = None  # seconds from now
    run_at: datetime | None = None  # the earliest start


class GetTask(Form):
    """How long to wait for the result, and whether to include large values."""

    wait: Annotated[int, Meta(ge=0, le=60)] | None = None  # seconds
    whole: bool = False  # with large arguments too, in place of the reference to them
    # The run of the caller that waits, and its task: so a deadlock with it is found. Another account's are ignored.
    run: Annotated[str, Meta(max_length=60)] | None = None
    run_task: Annotated[str, Meta(max_length=60)] | None = None


class ListLines(Form):
    """Of output or events: those with a seq above `after`."""

    after: Annotated[int, Meta(ge=0)] = 0
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class ListNames(Form):
    """A page of the registered task names."""

    cursor: str | None = None
    limit: PageSize = 100


class BulkAction(Form):
    """The same for all tasks that a filter finds. The filter must say something."""

    action: Literal["cancel", "retry", "discard"]
    filter: TaskFilter
    reason: Line | None = None  # kept with the tasks; to discard needs one
    limit: Annotated[int, Meta(ge=1, le=MOST_TOGETHER)] = MOST_TOGETHER  # tasks reached by one call
    cursor: str | None = None  # `next` of the call before, which continues there


class ListDeadLetters(Form):
    """Filters and page of the dead letters."""

    name: str | None = None
    queue: str | None = None
    fingerprint: str | None = None
    cursor: str | None = None
    limit: PageSize = 50


class ListDeadLetterGroups(Form):
    """Filters and page of the groups of similar dead letters."""

    name: str | None = None
    queue: str | None = None
    cursor: str | None = None
    limit: PageSize = 100


class DeadLetters(Form):
    """Which: those of a fingerprint, name or queue, or all of them."""

    fingerprint: str | None = None
    name: str | None = None
    queue: str | None = None
    everything: bool = False
    limit: Annotated[int, Meta(ge=1, le=MOST_TOGETHER)] = MOST_TOGETHER  # oldest first
    cursor: str | None = None  # `next` of the call before, which continues there


class DiscardDeadLetters(DeadLetters, kw_only=True):
    """Which dead letters to discard, and why."""

    reason: Line


class Discard(Form, kw_only=True):
    """Why a dead letter is discarded."""

    reason: Line


# Dependencies within one request: tasks refer to each other by `ref` before they have IDs.


RequestedTask = tuple[str | None, Sequence[str]]  # the `ref` of a task, and its dependencies by `ref` or ID


class CreatedTasks(Struct, frozen=True, kw_only=True):
    """In the order of the request."""

    items: list[Task]
    earlier: list[str]  # ids of those that were there before, under their key


def linked(tasks: Sequence[Task], wanted: Sequence[RequestedTask], *, now: int) -> list[Task]:
    """Resolve dependencies to task IDs. Raises InvalidTask, and DependencyCycle with the refs of the request."""
    ids = _ids(tasks, wanted)
    made = [
        admit(structs.replace(task, depends_on=tuple(_id_of(name, ids, place) for name in after)), now=now)
        if after
        else task
        for place, (task, (_, after)) in enumerate(zip(tasks, wanted, strict=True))
    ]
    try:
        check_no_cycle(made)
    except DependencyCycle as error:
        detail = error.detail
        for place, task in enumerate(tasks):
            detail = detail.replace(task.id, _named(place, wanted[place][0]))
        raise DependencyCycle(f"{detail}; nothing was stored") from None
    return made


def _ids(tasks: Sequence[Task], wanted: Sequence[RequestedTask]) -> Mapping[str, str]:
    ids: dict[str, str] = {}
    for place, (task, (ref, _)) in enumerate(zip(tasks, wanted, strict=True)):
        if ref is not None and ids.setdefault(ref, task.id) != task.id:
            raise InvalidTask(f"{_named(place)}: another task already has the ref {ref[:80]!r}; nothing was stored")
    return ids


def _id_of(name: str, ids: Mapping[str, str], place: int) -> str:
    if name in ids:
        return ids[name]
    if is_task_id(name):
        return name
    raise InvalidTask(
        f"{_named(place)}: `after` names {name[:80]!r}, which is neither a `ref` of this request nor a task id; nothing"
        " was stored"
    )


def _named(place: int, ref: str | None = None) -> str:
    return f"tasks[{place}]" if ref is None else f"tasks[{place}] ({ref[:80]})"


class ListSchedules(Form):
    """A page of the schedules."""

    cursor: str | None = None
    limit: PageSize = 50


class PutSchedule(Form):
    """The whole schedule: what is not said is as usual, and not as it was."""

    cron: Annotated[str, Meta(min_length=1, max_length=200)]  # minute hour day month weekday
    task_name: TaskName
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    args: dict[str, Any] = field(default_factory=dict)  # of every task it makes
    queue: QueueName | None = None  # otherwise the task's own
    priority: Priority | None = None  # otherwise the task's own
    paused: bool = False
    allow_unknown: bool = False  # take a name that no worker has told of


class StoredTaskResult(Struct, frozen=True, kw_only=True):
    """How a task ended, with all of its result; without either while it has not ended."""

    task_id: str
    status: Status
    version: int
    result: MaybeRaw = None
    error: TaskError | None = None
    reason: str | None = None
