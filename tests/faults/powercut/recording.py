"""From system calls to what happened to files: every change, every sync and every acknowledgement, in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.faults.powercut import acknowledgement
from tests.faults.powercut.acknowledgement import Acknowledgement
from tests.faults.powercut.system_calls import Moment, SystemCall, moments

ROOT = 0  # the node of the folder all is in; it was there before
_VOLATILE = ("-shm", ".ballast", ".hints")  # endings of what may be lost at any time


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Rename:
    """Names in one folder change, all at once: None says that the name is gone."""

    node: int  # of the folder
    names: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """A file or folder was synced: whatever was done to it before event number `began` is safe now."""

    node: int
    began: int


Change = Write | Truncate | Rename
Event = Change | Sync | Acknowledgement


@dataclass(slots=True)
class _Open:
    """An open file: what it is, and where the next `write` goes."""

    node: int
    position: int = 0


class Recorder:
    """Follows the program's open files and names, as the program itself saw them."""

    def __init__(self, root: Path, marker: Path) -> None:
        self.events: list[Event] = []
        self.folders: set[int] = {ROOT}
        self._root = PurePosixPath(root)
        self._marker = str(marker)
        self._marker_fd = -1
        self._nodes: dict[PurePosixPath, int] = {self._root: ROOT}
        self._newest = ROOT
        self._open: dict[int, _Open] = {}
        self._on_end: dict[str, Callable[[SystemCall], None]] = {
            "openat": self._opened,
            "lseek": self._sought,
            "write": self._written,
            "pwrite64": self._written_at,
            "ftruncate": self._truncated,
            "fsync": self._synced,
            "fdatasync": self._synced,
            "mkdir": self._folder_made,
            "unlink": self._removed,
            "rename": self._renamed,
        }

    def take(self, moment: Moment) -> None:
        call = moment.call
        if not moment.ended:
            self._begin(call)
        elif call.result >= 0 and call.name in self._on_end:
            self._on_end[call.name](call)
        elif call.result >= 0 and call.name != "close" and self._concerns_us(call):
            raise ValueError(f"the replay does not know what {call.name}({', '.join(call.arguments)[:200]}) does")

    def _begin(self, call: SystemCall) -> None:
        match call.name:
            case "close":  # the number may be given out again before strace sees the end
                self._open.pop(call.number(0), None)
            case "fsync" | "fdatasync":
                call.seen["began"] = len(self.events)
            case "write" if call.number(0) == self._marker_fd:  # the yes was there before it was written down
                self.events += [acknowledgement.decoded(line) for line in call.content(1).splitlines()]

    def _concerns_us(self, call: SystemCall) -> bool:
        if call.arguments[0].isdigit() and call.number(0) in self._open:
            return True
        texts = [position for position, text in enumerate(call.arguments) if text.startswith('"')]
        return any(self._inside(call.path(position)) for position in texts)

    def _inside(self, path: str) -> PurePosixPath | None:
        """The path, if it is one of those that must survive."""
        pure = PurePosixPath(path)
        if not pure.is_relative_to(self._root):
            return None
        parts = pure.relative_to(self._root).parts
        return None if any(part.endswith(_VOLATILE) for part in parts) else pure

    def _name(self, path: PurePosixPath, node: int | None) -> None:
        self._rename(path.parent, ((path.name, node),))
        if node is None:
            del self._nodes[path]
        else:
            self._nodes[path] = node

    def _rename(self, folder: PurePosixPath, names: tuple[tuple[str, int | None], ...]) -> None:
        self.events.append(Rename(self._nodes[folder], names))

    def _opened(self, call: SystemCall) -> None:
        if call.path(1) == self._marker:
            self._marker_fd = call.result
        self._open.pop(call.result, None)
        path = self._inside(call.path(1))
        if path is None:
            return
        if path not in self._nodes:
            self._newest += 1
            self._name(path, self._newest)
        elif "O_TRUNC" in call.arguments[2]:
            self.events.append(Truncate(self._nodes[path], 0))
        self._open[call.result] = _Open(self._nodes[path])

    def _sought(self, call: SystemCall) -> None:
        if file := self._open.get(call.number(0)):
            file.position = call.result

    def _written(self, call: SystemCall) -> None:
        if file := self._open.get(call.number(0)):
            self.events.append(Write(file.node, file.position, call.content(1)[: call.result]))
            file.position += call.result

    def _written_at(self, call: SystemCall) -> None:
        if file := self._open.get(call.number(0)):
            self.events.append(Write(file.node, call.number(3), call.content(1)[: call.result]))

    def _truncated(self, call: SystemCall) -> None:
        if file := self._open.get(call.number(0)):
            self.events.append(Truncate(file.node, call.number(1)))

    def _synced(self, call: SystemCall) -> None:
        if file := self._open.get(call.number(0)):
            self.events.append(Sync(file.node, call.seen["began"]))

    def _folder_made(self, call: SystemCall) -> None:
        if path := self._inside(call.path(0)):
            self._newest += 1
            self.folders.add(self._newest)
            self._name(path, self._newest)

    def _removed(self, call: SystemCall) -> None:
        if path := self._inside(call.path(0)):
            self._name(path, None)

    def _renamed(self, call: SystemCall) -> None:
        old, new = self._inside(call.path(0)), self._inside(call.path(1))
        if old is None and new is None:
            return
        if old is None or new is None or old.parent != new.parent:
            raise ValueError(f"the replay does not know how to rename {call.path(0)} to {call.path(1)}")
        self._rename(old.parent, ((old.name, None), (new.name, self._nodes[old])))
        self._nodes[new] = self._nodes.pop(old)


@dataclass(frozen=True, slots=True)
class Recording:
    """What happened under a folder, from its first file to the end of the program."""

    events: Sequence[Event]
    folders: frozenset[int]

    def acknowledgements(self) -> list[Acknowledgement]:
        return [event for event in self.events if isinstance(event, Acknowledgement)]

    def without_syncs(self, of: Callable[[Sync], bool] = lambda sync: True) -> "Recording":
        """The same program, had it left these syncs out: they are there, but nothing is safe by them."""
        events = [Sync(event.node, 0) if isinstance(event, Sync) and of(event) else event for event in self.events]
        return Recording(events, self.folders)


def read_recording(trace: Path, *, root: Path, marker: Path) -> Recording:
    recorder = Recorder(root, marker)
    for moment in moments(trace):
        recorder.take(moment)
    return Recording(recorder.events, frozenset(recorder.folders))
