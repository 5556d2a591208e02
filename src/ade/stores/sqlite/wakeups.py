"""Wake-ups between threads and processes: files next to the database, touched by the sender, watched with inotify."""

import asyncio
import os
import select
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ade.stores.ports import WORK
from ade.stores.wakeups import RARE, TOPICS, LocalWakeups

_IN_ATTRIB, _IN_IGNORED, _IN_NONBLOCK, _IN_CLOEXEC = 0x4, 0x8000, 0x800, 0x80000
_EVENT = struct.Struct("iIII")
_POLL_S = 0.05  # polling interval without inotify
_COMMIT_S = 0.8  # a write whose wake-up was sent before its commit is committed by then


class FileWakeups(LocalWakeups):
    """Wake-ups across all processes that use one database file.

    The watcher thread starts with the first wait. A worker has none: its event loop watches the files itself, which
    saves a thread switch. Programs that only enqueue follow the rare topic, and their thread watches nothing else until
    another topic is awaited.
    """

    def __init__(self, folder: Path, *, is_remote: bool = False) -> None:
        super().__init__()
        self._folder = folder
        self._pid = os.getpid()
        self._is_remote = is_remote  # inotify does not report changes by other hosts
        self._files = {topic: folder / topic for topic in TOPICS}
        folder.mkdir(exist_ok=True)
        for file in self._files.values():
            with suppress(FileExistsError):  # touching an existing file would wake all processes
                file.touch(exist_ok=False)
        self._thread: threading.Thread | None = None
        self._watches_all = False
        self._descriptor: int | None = None  # of the watcher thread
        self._attended: list[int] = []  # descriptors of event loops in `listen`
        self._is_watch_lost = False
        self._ring_again_at = float("inf")
        self._end = -1  # eventfd that wakes the watcher thread
        self._closing = threading.Event()

    def ring(self, topic: str) -> None:
        self._wake(topic)
        try:
            os.utime(self._files[topic])
        except OSError:  # the file or the directory was removed
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
                self._files[topic].touch()
            self._wake(topic)

    def lag_s(self, topic: str) -> float:
        """Return 0: pending kernel events are read now, whatever the thread or the loop is doing.

        A process sends a RULES wake-up before and after its commit. If it is killed in between, only the first one
        arrives, and it might be too early. So the wake-up is repeated here once the commit must be done.
        """
        self._watch(topic)
        with self._lock:
            descriptor = self._attended[0] if self._attended else self._descriptor
            is_forked = os.getpid() != self._pid  # the events are for the process that opened the store
            events = b""
            while descriptor is not None and not is_forked and (more := _read(descriptor)):
                events += more
        self._take(events)
        if descriptor is None or is_forked or self._is_watch_lost or self._is_remote:
            return float("inf")
        if time.monotonic() >= self._ring_again_at:
            self._ring_again_at = float("inf")
            self._wake(RARE)
        return 0.0

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        self._watch(topic)
        return super().follow(topic, callback)

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        self._watch(topic)
        await super().wait(topic, seen, timeout)

    async def listen(self) -> None:
        descriptor = _inotify_on(self._folder)
        if descriptor is None:
            return await super().listen()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._hear, descriptor)
        with self._lock:
            self._attended.append(descriptor)
        self._wake(RARE)  # a wake-up might have been missed while nothing was watched
        try:
            return await super().listen()
        finally:
            loop.remove_reader(descriptor)
            with self._lock:
                self._attended.remove(descriptor)
            os.close(descriptor)
            if not self._closing.is_set() and self._is_awaited():
                self._watch(WORK)

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            if self._descriptor is not None:
                os.eventfd_write(self._end, 1)  # touching a file would wake all other processes too
        if self._thread is not None:
            self._thread.join(timeout=2)
        super().close()

    def _watch(self, topic: str) -> None:
        """Watch this topic from now on. The first call starts the watcher thread."""
        with self._lock:
            if self._attended:
                return
            is_more = topic != RARE and not self._watches_all
            self._watches_all = self._watches_all or is_more
            if self._thread is None:
                self._ready, is_more = threading.Event(), False
                first = self._folder if self._watches_all else self._files[RARE]
                self._thread = threading.Thread(target=self._run, args=(first,), name="ade-hints", daemon=True)
                self._thread.start()
        self._ready.wait(timeout=2)
        if not is_more:
            return
        with self._lock:
            if self._descriptor is None:
                return  # the thread polls all files, or it is closed
            self._watches_all = _add_watch(self._descriptor, self._folder)
        if self._watches_all:  # otherwise the next waiter retries
            for each in TOPICS:
                self._wake(each)  # a wake-up might have been missed until now

    def _run(self, first: Path) -> None:
        try:
            descriptor, end = _inotify_on(first), _bell()
        except BaseException:
            self._ready.set()  # `_watch` must not wait for it
            raise
        if descriptor is None or end is None:
            _close(descriptor, end)
            self._poll()
            return
        self._end, self._descriptor = end, descriptor
        self._wake(RARE)  # a wake-up might have been missed while nothing was watched
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
        self._take(_read(descriptor))

    def _take(self, events: bytes) -> None:
        names, is_watch_lost = _names_in(events)
        self._is_watch_lost = self._is_watch_lost or is_watch_lost
        if RARE in names:
            self._ring_again_at = time.monotonic() + _COMMIT_S
        for name in names:
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
    """Return an inotify descriptor for a file or the files of a directory; None where there is no inotify."""
    try:
        descriptor = int(_libc().inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if not _add_watch(descriptor, path):
        os.close(descriptor)
        return None
    return descriptor


def _bell() -> int | None:
    """Return an eventfd to wake a thread of this process; None if unsupported or out of descriptors."""
    try:
        return os.eventfd(0)
    except (OSError, AttributeError):
        return None


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def _add_watch(descriptor: int, path: Path) -> bool:
    """Watch this path too. Returns False if it does not exist."""
    return int(_libc().inotify_add_watch(descriptor, os.fsencode(path), _IN_ATTRIB)) >= 0


def _read(descriptor: int) -> bytes:
    """Read the pending events; empty if another thread has already read them."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def _names_in(data: bytes) -> tuple[set[str], bool]:
    """Return the file names in a buffer of inotify events, and whether a watched path was removed.

    Events of a file that is watched directly, and queue overflows, carry no name: they count as RARE.
    """
    names, is_watch_lost, position = set(), False, 0
    while position < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        names.add(data[position : position + length].rstrip(b"\0").decode(errors="replace") or RARE)
        is_watch_lost = is_watch_lost or bool(mask & _IN_IGNORED)
        position += length
    return names, is_watch_lost
