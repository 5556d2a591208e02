"""The options of a new task, declared once for the Python API, HTTP, the command line, and files of tasks.

A field of `NewTask` that carries an `Option` is an option: its type is the JSON form, the `Option` names the field of
the task record and the command-line flag. `TaskOptions` lists the same names with the types that Python
callers use; a test compares the two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, TypedDict, get_args

from msgspec import Meta, Struct, field, structs

from ade.approvals.model import Review, StartMode
from ade.errors import InvalidTask
from ade.failures import Backoff
from ade.locks.model import DEFAULT_PRIORITY, LockSpec, PriorityName
from ade.server.request_types import (
    MOST_TOGETHER,
    Attempts,
    BackoffText,
    Capability,
    Form,
    Key,
    Label,
    LockName,
    Priority,
    QueueName,
    RateText,
    Reference,
    Span,
    TaskId,
    TaskName,
    described,
)
from ade.tasks.model import DEFAULT_QUEUE, MOST_CAPABILITIES, AfterFailure, Definition, Task
from ade.tasks.option_values import (
    as_moment,
    as_seconds,
    parse_rate,
    rate_text,
    read_after_failure,
    read_backoff,
    read_count,
    read_id,
    read_limit_ms,
    read_locks,
    read_moment,
    read_ms_or_none,
    read_needs,
    read_priority,
    read_queue,
    read_resources,
    read_rollback,
    read_start,
    read_text,
    read_texts,
    read_trace_place,
    read_version,
    read_whole,
)

if TYPE_CHECKING:
    from ade.tasks.enqueue import Invocation


_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Limit = Annotated[float, Meta(ge=0, le=31_536_000)]


def _text_or_none(value: str) -> str | None:
    return value or None


def _as_json(value: Any) -> Any:
    return (list(value) or None) if isinstance(value, tuple) else value


class Option(Struct, frozen=True):
    """One option of a task: its field of the record, how to convert it both ways, and its flag.

    Without a `field`, `ade.tasks.enqueue.make_plan` and `new_task_of` convert the option. Without `help`, the command
    line has no flag for it; `flags` (words, without dashes) is needed only where it is not named after the option.
    """

    field: str = ""
    read: Callable[[str, object], object] = read_text
    write: Callable[[Any], Any] = _as_json
    help: str = ""
    flags: str = ""
    metavar: str | None = None


class NewTask(Form, kw_only=True):
    """A task to be stored. What is not said is as its name was defined by the workers, or else as usual."""

    json_names: ClassVar[Mapping[str, str]] = {
        "run_at": "run_after",
        "key": "idempotency_key",
        "after": "depends_on",
        "timeout": "timeout_ms",
        "result_ttl": "result_ttl_ms",
        "parent": "parent_id",
        "ticket": "ticket_ref",
        "approval": "policies",
    }

    name: TaskName
    args: dict[str, Any] = field(default_factory=dict)
    draft: bool = False  # keep it as a draft, to be submitted later
    queue: Annotated[QueueName, Option("queue", help="Another queue than the task's own.")] | None = None
    priority: (
        Annotated[
            Priority,
            Option(
                "priority", read_priority, help="urgent (1), high (3), normal (5), low (7), or 0 (first) to 9 (last)."
            ),
        ]
        | None
    ) = None
    delay: Annotated[float, described(minimum=0), Option(help="Delay before it can start (30s, 5m).")] | None = None
    run_at: (
        Annotated[
            datetime,
            Option("run_after", read_moment, as_moment, "The earliest start, as a date and time.", "at", "TIME"),
        ]
        | None
    ) = None
    deadline: Annotated[Span, Option(help="It fails if it has not started within this time.")] | datetime | None = None
    key: (
        Annotated[
            Key,
            Option(
                "idempotency_key",
                help="Idempotency key: of all tasks with the same key, name, and queue, only one is stored.",
            ),
        ]
        | None
    ) = None
    after: Annotated[list[str], Option(help="Wait for this task; repeatable.", metavar="ID")] | None = None
    after_failure: (
        Annotated[
            AfterFailure,
            Option("after_failure", read_after_failure, help="What to do if such a task does not complete."),
        ]
        | None
    ) = None
    tags: (
        Annotated[
            list[Label],
            described(maxItems=50),
            Option("tags", read_texts, help="A tag to find it by; repeatable, or comma-separated.", flags="tag tags"),
        ]
        | None
    ) = None
    description: Annotated[str, Option("description", help="A description for people.")] | None = None
    max_attempts: Annotated[Attempts, Option("max_attempts", read_whole, help="Maximum number of attempts.")] | None = (
        None
    )
    timeout: (
        Annotated[Span, Option("timeout_ms", read_ms_or_none, as_seconds, "Time limit of its first run.")] | None
    ) = None
    backoff: (
        Annotated[
            Backoff | BackoffText,
            Option("backoff", read_backoff, help="Delays between attempts: exponential, steps, or such as 1m,5m,15m."),
        ]
        | None
    ) = None
    result_ttl: Annotated[Span, Option("result_ttl_ms", read_ms_or_none, as_seconds)] | None = None
    concurrency_key: Annotated[Key, Option("concurrency_key")] | None = None
    locks: (
        Annotated[
            list[LockName | LockSpec],
            described(maxItems=100),
            Option("locks", read_locks, help="Run with this lock; repeatable.", flags="lock", metavar="NAME"),
        ]
        | None
    ) = None
    needs: (
        Annotated[
            list[Capability],
            described(maxItems=32),
            Option(
                "needs",
                read_needs,
                help="A required capability of the worker; repeatable, or comma-separated.",
                metavar="WORD",
            ),
        ]
        | None
    ) = None
    parent: Annotated[TaskId, Option("parent_id", read_id)] | None = None
    run: Annotated[str, Meta(max_length=60)] | None = None  # the run of the parent that enqueues it, if a worker does
    team: Annotated[Reference, Option("team", help="The team that it belongs to.")] | None = None
    ticket: Annotated[Reference, Option("ticket_ref", help="The ticket that it belongs to, such as OPS-7.")] | None = (
        None
    )
    approval: Annotated[list[str], Option(help="Require approval under this policy.", metavar="POLICY")] | None = None
    resources: (
        Annotated[
            list[LockName],
            Option(
                "resources",
                read_resources,
                help="A resource that it changes; repeatable.",
                flags="resource",
                metavar="NAME",
            ),
        ]
        | None
    ) = None
    rollback: (
        Annotated[
            Literal["automatic", "manual", "none"],
            Option("rollback", read_rollback, help="How it is undone if it fails."),
        ]
        | None
    ) = None
    start: Annotated[Literal["at_once", "by_hand"], Option(help="What happens once it is approved.")] | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    trace: Annotated[str, Option("trace", read_trace_place)] | None = (
        None  # where it stands in a trace (W3C traceparent); that of the request otherwise
    )
    allow_unknown: bool = False  # take a name that no worker has told of

    def options(self) -> dict[str, Any]:
        """Return the options that are set, by their names in the Python API. Raises InvalidTask."""
        window = self.not_before, self.not_after
        if (window[0] is None) != (window[1] is None):
            raise InvalidTask("not_before and not_after go together: give both, the start and the end of the window")
        options = {name: value for name in JSON_OPTIONS if (value := getattr(self, name)) is not None}
        return options if window == (None, None) else {**options, "window": window}


class BatchTask(NewTask, kw_only=True):
    """One of many. Others of the same request may wait for it by its `ref`, which they name in `depends_on`."""

    ref: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class NewTasks(Form):
    """Stored all or none."""

    tasks: Annotated[list[BatchTask], Meta(min_length=1, max_length=MOST_TOGETHER)]


class NewDefinition(Form):
    """What holds for all tasks of a name. What is not said is left to the settings of whoever enqueues one."""

    json_names: ClassVar[Mapping[str, str]] = {"timeout": "timeout_ms", "result_ttl": "result_ttl_ms"}

    name: TaskName
    queue: Annotated[QueueName, Option("queue", read_queue)] = DEFAULT_QUEUE
    schema: dict[str, Any] | None = None  # of the arguments, as JSON Schema; names and plain types are checked
    concurrency: Annotated[_Count, Option("concurrency", read_count)] | None = None  # running at once over all workers
    concurrency_per_key: Annotated[_Count, Option("concurrency_per_key", read_count)] | None = None
    rate: Annotated[RateText, Option()] | None = None  # starts, such as 100/m or 10/30s
    priority: Annotated[Priority, Option("priority", read_priority)] = DEFAULT_PRIORITY
    timeout: Annotated[_Limit, Option("timeout_ms", read_limit_ms, as_seconds)] | None = None  # of one run; 0: no limit
    max_attempts: Annotated[int, Meta(ge=1, le=1_000), Option("max_attempts", read_whole)] | None = None
    backoff: Annotated[Backoff | BackoffText, Option("backoff", read_backoff)] | None = None
    result_ttl: Annotated[_Limit, Option("result_ttl_ms", read_limit_ms, as_seconds)] | None = None  # 0: for ever
    needs: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES), Option("needs", read_needs, list)] = field(
        default_factory=list
    )
    version: Annotated[str, Meta(max_length=100), Option("version", read_version, _text_or_none)] | None = (
        None  # of the code: an approval covers it
    )
    # What every task of this name changes, and its tags. The author of a task can only add to them.
    resources: Annotated[list[LockName], Meta(max_length=100), Option("resources", read_resources, list)] = field(
        default_factory=list
    )
    tags: Annotated[list[Label], Meta(max_length=50), Option("tags", read_texts, list)] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        """Return the options that are set, with the names and values of the Python API."""
        options = {name: value for name in DEFINITION_OPTIONS if (value := getattr(self, name)) is not None}
        return {
            name: None if name in ("timeout", "result_ttl") and not value else value for name, value in options.items()
        }


def _options_in(form: type[Form]) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for name, annotation in form.__annotations__.items():
        kinds = (annotation, *get_args(annotation))
        options = [each for kind in kinds for each in getattr(kind, "__metadata__", ()) if isinstance(each, Option)]
        if options:
            [found[name]] = options
    return found


JSON_OPTIONS: Mapping[str, Option] = _options_in(NewTask)
DEFINITION_OPTIONS: Mapping[str, Option] = _options_in(NewDefinition)
# The server takes the author from the caller's account, and JSON splits the window into not_before and not_after.
OPTIONS: Mapping[str, Option] = {
    **JSON_OPTIONS,
    "author": Option("author_id"),
    "author_name": Option("author_name"),
    "window": Option(),
}
_PLAIN: Mapping[str, Option] = {name: option for name, option in OPTIONS.items() if option.field}


def plain_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record fields of the options that depend on nothing else. Raises InvalidTask."""
    return {option.field: option.read(name, given[name]) for name, option in _PLAIN.items() if name in given}


