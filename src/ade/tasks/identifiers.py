"""Identifiers: task IDs, IDs of HTTP workers, reserved task names of deliveries and agent runs, and inbox IDs."""

import re

from ade.agents.conversations.model import _check_name
from ade.errors import UnknownWorker
from ade.events.model import Event

_PREFIX = "http:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def worker_id(account: str, name: str) -> str:
    """Return the ID of an account's HTTP worker, given its name or its full ID. Raises UnknownWorker.

    The ID contains the account, so that no account can pose as the worker of another. Neither accounts nor names
    contain a colon, so the ID parses in one way only.
    """
    own = worker_prefix(account)
    short = name.removeprefix(own)
    if not _NAME.fullmatch(short):
        raise UnknownWorker(
            f"{name[:120]!r} is not your worker: its name begins with a letter or digit, then letters, digits,"
            " '.', '_' and '-', at most 100"
        )
    return own + short


def worker_prefix(account: str) -> str:
    """Return how the IDs of all HTTP workers of an account begin."""
    return f"{_PREFIX}{account}:"


def owner_of(worker_id: str) -> str | None:
    """Return the account that owns this HTTP worker; None for any other worker."""
    account, _, name = worker_id.removeprefix(_PREFIX).partition(":")
    is_ours = worker_id.startswith(_PREFIX) and account and _NAME.fullmatch(name)
    return account if is_ours else None


TASK_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_task_id(text: str) -> bool:
    """Whether the text is a UUID in lower case."""
    return TASK_ID.fullmatch(text) is not None


# Webhooks and notifications: the document kind, the cursor in the event log, and the name and queue of delivery tasks.


KIND = "webhook"
CURSOR = "webhooks"
DELIVER = "webhooks:deliver"  # the task name
NOTIFY_PERSON = "notifications:deliver"  # sends a notification to a channel of a person, in the same queue
NOTIFICATION_CURSOR = "notifications"
PREFERENCES_KIND = "notification_preferences"
QUEUE = "webhooks"
_MARK_AT, MARK = 14, "8"  # UUID version of delivery tasks: version 8 is free for custom use, and no other task has it


def is_own(event: Event) -> bool:
    """Whether the event is about a delivery task. To deliver such events would cause an endless loop."""
    return event.task_id is not None and event.task_id[_MARK_AT : _MARK_AT + 1] == MARK


# Agent runs: their task names, and the internal task that follows them.


PREFIX = "agent:"  # followed by the agent type
NOTIFY = "agents:notify"  # notifies a conversation that a run it requested has ended


def task_name(subagent_type: str) -> str:
    """Return the task name for an agent type."""
    return f"{PREFIX}{subagent_type}"


def is_run(name: str) -> bool:
    """Whether tasks of this name run an agent."""
    return name.startswith(PREFIX)


def type_of(name: str) -> str:
    """Return the agent type that a task of this name runs."""
    return name.removeprefix(PREFIX)


def check_inbox_id(inbox_id: str) -> None:
    """Raise InvalidInbox unless this is a valid conversation name."""
    _check_name("the id of an inbox", inbox_id)
