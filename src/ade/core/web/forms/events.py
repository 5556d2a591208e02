"""What is asked of the event log, of its audit copy, and of figures."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from ade.core.feeds.filters import EventFilter, parse_filter
from ade.core.feeds.sse import LARGEST_SEQ
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import EventType, InboxName, TaskId, told

Seq = Annotated[int, Meta(ge=0, le=LARGEST_SEQ)]
_Printable = Annotated[str, told(pattern="^[^\\u0000-\\u001f\\u007f-\\u00a0]{1,200}$")]
_FIELDS = ("type", "task", "queue", "name", "inbox")


class EventForm(Form):
    """Which events: all that is said must hold; of one field, any value is enough. A stream takes the same."""

    type: tuple[EventType, ...] = ()  # such as task.failed, task.* or *
    task: tuple[TaskId, ...] = ()
    queue: tuple[_Printable, ...] = ()
    name: tuple[_Printable, ...] = ()
    inbox: tuple[InboxName, ...] = ()

    def filter(self) -> EventFilter:
        """Raises InvalidFilter."""
        return parse_filter((field, value) for field in _FIELDS for value in getattr(self, field))


class ListEvents(EventForm):
    """With `after` the next events behind a seq, 0 for all that is kept; otherwise the newest. Always in order."""

    after: Seq | None = None
    cursor: str | None = None
    limit: PageSize = 50


class ListAuditEntries(ListEvents):
    """The same of the audit copy."""


class ExportAudit(Form):
    after: Seq = 0


class StatsSeries(Form):
    """A time until now, or until then, in steps of whole minutes; of one queue or one name if asked."""

    since: datetime | None = None  # an hour before its end
    until: datetime | None = None
    step_s: Annotated[int, Meta(ge=60, le=31_536_000, multiple_of=60)] = 60
    queue: str | None = None
    name: str | None = None
