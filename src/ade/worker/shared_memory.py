"""The lease page: memory shared by a worker and its watchdog.

It contains the held runs and how far each has come, the claim in progress, the time of the last renewal by each side,
and the process groups that end with the worker. The worker writes run IDs before it claims, so the watchdog has a run
from the moment of the commit, even if a handler blocks the interpreter before the worker has read the response. Uses
only the standard library, to keep the watchdog small.

The page is a file with a lock that its worker holds while it lives. Other workers of the same host find it there: if
they get the lock, the worker is dead, and the page shows which of its runs had started.
"""

import fcntl
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence

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
_RUN = struct.Struct("<32sq48sqB7x")
_STEP_AT = _RUN.size - 8
_RUN_ID_SIZE = 32
_GROUP = struct.Struct("<q")  # 0: an empty slot
_MOST_GROUPS = 1_024
_BEAT_AT, _GUARDED_AT, _COUNT_AT, _CLAIMING_AT = 8, 16, 24, 28
_LOOP_AT, _REVOKED_AT, _CLAIMED_AT, _LAYOUT_AT, _GROUPS_AT = 32, 40, 48, 56, 64
_LAYOUT = b"ADEPAGE1"  # changes with the layout: workers of several versions can share a host
_CLAIM_AT = _GROUPS_AT + _MOST_GROUPS * _GROUP.size

# How far a run has come. CLAIMED: nothing has happened yet that another run could not do again. PREPARING: it may hold
# locks. STARTED: its handler, or its preview, may have been called.
CLAIMED, PREPARING, STARTED = 0, 1, 2
_STEPS = tuple(bytes([step]) + bytes(7) for step in (CLAIMED, PREPARING, STARTED))


class HeldRun(NamedTuple):
    """A held run on the lease page."""

    run_id: str
    until_ms: int  # monotonic; 0: the run has no timeout
    task_id: str = ""
    claimed_ms: int = 0  # monotonic: when its claim was sent
    step: int = CLAIMED


def entry_of(run: HeldRun) -> bytes:
    """Return the run's bytes on the lease page."""
    return _RUN.pack(run.run_id.encode(), run.until_ms, run.task_id.encode(), run.claimed_ms, run.step)


def entry_at(entry: bytes, step: int) -> bytes:
    """Return the bytes of a run that has come this far."""
    return entry[:_STEP_AT] + _STEPS[step]


def step_of(entry: bytes) -> int:
    """Return how far the run of these bytes has come."""
    return entry[_STEP_AT]


class LeasePageSnapshot(NamedTuple):
    """The lease page at one moment. Times are monotonic milliseconds."""

    beat_ms: int  # the worker's own last renewal
    guarded_ms: int  # the watchdog's last renewal
    runs: tuple[HeldRun, ...]
    claiming: tuple[str, ...] = ()  # run IDs of the claim in progress, whose response the worker has not read
    claimed_ms: int = 0  # when that claim was sent
    is_whole: bool = True  # False: the worker stopped during a write, and what it wrote last is unknown


