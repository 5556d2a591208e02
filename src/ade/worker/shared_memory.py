"""The lease page: memory shared by a worker and its watchdog.

It contains the held runs, the time of the last renewal by each side, and the process groups that end with the worker.
The worker writes it before a handler runs, so the watchdog has a run even if the handler immediately blocks the
interpreter and the lease thread never runs again. Uses only the standard library, to keep the watchdog small.
"""

import mmap
import os
import struct
import sys
from collections.abc import Iterable

TYPE_CHECKING = False  # as in `typing`, which is large


# `NamedTuple` without the module `typing`, which would take more of the watchdog's memory than ADE itself.


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414  # exported
else:
    from collections import namedtuple

    _ANNOTATIONS = ("__annotations__", "__annotate__", "__annotate_func__")  # where versions of Python keep them

    class _FromAnnotations(type):
        def __new__(mcs, name, bases, space):
            if not bases:
                return super().__new__(mcs, name, bases, space)
            fields = type(name, (), dict(space)).__annotations__  # from Python 3.14 on they are not in `space` itself
            defaults = [space[field] for field in fields if field in space]
            rest = {key: value for key, value in space.items() if key not in fields and key not in _ANNOTATIONS}
            return type(name, (namedtuple(name, fields, defaults=defaults),), {**rest, "__slots__": ()})

    class NamedTuple(metaclass=_FromAnnotations):
        """Fields as annotations, as with `typing.NamedTuple`."""


_VERSION = struct.Struct("<Q")  # odd while the worker is writing
_MOMENT = struct.Struct("<q")
_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<32sq48s")
_GROUP = struct.Struct("<q")  # 0: an empty slot
_MOST_GROUPS = 1_024
_BEAT_AT, _GUARDED_AT, _COUNT_AT, _GROUPS_AT = 8, 16, 24, 32
_RUNS_AT = _GROUPS_AT + _MOST_GROUPS * _GROUP.size


class HeldRun(NamedTuple):
    """A held run on the lease page."""

    run_id: str
    until_ms: int  # monotonic; 0: the run has no timeout
    task_id: str = ""


def entry_of(run: HeldRun) -> bytes:
    """Return the run's bytes on the lease page. They never change, so they are created once per run."""
    return _RUN.pack(run.run_id.encode(), run.until_ms, run.task_id.encode())


class LeasePageSnapshot(NamedTuple):
    """The lease page at one moment. Times are monotonic milliseconds."""

    beat_ms: int  # the worker's own last renewal
    guarded_ms: int  # the watchdog's last renewal
    runs: tuple[HeldRun, ...]


class SharedLeasePage:
    """The lease page, readable and writable by both processes."""

    def __init__(self, descriptor: int, capacity: int) -> None:
        self.descriptor = descriptor
        self.capacity = capacity
        self._memory = mmap.mmap(descriptor, _RUNS_AT + capacity * _RUN.size)
        self._version = 0
        self._last: LeasePageSnapshot | None = None

    @classmethod
    def create(cls, capacity: int) -> "SharedLeasePage":
        size = _RUNS_AT + capacity * _RUN.size
        if sys.platform == "linux":
            descriptor = os.memfd_create("ade-slate")
        else:
            import tempfile

            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size)
        return cls(descriptor, capacity)

    def write_runs(self, entries: Iterable[bytes]) -> None:
        """Write the held runs, an `entry_of` each; called by the worker."""
        packed = list(entries)[: self.capacity]
        self._version += 1
        _VERSION.pack_into(self._memory, 0, self._version)
        _COUNT.pack_into(self._memory, _COUNT_AT, len(packed))
        self._memory[_RUNS_AT : _RUNS_AT + len(packed) * _RUN.size] = b"".join(packed)
        self._version += 1
        _VERSION.pack_into(self._memory, 0, self._version)

    def add_group(self, group: int) -> None:
        """Register a process group that must not outlive the worker. Each has its own slot, so none is half written."""
        self._replace_group(0, group)

    def remove_group(self, group: int) -> None:
        self._replace_group(group, 0)

    def read_groups(self) -> list[int]:
        return [group for group in self._groups() if group > 1]  # 0 is our own group, 1 means all processes

    def write_beat(self, moment_ms: int) -> None:
        _MOMENT.pack_into(self._memory, _BEAT_AT, moment_ms)

    def write_guarded(self, moment_ms: int) -> None:
        _MOMENT.pack_into(self._memory, _GUARDED_AT, moment_ms)

    def read(self) -> LeasePageSnapshot:
        """Return a consistent page. If the worker was stopped during a write, it contains the previous runs."""
        for _ in range(100):
            before = _VERSION.unpack_from(self._memory, 0)[0]
            page = self._read_once()
            if before % 2 == 0 and _VERSION.unpack_from(self._memory, 0)[0] == before:
                self._last = page
                return page
        return page if self._last is None else page._replace(runs=self._last.runs)

    def _groups(self) -> list[int]:
        return [group for (group,) in _GROUP.iter_unpack(self._memory[_GROUPS_AT:_RUNS_AT])]

    def _replace_group(self, before: int, after: int) -> None:
        groups = self._groups()
        if before in groups:  # else there is no free slot, or it was never registered for lack of one
            _GROUP.pack_into(self._memory, _GROUPS_AT + groups.index(before) * _GROUP.size, after)

    def _read_once(self) -> LeasePageSnapshot:
        count = min(_COUNT.unpack_from(self._memory, _COUNT_AT)[0], self.capacity)
        body = self._memory[_RUNS_AT : _RUNS_AT + count * _RUN.size]
        return LeasePageSnapshot(
            beat_ms=_MOMENT.unpack_from(self._memory, _BEAT_AT)[0],
            guarded_ms=_MOMENT.unpack_from(self._memory, _GUARDED_AT)[0],
            runs=tuple(
                HeldRun(_text(run_id), until, _text(task_id)) for run_id, until, task_id in _RUN.iter_unpack(body)
            ),
        )

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


def _text(written: bytes) -> str:
    return written.rstrip(b"\0").decode(errors="replace")