def reviewed(before: Review | None, given: Mapping[str, Any]) -> Review | None:
    """Return the review that the options require; None if the task needs no approval."""
    fields: dict[str, Any] = {}
    if "approval" in given:
        named = given["approval"]
        fields["policies"] = tuple(
            read_text("approval", each) for each in ((named,) if isinstance(named, str) else named)
        )
    if "start" in given:
        fields["start"] = read_start("start", given["start"])
    if "window" in given:
        fields["not_before"], fields["not_after"] = _window(given["window"])
    return structs.replace(before or Review(), **fields) if fields else before


def _window(value: object) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidTask(f"window must be two datetimes: from when and until when the task may start, not {value!r}")
    begin, end = (read_moment("window", each) for each in value)
    if begin >= end:
        raise InvalidTask("window must end after it begins")
    return begin, end


def new_task_of(task: Task) -> BatchTask:
    """Return the request that creates the same task on a server, under another ID."""
    said: dict[str, Any] = {
        name: option.write(getattr(task, option.field)) for name, option in _PLAIN.items() if name in JSON_OPTIONS
    }
    if task.run_after <= task.created_at:
        said["run_at"] = None
    said |= {"deadline": as_moment(task.deadline), "after": list(task.depends_on) or None}
    if (review := task.review) is not None:
        said["approval"] = list(review.policies) or None
        said["start"] = None if review.start is StartMode.AT_ONCE else "by_hand"
        said["not_before"], said["not_after"] = as_moment(review.not_before), as_moment(review.not_after)
    return BatchTask(name=task.name, args=task.arguments(), **said)


