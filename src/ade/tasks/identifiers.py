"""Ids of workers behind HTTP: made of the account and a name, so that nobody can be another's worker."""

import re

from ade.agents.conversations.model import _check_name
from ade.errors import UnknownWorker
from ade.events.model import Event

_PREFIX = "http:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def worker_id(account: str, name: str) -> str:
    """The id of an account's worker; its own whole id is as good as the name. Raises UnknownWorker.

    Neither accounts nor names have a colon, so that an id can be read in one way only.
    """
    own = f"{_PREFIX}{account}:"
    short = name.removeprefix(own)
    if not _NAME.fullmatch(short):
        raise UnknownWorker(
            f"{name[:120]!r} is no worker of yours: its name begins with a letter or digit, then letters, digits,"
            " '.', '_' and '-', at most 100"
        )
    return own + short


def owner_of(worker_id: str) -> str | None:
    """The account whose worker behind HTTP this is; None for every other worker."""
    account, _, name = worker_id.removeprefix(_PREFIX).partition(":")
    is_ours = worker_id.startswith(_PREFIX) and account and _NAME.fullmatch(name)
    return account if is_ours else None


# Ids: UUIDv7 from a time and random bytes given by the caller.


_VARIANT = {f"{digit:x}": f"{0x8 | digit & 0x3:x}" for digit in range(16)}  # two bits of it are fixed
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid7(now_ms: int, entropy: bytes) -> str:
    """A UUIDv7 in its usual text form. `entropy` is ten random bytes."""
    time, rest = f"{now_ms & 0xFFFFFFFFFFFF:012x}", entropy.hex()
    return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{_VARIANT[rest[4]]}{rest[5:8]}-{rest[8:20]}"


def is_task_id(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


# What webhooks are kept under, how far the log was read for them, and what the tasks that send are called.


KIND = "webhook"
CURSOR = "webhooks"
DELIVER = "webhooks:deliver"  # the name of the tasks
QUEUE = "webhooks"
_MARK_AT, MARK = 14, "8"  # the version of their UUIDs: one that is free to use, and no other task has


def is_own(event: Event) -> bool:
    """Whether it tells of a task that sends messages. To send that too would never end."""
    return event.task_id is not None and event.task_id[_MARK_AT : _MARK_AT + 1] == MARK


# What tasks that run agents are called, and ADE's own step after them.


PREFIX = "agent:"  # before the type of the agent
NOTIFY = "agents:notify"  # tells a conversation that a run it asked for has ended


def task_name(subagent_type: str) -> str:
    return f"{PREFIX}{subagent_type}"


def is_run(name: str) -> bool:
    return name.startswith(PREFIX)


def type_of(name: str) -> str:
    """The type of agent that a task of this name runs."""
    return name.removeprefix(PREFIX)


def check_inbox_id(inbox_id: str) -> None:
    """Raises InvalidInbox. An id is a conversation's name, as agents give it."""
    _check_name("the id of an inbox", inbox_id)
