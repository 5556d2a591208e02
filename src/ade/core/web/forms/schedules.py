"""What is said about schedules."""

from typing import Annotated, Any

from msgspec import Meta, field

from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import QueueName, TaskName


class ListSchedules(Form):
    cursor: str | None = None
    limit: PageSize = 50


class PutSchedule(Form):
    """The whole schedule: what is not said is as usual, and not as it was."""

    cron: Annotated[str, Meta(min_length=1, max_length=200)]  # minute hour day month weekday
    task_name: TaskName
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    args: dict[str, Any] = field(default_factory=dict)  # of every task it makes
    queue: QueueName | None = None  # otherwise the task's own
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None  # otherwise the task's own
    paused: bool = False
    allow_unknown: bool = False  # take a name that no worker has told of
