"""The runs of a task, as its events tell them."""

from collections.abc import Sequence

from msgspec import Struct

from ade.core.events import Event

_ENDS = {
    "task.succeeded": "succeeded",
    "task.retry_scheduled": "failed",
    "task.failed": "failed",
    "task.stalled": "worker lost",
    "task.released": "handed back",
    "task.deferred": "waits for locks",
    "task.cancelled": "cancelled",
}


class Attempt(Struct, kw_only=True, omit_defaults=True):
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


def attempts_of(events: Sequence[Event]) -> list[Attempt]:
    """One for each claim, oldest first, with how it ended if it has."""
    attempts: list[Attempt] = []
    generation = 1
    for event in events:
        if event.type == "task.replayed":
            generation += 1
        elif event.type == "task.claimed":
            attempts.append(_begun(event, generation))
        elif event.type in _ENDS and attempts and attempts[-1].ended_at is None:
            _end(attempts[-1], event)
    return attempts


def _begun(event: Event, generation: int) -> Attempt:
    told = event.payload
    attempt = told.get("attempt")
    return Attempt(
        generation=generation,
        attempt=attempt if isinstance(attempt, int) else 0,
        started_at=event.at,
        worker=_text(told.get("worker")),
        run_id=_text(told.get("run_id")),
    )


def _end(attempt: Attempt, event: Event) -> None:
    attempt.ended_at = event.at
    attempt.ended = _ENDS[event.type]
    attempt.error = _text(event.payload.get("error") or event.payload.get("reason"))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
