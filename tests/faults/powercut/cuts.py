"""Cut the power at many moments of a recording, in every way of losing, and compare with what was promised."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from pathlib import Path
from random import Random

from msgspec import structs

from tests.faults.powercut.acknowledgement import GONE, Acknowledgement, TaskState
from tests.faults.powercut.disk import Disk, Files
from tests.faults.powercut.losses import LOSSES
from tests.faults.powercut.recording import Change, Recording, Sync
from tests.faults.powercut.recovery import Recovered, Recovery


class Fault(StrEnum):
    DAMAGED = auto()  # the database is corrupt, or an invariant is broken
    BARE = auto()  # a record names a payload that is not there
    LOST = auto()  # something acknowledged is not there
    HALF = auto()  # a call was carried out in part
    STRANGE = auto()  # a record is as nobody ever wrote it


@dataclass(frozen=True, slots=True)
class Finding:
    fault: Fault
    cut: int
    loss: str
    sentence: str

    def __str__(self) -> str:
        return f"cut after event {self.cut}, {self.loss}: {self.fault}: {self.sentence}"


@dataclass(slots=True)
class Report:
    cuts: int = 0
    checks: int = 0
    opened: int = 0  # less than checks: what was opened a moment ago is not opened again
    findings: list[Finding] = field(default_factory=list)

    def cuts_with(self, fault: Fault) -> int:
        return len({finding.cut for finding in self.findings if finding.fault is fault})

    def __str__(self) -> str:
        faults = ", ".join(f"{fault} at {self.cuts_with(fault)}" for fault in Fault)
        return f"{self.cuts} cuts, {self.checks} checks, {self.opened} databases opened; {faults}"


class Promises:
    """What the store has said yes to up to now, and all that was ever written."""

    def __init__(self, recording: Recording) -> None:
        self._calls_of_many = [call for call in recording.acknowledgements() if len(call.states) > 1]
        self._known: dict[str, dict[int, TaskState]] = {}
        for call in recording.acknowledgements():
            for state in call.states:
                self._known.setdefault(state.id, {})[state.version] = state
        self._promised: dict[str, int] = {}
        self._may_be_gone: set[str] = set()

    def take(self, acknowledgement: Acknowledgement) -> None:
        self._may_be_gone.update(acknowledgement.asked)
        for state in acknowledgement.states:
            self._promised[state.id] = max(state.version, self._promised.get(state.id, 0))

    def broken_by(self, found: Mapping[str, TaskState]) -> Iterator[tuple[Fault, str]]:
        for task_id, version in self._promised.items():
            if self._reached(task_id, found) < version:
                promised, there = self._known[task_id][version], found.get(task_id)
                yield Fault.LOST, f"{promised} was acknowledged, found is {there}"
        for state in found.values():
            if not self._was_written(state):
                yield Fault.STRANGE, f"found is {state}, which nobody wrote"
        for call in self._calls_of_many:
            carried_out = [self._reached(state.id, found) >= state.version for state in call.states]
            if any(carried_out) and not all(carried_out):
                yield Fault.HALF, f"{sum(carried_out)} of {len(carried_out)} changes of '{call.call}' are there"

    def _was_written(self, state: TaskState) -> bool:
        """As a caller was told; or touched since, because what it waits for runs again, which nobody is told."""
        known = self._known.get(state.id, {})
        if known.get(state.version) == state:
            return True
        earlier = (before for version, before in known.items() if version < state.version)
        return state.status == "pending" and any(
            before == structs.replace(state, version=before.version) for before in earlier
        )

    def _reached(self, task_id: str, found: Mapping[str, TaskState]) -> int:
        """How far a task has come: 0 if it is not there yet."""
        if task_id in found:
            return found[task_id].version
        return GONE if task_id in self._may_be_gone else 0


def choose_cuts(recording: Recording, *, at_most: int, seed: int) -> set[int]:
    """Every moment if they are few; else those around syncs and acknowledgements, and others by chance."""
    everywhere = range(len(recording.events) + 1)
    if len(everywhere) <= at_most:
        return set(everywhere)
    chosen = {0, len(recording.events)}
    for number, event in enumerate(recording.events):
        if isinstance(event, Sync):
            chosen |= {number, number + 1}
        elif isinstance(event, Acknowledgement):
            chosen.add(number + 1)
    others = [cut for cut in everywhere if cut not in chosen]
    return chosen | set(Random(seed).sample(others, min(len(others), max(0, at_most - len(chosen)))))


def files_after(recording: Recording, cut: int, loss: str, *, seed: int) -> Files:
    """What one cut leaves; with the numbers of a finding, what it was found in."""
    disk = Disk(recording.folders)
    for number, event in enumerate(recording.events[:cut]):
        disk.take(number, event)
    return disk.after_cut(_kept(disk, cut, loss, seed))


def _kept(disk: Disk, cut: int, loss: str, seed: int) -> list[Change]:
    return LOSSES[loss](disk.unsafe(), Random(f"{seed} {cut} {loss}"))


class Cutter:
    """Replays a recording once, and at each chosen cut looks at what every way of losing leaves."""

    def __init__(self, recording: Recording, folder: Path, database: str, *, seed: int) -> None:
        self._recording = recording
        self._recovery = Recovery(folder, database)
        self._disk = Disk(recording.folders)
        self._promises = Promises(recording)
        self._seed = seed
        self._recent: deque[tuple[int, list[Change], Recovered]] = deque(maxlen=2 * len(LOSSES))
        self.report = Report()

    def run(self, cuts: Collection[int], losses: Collection[str] = tuple(LOSSES)) -> Report:
        try:
            for number, event in enumerate(self._recording.events):
                if number in cuts:
                    self._cut(number, losses)
                self._disk.take(number, event)
                if isinstance(event, Acknowledgement):
                    self._promises.take(event)
            if len(self._recording.events) in cuts:
                self._cut(len(self._recording.events), losses)
        finally:
            self._recovery.close()
        return self.report

    def _cut(self, cut: int, losses: Collection[str]) -> None:
        self.report.cuts += 1
        for loss in losses:
            self.report.checks += 1
            found = self._recovered(_kept(self._disk, cut, loss, self._seed))
            faults = [(Fault.DAMAGED, sentence) for sentence in found.damage]
            if not faults:  # of a damaged file nothing more is to be said
                faults += [(Fault.BARE, sentence) for sentence in found.missing]
                faults += self._promises.broken_by(found.states)
            self.report.findings += [Finding(fault, cut, loss, sentence) for fault, sentence in faults]

    def _recovered(self, kept: list[Change]) -> Recovered:
        """What is found after the cut; many cuts leave the same as the one before."""
        safe = self._disk.syncs_that_mattered
        for earlier_safe, earlier_kept, recovered in self._recent:
            if earlier_safe == safe and earlier_kept == kept:
                return recovered
        self._recovery.lay_out(self._disk.after_cut(kept))
        recovered = self._recovery.look()
        self.report.opened += 1
        self._recent.append((safe, kept, recovered))
        return recovered
