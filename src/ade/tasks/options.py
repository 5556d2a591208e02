"""What can be said about a task beside its arguments, and what it means for the record."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict

from msgspec import structs

from ade.approvals.model import Review, StartMode
from ade.common.rate_limit import read_rate
from ade.common.trace_context import check_trace
from ade.errors import InvalidTask
from ade.failures import Backoff
from ade.locks.modes import LockSpec, lock_specs_of, merged
from ade.tasks.admission import needs_of
from ade.tasks.enqueue import Invocation, TaskPlan
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import AfterFailure, Task

Seconds = float | timedelta
_LONGEST_S = 3_200_000_000  # a hundred years, and a little more
ROLLBACKS = ("automatic", "manual", "none")


class TaskReference(Protocol):
    @property
    def id(self) -> str: ...


class DeclaredOptions(TypedDict, total=False):
    """What holds for all tasks of a function. Times are seconds or timedeltas."""

    name: str
    queue: str
    priority: int  # 0 first, 9 last
    timeout: Seconds | None  # of one run
    max_attempts: int  # runs in total
    backoff: Backoff
    result_ttl: Seconds | None
    concurrency: int  # running at once, over all workers
    rate: str  # starts: "100/m", "5/s", "1000/h", "10/30s"
    concurrency_key: Callable[..., str]  # called with the arguments it names
    concurrency_per_key: int  # running at once with the same key; 1 unless said otherwise
    needs: Iterable[str]  # capabilities that its workers must have, all of them
    cpu: bool  # compute in a process of its own


class TaskOptions(TypedDict, total=False):
    """What holds for one task. Times are seconds or timedeltas; moments are datetimes with a time zone."""

    queue: str
    priority: int
    delay: Seconds
    run_at: datetime
    deadline: Seconds | datetime
    key: str  # of all tasks with the same key, name and queue one is stored
    after: Sequence["str | TaskReference | Invocation[Any]"]
    after_failure: Literal["cancel", "fail", "run"]
    tags: Iterable[str]
    description: str
    max_attempts: int
    timeout: Seconds | None
    backoff: Backoff
    result_ttl: Seconds | None
    concurrency_key: str
    locks: "Sequence[str | LockSpec]"  # every run has all of them, or does not begin; a bare name is to be written
    needs: Iterable[str]  # capabilities that its worker must have, all of them
    parent: "str | TaskReference"
    author: str
    team: str
    ticket: str
    trace: str  # where the call stands in a trace, such as a W3C traceparent; the run and its children go on from there
    approval: str | Sequence[str]  # policies of the rulebook that must be met before it runs
    resources: Iterable[str]  # what it changes, by the names that locks have too
    rollback: Literal["automatic", "manual", "none"]
    start: Literal["at_once", "by_hand"]  # once it is approved
    window: tuple[datetime, datetime]  # between which it may start


def make_plan(template: Task, options: TaskOptions) -> TaskPlan:
    """How to make tasks with these options. Raises InvalidTask."""
    given: Mapping[str, Any] = options
    check_known(given, TaskOptions)
    fields = {field: read(name, given[name]) for name, (field, read) in _FIELDS.items() if name in given}
    if "delay" in given and "run_at" in given:
        raise InvalidTask("give either `delay` or `run_at`, not both")
    deadline_in_ms = None
    if isinstance(given.get("deadline"), datetime):
        fields["deadline"] = _moment("deadline", given["deadline"])
    elif "deadline" in given:
        deadline_in_ms = milliseconds("deadline", given["deadline"])
    review = reviewed(template.review, given)
    if review is not None:
        fields["review"] = review
    after = tuple(other if isinstance(other, Invocation) else id_of("after", other) for other in _after(given))
    in_batch = any(isinstance(other, Invocation) for other in after)
    if not in_batch:
        fields["depends_on"] = after
    return TaskPlan(
        template=structs.replace(template, **fields),
        delay_ms=milliseconds("delay", given["delay"], least=0) if "delay" in given else 0,
        deadline_in_ms=deadline_in_ms,
        after=after if in_batch else (),
    )


def check_known(given: Mapping[str, Any], known: type[Any]) -> None:
    names = known.__annotations__
    if unknown := sorted(given.keys() - names.keys()):
        raise InvalidTask(f"unknown option {', '.join(unknown)}; known are {', '.join(names)}")


def milliseconds(name: str, value: object, *, least: float = 0.001) -> int:
    """Whole milliseconds from seconds or a timedelta."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise InvalidTask(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    if seconds < least:
        raise InvalidTask(f"{name} must be at least {least:g} seconds, not {value!r}")
    if seconds > _LONGEST_S:
        raise InvalidTask(f"{name} must be at most {_LONGEST_S:,} seconds, not {value!r}")
    return round(seconds * 1000)


def milliseconds_or_none(name: str, value: object) -> int | None:
    return None if value is None else milliseconds(name, value)


def whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTask(f"{name} must be a whole number, not {value!r}")
    return value


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTask(f"{name} must be text, not {value!r}")
    return value


