"""What a handler may raise to say how its run shall be treated, and what it may hear."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Raw, Struct

from ade.events.model import Event
from ade.failures import TaskError
from ade.tasks.lifecycle import Status

# How a run ended, as data. `perform` makes one of these; `settle` decides what it means.


class Succeeded(Struct, frozen=True):
    result: Raw
    output_ref: str | None = None


class Failed(Struct, frozen=True):
    error: TaskError
    retry_after_ms: int | None = None  # the least delay the failure asks for


class Released(Struct, frozen=True):
    """The worker hands the task back unfinished, at no cost to it."""

    reason: str


class Deferred(Struct, frozen=True):
    """The task waits for its locks, without a worker, at no cost to it."""

    resources: tuple[str, ...]
    look_again_ms: int  # somebody calls it when it may go on; by then it looks by itself


class Withheld(Struct, frozen=True, kw_only=True):
    """The task must not run before people have agreed: it waits for them, or for its preview, without a worker."""

    reason: str
    status: Status = Status.REVIEWING
    events: tuple[Event, ...] = ()
    fields: Mapping[str, object] = {}


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
    """The run has failed in a way that is known exactly, such as an agent that was stopped for its budget."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error.message)
        self.failed = failed


class RunHeld(BaseException):
    """The run waits for people: it ends here, and begins again once they have agreed.

    No Exception, so that a handler that catches all of those does not go on before they have.
    """


class Leave(StrEnum):
    """Whether a tool may be used."""

    FREE = auto()  # no rule of ADE's has anything against it
    GRANTED = auto()  # people were asked, and have agreed
    NEEDED = auto()  # people must be asked first
