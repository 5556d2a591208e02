"""What webhooks are kept under, how far the log was read for them, and what the tasks that send are called."""

from ade.core.events import Event

KIND = "webhook"
CURSOR = "webhooks"
DELIVER = "webhooks:deliver"  # the name of the tasks
QUEUE = "webhooks"
_MARK_AT, MARK = 14, "8"  # the version of their UUIDs: one that is free to use, and no other task has


def is_own(event: Event) -> bool:
    """Whether it tells of a task that sends messages. To send that too would never end."""
    return event.task_id is not None and event.task_id[_MARK_AT : _MARK_AT + 1] == MARK
