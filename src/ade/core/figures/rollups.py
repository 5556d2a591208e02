"""What is counted of tasks, by queue and name, in a minute, an hour or since ever."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from ade.core.figures.histograms import ATTEMPT_BOUNDS, MS_BOUNDS, Histogram, empty

Group = tuple[str, str]  # a queue and the name of a task
OTHER: Group = ("other", "other")  # where those are counted that there was no place for
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
COUNTS = ("enqueued", "completed", "failed", "retried", "cancelled", "rejected")


class Figures(Struct, array_like=True):
    """What happened to the tasks of one group. `failed` is for good; `rejected` by people, or because none answered."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    rejected: int = 0
    wait: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms from being due to a claim
    run: Histogram = msgspec.field(default_factory=lambda: empty(MS_BOUNDS))  # ms of a run, however it ended
    attempts: Histogram = msgspec.field(default_factory=lambda: empty(ATTEMPT_BOUNDS))  # when it completed or failed

    def add(self, other: "Figures") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait.add(other.wait)
        self.run.add(other.run)
        self.attempts.add(other.attempts)


class Entry(Struct, frozen=True, array_like=True):
    """The figures of a group as they are kept."""

    queue: str
    name: str
    figures: Figures


class Rollup:
    """Figures by group. There are `most` groups at most, and all others together."""

    def __init__(self, most: int, entries: Iterable[Entry] = ()) -> None:
        self._most = most
        self._groups: dict[Group, Figures] = {(entry.queue, entry.name): entry.figures for entry in entries}

    def of(self, group: Group) -> Figures:
        """Where this group is counted: under its own name if it has a place or gets one."""
        known = self._groups.get(group)
        if known is None:
            own = len(self._groups) - (OTHER in self._groups)
            key = group if own < self._most else OTHER
            known = self._groups.setdefault(key, Figures())
        return known

    def add(self, other: "Rollup") -> None:
        for group, figures in other.groups.items():
            self.of(group).add(figures)

    @property
    def groups(self) -> Mapping[Group, Figures]:
        return self._groups

    def entries(self) -> list[Entry]:
        """In the order in which they came, which decides who has a place."""
        return [Entry(queue, name, figures) for (queue, name), figures in self._groups.items()]

    def total(self, *, queue: str | None = None, name: str | None = None) -> Figures:
        """All groups of this queue and this name together."""
        found = Figures()
        for group, figures in self._groups.items():
            if queue in (None, group[0]) and name in (None, group[1]):
                found.add(figures)
        return found


def minute_of(moment: int) -> int:
    return moment - moment % MINUTE_MS


def hour_of(moment: int) -> int:
    return moment - moment % HOUR_MS
