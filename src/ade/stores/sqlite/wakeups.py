"""Wake-ups between threads and processes: files next to the database, touched by the sender, watched with inotify."""

import asyncio
import os
import select
import stat
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from ade.errors import StoreError, StoreUnavailable
from ade.stores.sqlite.connection import RULES_VERSION, connect_reader, value
from ade.stores.wakeups import TOPICS, LocalWakeups

_IN_ATTRIB, _IN_NONBLOCK, _IN_CLOEXEC = 0x4, 0x800, 0x80000
_EVENT = struct.Struct("iIII")
_POLL_S = 0.05  # polling interval without inotify


class FileWakeups(LocalWakeups):
    """Wake-ups across all processes that use one database file.

    The watcher thread starts with the first wait. A worker has none: its event loop watches the files itself, which
    saves a thread switch. Programs that only enqueue need neither.
    """

    def __init__(self, folder: Path, *, database: Path | None = None, is_remote: bool = False) -> None:
        super().__init__()
        self._folder = folder
        self._database = database
        self._pid = os.getpid()
        self._is_remote = is_remote  # reading the database takes a while, and must not block an event loop
        self._files = {topic: folder / topic for topic in TOPICS}
        self._create_files()
        self._connection: apsw.Connection | None = None  # reads the version of the rules
        self._rules_version: str | None = None
        self._comparing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None  # of the watcher thread
        self._attended = 0  # event loops in `listen`
        self._end = -1  # eventfd that wakes the watcher thread
        self._closing = threading.Event()

    def _create_files(self) -> None:
        """Create what is missing, with the mode of the database: its writers can also send wake-ups."""
        with suppress(FileExistsError):
            self._folder.mkdir()
            self._open_to_same_users(self._folder)
        for file in self._files.values():
            with suppress(FileExistsError):  # touching an existing file would wake all processes
                file.touch(exist_ok=False)
                self._open_to_same_users(file)

    def _open_to_same_users(self, path: Path) -> None:
        if self._database is None:
            return
        with suppress(OSError):  # a file system without owners and modes
            database = self._database.stat()
            if os.geteuid() == 0:
                os.chown(path, database.st_uid, database.st_gid)
            mode = stat.S_IMODE(database.st_mode)
            path.chmod(mode | (mode & 0o444) >> 2 if path.is_dir() else mode)

    def notify(self, topic: str) -> None:
        self._wake(topic)
        try:
            os.utime(self._files[topic])
        except OSError:  # the file or the directory was removed
            with suppress(OSError):
                self._create_files()
                self._files[topic].touch()
            self._wake(topic)

    def lag_s(self, topic: str) -> float:
        """Return 0 after comparing the version of the rules in the database: a wake-up can be lost, a commit cannot.

        Infinite where that could take a while, or if it failed.
        """
        if self._database is None or self._is_remote or os.getpid() != self._pid:
            return float("inf")
        with self._comparing:
            try:
                has_changed = self._has_new_rules(self._database)
            except (apsw.Error, StoreError):
                return float("inf")
        if has_changed:
            self._wake(topic)
        return 0.0

    def _has_new_rules(self, database: Path) -> bool:
        if self._connection is None:
            if self._closing.is_set():
                raise StoreUnavailable("the store was closed; open a new one")
            self._connection = connect_reader(database)
            self._connection.set_busy_timeout(0)
        previous, self._rules_version = self._rules_version, value(self._connection, "meta.get", key=RULES_VERSION)
        return previous != self._rules_version

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        self._watch()
        return super().follow(topic, callback)

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        self._watch()
        await super().wait(topic, seen, timeout)

    async def listen(self) -> None:
        descriptor = _inotify_on(self._folder)
        if descriptor is None:
            return await super().listen()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._hear, descriptor)
        with self._lock:
            self._attended += 1
        try:
            return await super().listen()
        finally:
            loop.remove_reader(descriptor)
            with self._lock:
                self._attended -= 1
            os.close(descriptor)
            if not self._closing.is_set() and self._is_awaited():
                self._watch()

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            if self._descriptor is not None:
                os.eventfd_write(self._end, 1)  # touching a file would wake all other processes too
        if self._thread is not None:
            self._thread.join(timeout=2)
        with self._comparing:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        super().close()

    def _watch(self) -> None:
        """Start the watcher thread with the first call, unless an event loop watches the files."""
        with self._lock:
            if self._attended:
                return
            if self._thread is None:
                self._ready = threading.Event()
                self._thread = threading.Thread(target=self._run, name="ade-hints", daemon=True)
                self._thread.start()
        self._ready.wait(timeout=2)

    def _run(self) -> None:
        try:
            descriptor, end = _inotify_on(self._folder), _eventfd()
        except BaseException:
            self._ready.set()  # `_watch` must not wait for it
            raise
        if descriptor is None or end is None:
            _close(descriptor, end)
            self._poll()
            return
        self._end, self._descriptor = end, descriptor
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.register(end, select.POLLIN)
            self._ready.set()
            while not self._closing.is_set():
                ready = [each for each, _ in poller.poll(5000)]
                if end in ready:
                    os.eventfd_read(end)  # a forked process shares the eventfd, and might have set it
                if descriptor in ready:
                    self._hear(descriptor)
        finally:
            with self._lock:
                self._descriptor = None
            _close(descriptor, end)

    def _hear(self, descriptor: int) -> None:
        for name in _names_in(_read(descriptor)):
            if name in self._topics:
                self._wake(name)

    def _poll(self) -> None:
        seen = self._times()
        self._ready.set()
        while not self._closing.is_set():
            time.sleep(_POLL_S)
            current = self._times()
            for topic in TOPICS:
                if current[topic] != seen[topic]:
                    self._wake(topic)
            seen = current

    def _times(self) -> dict[str, int]:
        return {topic: _touched(file) for topic, file in self._files.items()}


def _touched(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _libc() -> Any:
    import ctypes  # 1 ms and 250 KiB, needed only for waiting

    return ctypes.CDLL(None, use_errno=True)


def _inotify_on(path: Path) -> int | None:
    """Return an inotify descriptor for the files of a directory; None where there is no inotify."""
    try:
        descriptor = int(_libc().inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if _libc().inotify_add_watch(descriptor, os.fsencode(path), _IN_ATTRIB) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _eventfd() -> int | None:
    """Return an eventfd to wake a thread of this process; None if unsupported or out of descriptors."""
    try:
        return os.eventfd(0)
    except (OSError, AttributeError):
        return None


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def _read(descriptor: int) -> bytes:
    """Read the pending events; empty if another thread has already read them."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def _names_in(data: bytes) -> set[str]:
    """Return the file names in a buffer of inotify events. Events without a name (overflows) stand for all topics."""
    names, position = set[str](), 0
    while position < len(data):
        _, _, _, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        name = data[position : position + length].rstrip(b"\0").decode(errors="replace")
        names.update([name] if name else TOPICS)
        position += length
    return names
