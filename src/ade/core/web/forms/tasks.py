"""What is said about tasks."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from ade.core.errors import InvalidTask
from ade.core.lifecycle import Status
from ade.core.locks.wishes import Wish
from ade.core.records import AfterFailure
from ade.core.retry import Backoff
from ade.core.web.forms.words import (
    Attempts,
    Capability,
    Key,
    Label,
    LockName,
    Priority,
    QueueName,
    Span,
    TaskId,
    TaskName,
    told,
)

PageSize = Annotated[int, Meta(ge=1, le=500)]
MOST_TOGETHER = 1_000
Line = Annotated[str, Meta(max_length=2_000)]
_NO_OPTIONS = frozenset({"name", "args", "draft", "allow_unknown", "not_before", "not_after", "ref"})


class Form(Struct, kw_only=True, forbid_unknown_fields=True):
    """Anything else than what it names is refused."""


class Nothing(Form):
    """A body without fields; it may be left out."""


class NewTask(Form, kw_only=True):
    """A task to be stored. What is not said is as its name was defined by the workers, or else as usual."""

    name: TaskName
    args: dict[str, Any] = {}
    draft: bool = False  # keep it as a draft, to be submitted later
    queue: QueueName | None = None
    priority: Priority | None = None
    delay: Annotated[float, told(minimum=0)] | None = None
    run_at: datetime | None = None
    deadline: Span | datetime | None = None
    key: Key | None = None
    after: list[str] | None = None
    after_failure: AfterFailure | None = None
    tags: Annotated[list[Label], told(maxItems=50)] | None = None
    description: str | None = None
    max_attempts: Attempts | None = None
    timeout: Span | None = None
    backoff: Backoff | None = None
    result_ttl: Span | None = None
    concurrency_key: Key | None = None
    locks: Annotated[list[LockName | Wish], told(maxItems=100)] | None = None
    needs: Annotated[list[Capability], told(maxItems=32)] | None = None
    parent: TaskId | None = None
    team: str | None = None
    ticket: str | None = None
    approval: list[str] | None = None
    resources: list[LockName] | None = None
    rollback: Literal["automatic", "manual", "none"] | None = None
    start: Literal["at_once", "by_hand"] | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    trace: str | None = None  # where it stands in a trace (W3C traceparent); that of the request otherwise
    allow_unknown: bool = False  # take a name that no worker has told of

    def options(self) -> dict[str, Any]:
        """What was said, as the options of the app are called. Raises InvalidTask."""
        said = {name: value for name, value in structs.asdict(self).items() if value is not None}
        window = (said.get("not_before"), said.get("not_after"))
        if (window[0] is None) != (window[1] is None):
            raise InvalidTask("not_before and not_after go together: say from when and until when it may start")
        options = {name: value for name, value in said.items() if name not in _NO_OPTIONS}
        return options if window == (None, None) else {**options, "window": window}


class BatchTask(NewTask, kw_only=True):
    """One of many. Others of the same request may wait for it by its `ref`, which they name in `after`."""

    ref: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class NewTasks(Form):
    """Stored all or none."""

    tasks: Annotated[list[BatchTask], Meta(min_length=1, max_length=MOST_TOGETHER)]


class TaskFilter(Form):
    """Which tasks; all that is said must hold."""

    status: list[Status] = []
    queue: str | None = None
    name: str | None = None
    tag: str | None = None
    resource: str | None = None  # that it changes or locks
    parent: str | None = None
    author: str | None = None
    worker: str | None = None
    text: str | None = None  # in the description, the name or the error's message
    created_from: datetime | None = None
    created_before: datetime | None = None
    discarded: bool | None = None


class ListTasks(TaskFilter):
    order: Literal["newest", "oldest"] = "newest"
    cursor: str | None = None
    limit: PageSize = 50


class Cancel(Form):
    reason: Line | None = None


class Retry(Form):
    """With the same arguments, or with corrected ones: all of them, not only those that change."""

    args: dict[str, Any] | None = None


class EditTask(Form):
    """What is said becomes different; of the arguments all are said anew."""

    args: dict[str, Any] | None = None
    description: str | None = None
    priority: Priority | None = None
    tags: Annotated[list[Label], told(maxItems=50)] | None = None
    resources: list[LockName] | None = None


class GetTask(Form):
    wait: Annotated[int, Meta(ge=0, le=60)] | None = None  # seconds
    whole: bool = False  # with large arguments too, in place of the reference to them


class ListLines(Form):
    """Of output or events: those with a seq above `after`."""

    after: Annotated[int, Meta(ge=0)] = 0
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class ListNames(Form):
    cursor: str | None = None
    limit: PageSize = 100


class BulkAction(Form):
    """The same for all tasks that a filter finds. The filter must say something."""

    action: Literal["cancel", "retry", "discard"]
    filter: TaskFilter
    reason: Line | None = None  # kept with the tasks; to discard needs one
    limit: Annotated[int, Meta(ge=1, le=MOST_TOGETHER)] = MOST_TOGETHER  # tasks reached by one call


class ListDeadLetters(Form):
    name: str | None = None
    queue: str | None = None
    fingerprint: str | None = None
    cursor: str | None = None
    limit: PageSize = 50


class ListDeadLetterGroups(Form):
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


class DiscardDeadLetters(DeadLetters, kw_only=True):
    reason: Line


class Discard(Form, kw_only=True):
    reason: Line