class SharedLeasePage:
    """The lease page, readable and writable by both processes."""

    def __init__(self, descriptor: int, capacity: int, path: str = "") -> None:
        self.descriptor = descriptor
        self.capacity = capacity
        self.path = path  # where other workers of the host find it; empty if they cannot
        self._runs_at = _CLAIM_AT + capacity * _RUN_ID_SIZE
        self._memory = mmap.mmap(descriptor, _size(capacity))
        self._memory[_LAYOUT_AT:_GROUPS_AT] = self._memory[_LAYOUT_AT:_GROUPS_AT].replace(bytes(8), _LAYOUT)
        self._version = 0
        self._last: LeasePageSnapshot | None = None

    @classmethod
    def create(cls, capacity: int, name: str = "") -> "SharedLeasePage":
        """Create a page. With a `name`, other workers of the host can find it, if there is a directory for that."""
        if name and (page := cls._create_file(capacity, name)) is not None:
            return page
        if sys.platform == "linux":
            descriptor = os.memfd_create("ade-slate")
        else:
            path = f"{_DIRECTORIES[-1]}/ade-{os.urandom(16).hex()}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.unlink(path)  # noqa: PTH108  # pathlib is large
        os.ftruncate(descriptor, _size(capacity))
        return cls(descriptor, capacity)

    @classmethod
    def _create_file(cls, capacity: int, name: str) -> "SharedLeasePage | None":
        """Create the page as a locked file. It gets its name last, so that no one finds it without its lock."""
        directory = page_directory()
        if directory is None:
            return None
        path = f"{directory}/{name}"
        unlocked = f"{path}{_UNFINISHED}"
        try:
            descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _reserve(descriptor, _size(capacity))
            os.rename(unlocked, path)  # noqa: PTH104  # pathlib is large
        except OSError:  # for instance no space: writing to the memory would kill the worker
            os.close(descriptor)
            os.unlink(unlocked)  # noqa: PTH108  # pathlib is large
            return None
        return cls(descriptor, capacity, path)

    def for_child(self) -> int:
        """Open the page once more, without the lock, for a child process. The caller closes the descriptor."""
        if self.path:
            try:
                return os.open(self.path, os.O_RDWR)
            except FileNotFoundError:  # removed by another program, so that no worker can find it, with or without lock
                self.path = ""
        return os.dup(self.descriptor)

    @property
    def is_readable(self) -> bool:
        """Whether this version of ADE knows the layout of the page."""
        return self._memory[_LAYOUT_AT:_GROUPS_AT] == _LAYOUT

    def write_runs(self, entries: Iterable[bytes]) -> None:
        """Write the held runs, an `entry_of` each; called by the worker. The claim in progress is then over."""
        packed = list(entries)[: self.capacity]
        self._begin_write()
        _COUNT.pack_into(self._memory, _COUNT_AT, len(packed))
        _COUNT.pack_into(self._memory, _CLAIMING_AT, 0)
        self._memory[self._runs_at : self._runs_at + len(packed) * _RUN.size] = b"".join(packed)
        self._end_write()

    def write_claim(self, run_ids: Sequence[str], now_ms: int) -> None:
        """Write the run IDs of a claim before it is sent; called by the worker."""
        content = "".join(run_ids[: self.capacity]).encode()
        self._begin_write()
        _COUNT.pack_into(self._memory, _CLAIMING_AT, len(content) // _RUN_ID_SIZE)
        _MOMENT.pack_into(self._memory, _CLAIMED_AT, now_ms)
        self._memory[_CLAIM_AT : _CLAIM_AT + len(content)] = content
        self._end_write()

    def write_step(self, place: int, step: int) -> None:
        """Record how far the run at this place has come."""
        if place < self.capacity:
            self._memory[self._runs_at + place * _RUN.size + _STEP_AT] = step

    def _begin_write(self) -> None:
        self._version += 1
        _VERSION.pack_into(self._memory, 0, self._version)

    def _end_write(self) -> None:
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
        if self.path:
            os.utime(self.descriptor)  # the system does not record writes to the memory

    def write_guarded(self, moment_ms: int) -> None:
        _MOMENT.pack_into(self._memory, _GUARDED_AT, moment_ms)

    def write_loop(self, moment_ms: int) -> None:
        """Record that the worker's event loop is not blocked."""
        _MOMENT.pack_into(self._memory, _LOOP_AT, moment_ms)

    def loop_ms(self) -> int:
        """Return when the worker's event loop last ran; 0 before it did."""
        return int(_MOMENT.unpack_from(self._memory, _LOOP_AT)[0])

    def write_revoked(self, moment_ms: int) -> None:
        """Forbid the worker to start runs claimed until this moment; called by the watchdog before it returns them."""
        _MOMENT.pack_into(self._memory, _REVOKED_AT, moment_ms)

    def revoked_ms(self) -> int:
        """Return the moment up to which claimed runs must not start; 0 if none was revoked."""
        return int(_MOMENT.unpack_from(self._memory, _REVOKED_AT)[0])

    def read(self) -> LeasePageSnapshot:
        """Return a consistent page. If the worker was stopped during a write, it contains the previous runs."""
        for _ in range(100):
            before = _VERSION.unpack_from(self._memory, 0)[0]
            page = self._read_once()
            if before % 2 == 0 and _VERSION.unpack_from(self._memory, 0)[0] == before:
                self._last = page
                return page
        return page._replace(runs=page.runs if self._last is None else self._last.runs, is_whole=False)

    def _groups(self) -> list[int]:
        return [group for (group,) in _GROUP.iter_unpack(self._memory[_GROUPS_AT:_CLAIM_AT])]

    def _replace_group(self, before: int, after: int) -> None:
        groups = self._groups()
        if before in groups:  # else there is no free slot, or it was never registered for lack of one
            _GROUP.pack_into(self._memory, _GROUPS_AT + groups.index(before) * _GROUP.size, after)

    def _read_once(self) -> LeasePageSnapshot:
        count = min(_COUNT.unpack_from(self._memory, _COUNT_AT)[0], self.capacity)
        body = self._memory[self._runs_at : self._runs_at + count * _RUN.size]
        claiming = min(_COUNT.unpack_from(self._memory, _CLAIMING_AT)[0], self.capacity)
        ids = self._memory[_CLAIM_AT : _CLAIM_AT + claiming * _RUN_ID_SIZE].decode(errors="replace")
        return LeasePageSnapshot(
            beat_ms=_MOMENT.unpack_from(self._memory, _BEAT_AT)[0],
            guarded_ms=_MOMENT.unpack_from(self._memory, _GUARDED_AT)[0],
            runs=tuple(
                HeldRun(_text(run_id), until, _text(task_id), claimed_ms, step)
                for run_id, until, task_id, claimed_ms, step in _RUN.iter_unpack(body)
            ),
            claiming=tuple(ids[start : start + _RUN_ID_SIZE] for start in range(0, len(ids), _RUN_ID_SIZE)),
            claimed_ms=_MOMENT.unpack_from(self._memory, _CLAIMED_AT)[0],
        )

    def close(self) -> None:
        """Close the page, and remove it from the directory of the host."""
        self._memory.close()
        if self.path:
            try:
                os.unlink(self.path)  # noqa: PTH108  # pathlib is large
            except OSError:  # already removed, or not ours to remove
                self.path = ""
        os.close(self.descriptor)


def _size(capacity: int) -> int:
    return _CLAIM_AT + capacity * (_RUN_ID_SIZE + _RUN.size)


def _text(written: bytes) -> str:
    return written.rstrip(b"\0").decode(errors="replace")


# The pages of a host. They are in memory if the system has a directory for that, and never outlive a restart there.


_UNFINISHED = ".new"
_DIRECTORIES = ("/dev/shm", os.environ.get("TMPDIR") or "/tmp")  # only in a directory of our own, below


def page_directory() -> str | None:
    """Return the directory of this user's lease pages; None if there is none that only this user can write to.

    Its name contains the ID of the running kernel: on a file system that several machines share, locks may hold only
    within one of them, so that a living worker of another machine would look dead.
    """
    for parent in _DIRECTORIES:
        path = f"{parent}/ade-{os.getuid()}-{_boot_id()}"
        try:
            os.mkdir(path, 0o700)  # noqa: PTH102  # pathlib is large
        except FileExistsError:
            pass
        except OSError:
            continue
        found = os.lstat(path)
        if found.st_uid == os.getuid() and found.st_mode & 0o170077 == 0o040000:  # a directory, closed to others
            return path
    return None


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123  # pathlib is large
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def _reserve(descriptor: int, size: int) -> None:
    """Give the file its size and its space, so that a full disk cannot fail a later write to the memory."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def _locked(path: str) -> int | None:
    """Open a page and lock it. None if its worker lives, or if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # else it was removed by the process that had the lock before
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _beat_at(page: "os.DirEntry[str]") -> float:
    """Return when the worker of a page last beat; 0 if the page is gone."""
    try:
        return page.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _is_dead(path: str) -> bool:
    descriptor = _locked(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


class DeadWorker:
    """The page of a dead worker. While it is open, no other process can take it over."""

    def __init__(self, name: str, page: SharedLeasePage) -> None:
        self.name = name
        self._page = page
        self._is_open = True

    @classmethod
    def names(
        cls, without: Container[str] = (), silent_s: float | None = None, always: Container[str] = ()
    ) -> list[str]:
        """Return the names of the dead workers of this host and user, whichever their store, without these names, and
        without those that were silent for longer than `silent_s`, except the names in `always`.

        It looks at every page, of which killed processes can leave hundreds: not for an event loop.
        """
        directory = page_directory()
        if directory is None:
            return []
        since = 0.0 if silent_s is None else time.time() - silent_s
        with os.scandir(directory) as pages:
            found = [
                page.name
                for page in pages
                if page.name not in without
                and not page.name.endswith(_UNFINISHED)
                and (page.name in always or _beat_at(page) >= since)
            ]
        return [name for name in found if _is_dead(f"{directory}/{name}")]

    @classmethod
    def open(cls, name: str) -> "DeadWorker | None":
        """Open the page of a dead worker. None if it lives, or if another process has it."""
        path = f"{page_directory()}/{name}"
        if (descriptor := _locked(path)) is None:
            return None
        try:
            capacity = (os.fstat(descriptor).st_size - _CLAIM_AT) // (_RUN_ID_SIZE + _RUN.size)
            return cls(name, SharedLeasePage(descriptor, capacity, path))
        except (OSError, ValueError):  # it has no valid size
            os.close(descriptor)
            return None

    @property
    def age_s(self) -> float:
        """The time since the last heartbeat of the worker."""
        return time.time() - os.fstat(self._page.descriptor).st_mtime

    def started(self) -> Callable[[str], bool]:
        """Return whether the handler of a run may have been called. If that is unknown, it counts as called."""
        page = self._page.read()
        known = {run.run_id: run.step for run in page.runs} | dict.fromkeys(page.claiming, CLAIMED)
        is_known = page.is_whole and self._page.is_readable
        return lambda run_id: not is_known or known.get(run_id, STARTED) == STARTED

    def release(self) -> None:
        """Leave the page to other workers, unless it was removed."""
        if self._is_open:
            self._page.path = ""
            self.remove()

    def remove(self) -> None:
        """Remove the page: nothing of this worker is left to do."""
        self._is_open = False
        self._page.close()
