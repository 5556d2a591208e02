"""The attempts of a task and how they ended, derived from its events."""

from collections.abc import Sequence

from msgspec import Struct

from ade.events.model import Event
from ade.failures import FailureKind
from ade.stores.ports import Stores
from ade.tasks.model import Task

_MOST_EVENTS = 10_000

_ENDS = {
    "task.succeeded": "succeeded",
    "task.retry_scheduled": "failed",
    "task.failed": "failed",
    "task.stalled": "worker lost",
    "task.released": "handed back",
    "task.deferred": "waits for locks",
    "task.held": "waits for approval",
    "task.cancelled": "cancelled",
}


class AttemptSummary(Struct, kw_only=True, omit_defaults=True):
    """One attempt of a task: when, where, and how it ended."""

    generation: int = 1
    attempt: int
    started_at: int
    ended_at: int | None = None
    ended: str = "running"
    worker: str | None = None
    run_id: str | None = None
    error: str | None = None

    @property
    def label(self) -> str:
        return str(self.attempt) if self.generation == 1 else f"{self.attempt} (generation {self.generation})"


def attempts_of(events: Sequence[Event]) -> list[AttemptSummary]:
    """Return one summary per claim, oldest first."""
    attempts: list[AttemptSummary] = []
    generation = 1
    for event in events:
        if event.type == "task.replayed":
            generation += 1
        elif event.type == "task.claimed":
            attempts.append(_begun(event, generation))
        elif event.type in _ENDS and attempts and _is_open(attempts[-1], event):
            _end(attempts[-1], event)
    return attempts


async def runs_of(stores: Stores, task: Task) -> list[AttemptSummary]:
    """Return the attempts of a stored task, as far as its first 10,000 events contain them."""
    has_run = task.started_at is not None or task.attempt > 0 or task.generation > 1
    return attempts_of(await stores.events.read(0, _MOST_EVENTS, task_id=task.id)) if has_run else []


def _begun(event: Event, generation: int) -> AttemptSummary:
    payload = event.payload
    attempt = payload.get("attempt")
    return AttemptSummary(
        generation=generation,
        attempt=attempt if isinstance(attempt, int) else 0,
        started_at=event.at,
        worker=_text(payload.get("worker")),
        run_id=_text(payload.get("run_id")),
    )


def _is_open(attempt: AttemptSummary, event: Event) -> bool:
    """Whether the event ends the attempt. A run whose lease expired can still end as long as no other has begun."""
    if attempt.ended_at is None:
        return True
    is_of_run = attempt.run_id is not None and event.payload.get("run_id") == attempt.run_id
    is_late = event.payload.get("kind") == FailureKind.DEADLINE_PASSED  # of the waiting task
    return attempt.ended == _ENDS["task.stalled"] and is_of_run and not is_late


def _end(attempt: AttemptSummary, event: Event) -> None:
    attempt.ended_at = event.at
    attempt.ended = _ENDS[event.type]
    attempt.error = _text(event.payload.get("error") or event.payload.get("reason"))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