def id_of(name: str, value: object) -> str:
    """The id of a task, given as such or by something that has one."""
    task_id = getattr(value, "id", value)
    if not isinstance(task_id, str) or not is_task_id(task_id):
        raise InvalidTask(f"{name} must name tasks by handle or id, not {str(value)[:80]!r}")
    return task_id


def parse_rate(value: object) -> tuple[int, int]:
    """ "100/m" as (100, 60000): starts and the milliseconds they may take place in."""
    rate = read_rate(value) if isinstance(value, str) else None
    if rate is None:
        raise InvalidTask(f"rate {value!r} is not valid: write a count and a period, such as 100/m, 5/s or 10/30s")
    return rate


def _after(given: Mapping[str, Any]) -> Sequence[Any]:
    after = given.get("after", ())
    if isinstance(after, str) or not isinstance(after, Iterable):
        raise InvalidTask("after must be a list of handles, ids or calls of the same batch")
    return tuple(after)


def reviewed(before: Review | None, given: Mapping[str, Any]) -> Review | None:
    """What the options say about the approval of a task; None where nobody needs to approve it."""
    fields: dict[str, Any] = {}
    if "approval" in given:
        named = given["approval"]
        fields["policies"] = tuple(text("approval", each) for each in ((named,) if isinstance(named, str) else named))
    if "start" in given:
        fields["start"] = _start("start", given["start"])
    if "window" in given:
        fields["not_before"], fields["not_after"] = _window("window", given["window"])
    return structs.replace(before or Review(), **fields) if fields else before


def _start(name: str, value: object) -> StartMode:
    try:
        return StartMode(value)  # type: ignore[arg-type] # anything else is the error below
    except ValueError:
        raise InvalidTask(f"{name} must be one of {', '.join(StartMode)}, not {value!r}") from None


def _window(name: str, value: object) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidTask(f"{name} must be two datetimes: from when and until when the task may start, not {value!r}")
    begin, end = (_moment(name, each) for each in value)
    if begin >= end:
        raise InvalidTask(f"{name} must end after it begins")
    return begin, end


def _resources(name: str, value: object) -> tuple[str, ...]:
    return tuple(wish.resource for wish in locks(name, value))


def _rollback(name: str, value: object) -> str:
    if value not in ROLLBACKS:
        raise InvalidTask(f"{name} must be one of {', '.join(ROLLBACKS)}, not {value!r}")
    return str(value)


def _moment(name: str, value: object) -> int:
    if not isinstance(value, datetime):
        raise InvalidTask(f"{name} must be a datetime, not {value!r}")
    if value.tzinfo is None:
        raise InvalidTask(f"{name} {value.isoformat()} has no time zone; add one, for instance tzinfo=timezone.utc")
    return round(value.timestamp() * 1000)


def _tags(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidTask(f"{name} must be a list of texts, not {value!r}")
    return tuple(text(name, tag) for tag in value)


def _after_failure(name: str, value: object) -> AfterFailure:
    try:
        return AfterFailure(value)  # type: ignore[arg-type] # anything else is the error below
    except ValueError:
        raise InvalidTask(f"{name} must be one of {', '.join(AfterFailure)}, not {value!r}") from None


def backoff(name: str, value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise InvalidTask(f"{name} must be a Backoff(...), not {value!r}")
    return value


def locks(name: str, value: object) -> tuple[LockSpec, ...]:
    if isinstance(value, str | LockSpec) or not isinstance(value, Iterable):
        raise InvalidTask(f'{name} must be a list such as [write("repo:app"), read("db:main")], not {value!r}')
    wanted = tuple(value)
    for one in wanted:
        if not isinstance(one, str | LockSpec):
            raise InvalidTask(f"{name} must name resources, by read(...), write(...) or as text, not {one!r}")
    return merged(lock_specs_of(wanted))


def needs(name: str, value: object) -> tuple[str, ...]:
    return needs_of(_tags(name, value))


_FIELDS: Mapping[str, tuple[str, Callable[[str, object], object]]] = {
    "queue": ("queue", text),
    "priority": ("priority", whole),
    "run_at": ("run_after", _moment),
    "key": ("idempotency_key", text),
    "after_failure": ("after_failure", _after_failure),
    "tags": ("tags", _tags),
    "description": ("description", text),
    "max_attempts": ("max_attempts", whole),
    "timeout": ("timeout_ms", milliseconds_or_none),
    "backoff": ("backoff", backoff),
    "result_ttl": ("result_ttl_ms", milliseconds_or_none),
    "concurrency_key": ("concurrency_key", text),
    "locks": ("locks", locks),
    "needs": ("needs", needs),
    "parent": ("parent_id", id_of),
    "author": ("author_id", text),
    "team": ("team", text),
    "ticket": ("ticket_ref", text),
    "trace": ("trace", lambda _, value: check_trace(value)),
    "resources": ("resources", _resources),
    "rollback": ("rollback", _rollback),
}
