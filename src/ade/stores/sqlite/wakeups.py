"""Wake-ups between threads and processes: a touched file beside the database, seen through inotify."""

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
_POLL_S = 0.05  # where there is no inotify
_COMMIT_S = 0.8  # a write that was rung for before its commit is committed by then


class FileWakeups(LocalWakeups):
    """Wake-ups across all processes that use one database file.

    The watching thread starts with the first wait. A worker has none: its event loop attends to the files itself and
    hears of them a change of threads earlier. Programs that only enqueue follow what is rare, and their thread watches
    nothing else until somebody waits for more.
    """

    def __init__(self, folder: Path, *, is_remote: bool = False) -> None:
        super().__init__()
        self._folder = folder
        self._is_remote = is_remote  # inotify does not report what other hosts do
        self._files = {topic: folder / topic for topic in TOPICS}
        folder.mkdir(exist_ok=True)
        for file in self._files.values():
            with suppress(FileExistsError):  # to touch that one would ring for everybody
                file.touch(exist_ok=False)
        self._thread: threading.Thread | None = None
        self._watches_all = False
        self._descriptor: int | None = None  # of the thread
        self._attended: list[int] = []  # the descriptors of loops that attend
        self._is_watch_lost = False
        self._ring_again_at = float("inf")
        self._end = -1  # makes the thread look up
        self._closing = threading.Event()

    def ring(self, topic: str) -> None:
        self._wake(topic)
        try:
            os.utime(self._files[topic])
        except OSError:  # somebody removed the folder: others find out by their slow poll
            self._wake(topic)

    def lag_s(self, topic: str) -> float:
        """Zero: the events that the kernel has queued are read now, whatever the thread or the loop is doing.

        A process rings for changed rules before the commit and after it. If it is killed in between, only the first
        ring is heard, and it may be too early. So a ring is repeated here once the commit must be over.
        """
        self._watch(topic)
        with self._lock:
            descriptor = self._attended[0] if self._attended else self._descriptor
            events = b"" if descriptor is None else _read(descriptor)
        self._take(events)
        if descriptor is None or self._is_watch_lost or self._is_remote:
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
        self._wake(RARE)  # it may have been rung since something was watched last
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
                os.eventfd_write(self._end, 1)  # a touched file would be heard by all other processes too
        if self._thread is not None:
            self._thread.join(timeout=2)
        super().close()

    def _watch(self, topic: str) -> None:
        """Hear of this topic from now on. The first time that is by the thread which this starts."""
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
                return  # all are looked at in turn, or it is closed
            self._watches_all = _add_watch(self._descriptor, self._folder)
        if self._watches_all:  # otherwise the next who waits tries again
            for each in TOPICS:
                self._wake(each)  # by somebody who was not heard until now, perhaps

    def _run(self, first: Path) -> None:
        try:
            descriptor, end = _inotify_on(first), _bell()
        except BaseException:
            self._ready.set()  # nobody shall wait for it
            raise
        if descriptor is None or end is None:
            _close(descriptor, end)
            self._poll()
            return
        self._end, self._descriptor = end, descriptor
        self._wake(RARE)  # it may have been rung since something was watched last
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.register(end, select.POLLIN)
            self._ready.set()
            while not self._closing.is_set():
                ready = [each for each, _ in poller.poll(5000)]
                if end in ready:
                    os.eventfd_read(end)  # also what a forked process meant for a thread that it has not
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
    import ctypes  # 1 ms and 250 KiB, needed only to wait

    return ctypes.CDLL(None, use_errno=True)


def _inotify_on(path: Path) -> int | None:
    """A descriptor that tells when this file or one in this folder is touched, or None where there is no inotify."""
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
    """A descriptor to wake a thread of this process by; None where there are no more, or none of this kind."""
    try:
        return os.eventfd(0)
    except (OSError, AttributeError):
        return None


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def _add_watch(descriptor: int, path: Path) -> bool:
    """Let it tell of this too; False if there is no such path."""
    return int(_libc().inotify_add_watch(descriptor, os.fsencode(path), _IN_ATTRIB)) >= 0


def _read(descriptor: int) -> bytes:
    """The events that are there; another thread may have been faster."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def _names_in(data: bytes) -> tuple[set[str], bool]:
    """The file names in a buffer of inotify events, and whether something is no longer watched because it is gone.

    Of the one file that is watched by itself they name none, and of events that were too many.
    """
    names, is_watch_lost, position = set(), False, 0
    while position < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        names.add(data[position : position + length].rstrip(b"\0").decode(errors="replace") or RARE)
        is_watch_lost = is_watch_lost or bool(mask & _IN_IGNORED)
        position += length
    return names, is_watch_lost
