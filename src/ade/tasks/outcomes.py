"""Outcomes of a run: the values a worker reports, and the exceptions a handler can raise to choose one."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any

from msgspec import Raw, Struct

from ade.events.model import Event
from ade.failures import TaskError
from ade.tasks.lifecycle import Status

# How a run ended. The worker creates one of these, and `decisions.settle` turns it into a change.


class Succeeded(Struct, frozen=True):
    """The attempt returned a result."""

    result: Raw
    output_ref: str | None = None


class Failed(Struct, frozen=True):
    """The attempt failed, and might be retried."""

    error: TaskError
    retry_after_ms: int | None = None  # minimum delay that the failure requests
    has_begun: bool = True  # False: the handler was never called


NOT_STARTED = "the worker could not start it in time"


class Released(Struct, frozen=True):
    """The worker hands the task back unfinished, at no cost to it."""

    reason: str
    delay_ms: int = 0  # before it can be claimed again
    has_begun: bool = True  # False: the handler was never called


class Deferred(Struct, frozen=True):
    """The task waits for its locks without a worker; the attempt does not count."""

    resources: tuple[str, ...]
    look_again_ms: int  # poll interval, in case the lock grant does not requeue it first


class Withheld(Struct, frozen=True, kw_only=True):
    """The task needs an approval or a preview before it can run, and waits without a worker."""

    reason: str
    status: Status = Status.REVIEWING
    events: tuple[Event, ...] = ()
    fields: Mapping[str, object] = {}
    has_begun: bool = True  # False: the handler was never called


Outcome = Succeeded | Failed | Released | Deferred | Withheld


class Retry(Exception):
    """Run me again, after the usual backoff or after the time given."""

    def __init__(self, reason: str = "retry asked for", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Unrecoverable(Exception):
    """Do not run me again: no further attempt can succeed."""


class RateLimited(Exception):
    """The other side asks for patience. Does not use up an attempt, up to 20 times."""

    def __init__(self, reason: str = "rate limited", *, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class RunFailed(Exception):
    """The run failed with a known error, such as an agent that exceeded its budget."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error.message)
        self.failed = failed


class RunHeld(BaseException):
    """The run ends to wait for an approval, and the task runs again once it is approved.

    A BaseException, so that a handler that catches Exception does not continue without the approval.
    """


class HoldResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What reviewers decided about a step of a run. It is true if they approved the step."""

    is_approved: bool
    text: str = ""  # the response, or the reason given with the last approval
    args: Any = None  # the approved arguments, if a reviewer edited them; otherwise None
    by: str = ""  # the account that responded or approved last; empty if no one was asked

    def __bool__(self) -> bool:
        return self.is_approved


class Leave(StrEnum):
    """Whether an agent can use a tool."""

    FREE = auto()  # no guard rule applies
    GRANTED = auto()  # reviewers have approved it
    NEEDED = auto()  # reviewers must approve it first