def definition_of(name: str, given: Mapping[str, Any], schema: dict[str, Any] | None) -> Definition:
    """Return the definition of a task name with these options. Raises InvalidTask."""
    fields: dict[str, Any] = {
        option.field: option.read(each, given[each])
        for each, option in DEFINITION_OPTIONS.items()
        if option.field and each in given
    }
    if "rate" in given:
        fields["rate_count"], fields["rate_period_ms"] = parse_rate(given["rate"])
    return Definition(name=name, schema=schema, **fields)


def new_definition_of(definition: Definition) -> NewDefinition:
    """Return the request that registers the same definition with a server."""
    said = {
        name: option.write(getattr(definition, option.field))
        for name, option in DEFINITION_OPTIONS.items()
        if option.field
    }
    count, period_ms = definition.rate_count, definition.rate_period_ms
    rate = None if count is None or period_ms is None else rate_text(count, period_ms)
    return NewDefinition(name=definition.name, schema=definition.schema, rate=rate, **said)


# The options as Python callers write them: typed keyword arguments of decorators and calls.


Seconds = float | timedelta


class TaskReference(Protocol):
    """Anything with a task ID, such as a TaskHandle."""

    @property
    def id(self) -> str: ...


class DeclaredOptions(TypedDict, total=False):
    """What holds for all tasks of a function. Times are seconds or timedeltas."""

    name: str
    queue: str
    priority: int | PriorityName  # 0 first, 9 last; urgent is 1, high 3, normal 5, low 7
    timeout: Seconds | None  # of one run
    max_attempts: int  # runs in total
    backoff: Backoff | str  # "exponential", "steps" (1, 5, 15 minutes), or delays such as "1m,5m,15m"
    result_ttl: Seconds | None
    concurrency: int  # concurrent runs over all workers
    rate: str  # starts: "100/m", "5/s", "1000/h", "10/30s"
    concurrency_key: Callable[..., str]  # called with the arguments that it names as parameters
    concurrency_per_key: int  # concurrent runs with the same key; default 1
    needs: Iterable[str]  # capabilities that a worker must have, all of them
    version: str  # of the code, such as a release: an approval covers it; without one, a hash of the source
    resources: Iterable[str]  # what all its tasks change; a task can only add to them
    tags: Iterable[str]  # of all its tasks; a task can only add to them
    cpu: bool  # run in a separate process


