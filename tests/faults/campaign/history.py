"""One task's events, told again: who held it when, how often it ran, how often it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ade.events.model import FINAL_EVENTS, RECLAIMED, Event
from ade.tasks.lifecycle import Status

ENDS_OF_RUNS = {
    "task.succeeded": Status.COMPLETED,
    "task.failed": Status.FAILED,
    "task.retry_scheduled": Status.PENDING,
    "task.released": Status.PENDING,
    "task.stalled": Status.STALLED,
}
REMARKS = frozenset({RECLAIMED, "task.dlq", "task.discarded", "alert"})  # they change nothing


@dataclass
class Story:
    """What the events of one task say. `wrongs` are sentences about what must never be."""

    task_id: str
    status: Status | None = None
    generation: int = 1
    attempt: int = 0
    most_attempts: int = 0
    holder: str | None = None  # the run that has the lease
    stalled: str | None = None  # the run whose lease expired last
    finals: int = 0  # in this generation
    succeeded_by: str | None = None
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)  # run id -> generation and attempt
    takeovers: int = 0
    wrongs: list[str] = field(default_factory=list)

    def tell(self, events: Iterable[Event]) -> "Story":
        for event in events:
            self._hear(event)
        return self

    @property
    def is_final(self) -> bool:
        return self.finals > 0

    def _hear(self, event: Event) -> None:
        if event.type in REMARKS:
            self.takeovers += event.type == RECLAIMED
            return
        if self.is_final and event.type != "task.replayed":
            self._wrong(event, f"it had ended as {self.status} before")
        match event.type:
            case "task.created":
                self._be_created(event)
            case "task.claimed":
                self._be_claimed(event)
            case "task.cancelled":
                self.status, self.holder = Status.CANCELLED, None
            case "task.replayed":
                self._be_replayed(event)
            case kind if kind in ENDS_OF_RUNS:
                self._end_run(event)
            case _:
                self._wrong(event, "nothing in a campaign does that")
        self.finals += event.type in FINAL_EVENTS

    def _be_created(self, event: Event) -> None:
        if self.status is not None:
            self._wrong(event, "it existed already")
        self.status = Status.PENDING

    def _be_claimed(self, event: Event) -> None:
        """At most one live lease: nobody may have it when it is claimed."""
        if self.holder is not None:
            self._wrong(event, f"run {self.holder} held it and had not lost it")
        elif self.status not in (Status.PENDING, Status.STALLED):
            self._wrong(event, f"it was {self.status}")
        self.status = Status.RUNNING
        self.holder = str(event.payload["run_id"])
        if self.holder in self.claims:
            self._wrong(event, f"run {self.holder} had claimed it before")
        self.attempt += 1
        self.most_attempts = max(self.most_attempts, self.attempt)
        if event.payload["attempt"] != self.attempt:
            self._wrong(event, f"it is attempt {event.payload['attempt']}, by the log it should be {self.attempt}")
        self.claims[self.holder] = (self.generation, self.attempt)

    def _end_run(self, event: Event) -> None:
        """Only the run that holds the lease may end, or have its lease taken away."""
        run_id = event.payload.get("run_id")
        if self.holder is None and self.status is Status.STALLED and run_id == self.stalled:
            self.holder = self.stalled  # its lease expired, and nobody has claimed the task since
        if self.holder is None or run_id != self.holder:
            self._wrong(event, f"it is of run {run_id}, but {self.holder or 'nobody'} held the task")
        if event.type == "task.succeeded":
            self.succeeded_by = self.holder
        self.stalled = self.holder if event.type == "task.stalled" else None
        self.status, self.holder = ENDS_OF_RUNS[event.type], None
        self.attempt -= event.type == "task.released"

    def _be_replayed(self, event: Event) -> None:
        if self.status is not Status.FAILED:
            self._wrong(event, f"it was {self.status}")
        self.status, self.finals, self.attempt = Status.PENDING, 0, 0
        self.generation += 1

    def _wrong(self, event: Event, why: str) -> None:
        self.wrongs.append(f"{self.task_id}: {event.type} (event {event.seq}), but {why}")
