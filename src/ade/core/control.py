"""What a handler may raise to say how its run shall be treated, and what it may hear."""

from enum import StrEnum, auto

from ade.core.outcome import Failed


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