class TaskOptions(TypedDict, total=False):
    """What holds for one task. Times are seconds or timedeltas; moments are datetimes with a time zone."""

    queue: str
    priority: int | PriorityName
    delay: Seconds
    run_at: datetime
    deadline: Seconds | datetime
    key: str  # only one task per key, name, and queue is stored
    after: Sequence["str | TaskReference | Invocation[Any]"]
    after_failure: Literal["cancel", "fail", "run"]
    tags: Iterable[str]
    description: str
    max_attempts: int
    timeout: Seconds | None
    backoff: Backoff | str
    result_ttl: Seconds | None
    concurrency_key: str
    locks: "Sequence[str | LockSpec]"  # a run holds all of them, or does not start; a plain name is exclusive
    needs: Iterable[str]  # capabilities that its worker must have, all of them
    parent: "str | TaskReference"
    author: str
    author_name: str  # the display name, for people to read
    team: str  # `ade tasks --team` and `--ticket` find it by these
    ticket: str
    trace: str  # trace position of the call, such as a W3C traceparent; the run and its children continue it
    approval: str | Sequence[str]  # policies of the rulebook that must be met before it runs
    resources: Iterable[str]  # what it changes, by the names that locks have too
    rollback: Literal["automatic", "manual", "none"]
    start: Literal["at_once", "by_hand"]  # once it is approved
    window: tuple[datetime, datetime]  # earliest and latest start


def check_known(given: Mapping[str, Any], known: type[Any]) -> None:
    """Raise InvalidTask for options that `known` does not declare."""
    names = known.__annotations__
    if unknown := sorted(given.keys() - names.keys()):
        raise InvalidTask(f"unknown option {', '.join(unknown)}; known are {', '.join(names)}")
