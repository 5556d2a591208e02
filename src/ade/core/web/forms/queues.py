"""What is said about queues."""

from typing import Annotated

from msgspec import Meta

from ade.core.web.forms.tasks import Form, PageSize


class ListQueues(Form):
    cursor: str | None = None
    limit: PageSize = 50


class PauseQueue(Form):
    new: bool = False  # the queue need not exist yet


class LimitQueue(Form):
    """Without `max_depth` there is no limit."""

    max_depth: Annotated[int, Meta(ge=1, le=999_999_999)] | None = None  # unfinished tasks that it takes in
    new: bool = False  # the queue need not exist yet
