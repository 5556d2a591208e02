"""How a run ended, as data. `perform` makes one of these; `settle` decides what it means."""

from collections.abc import Mapping

from msgspec import Raw, Struct

from ade.core.events import Event
from ade.core.failure import TaskError
from ade.core.lifecycle import Status


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
