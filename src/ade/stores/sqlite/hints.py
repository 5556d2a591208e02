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

from ade.ports import STOP
from ade.stores.wakeups import TOPICS, LocalHints

_IN_ATTRIB, _IN_NONBLOCK, _IN_CLOEXEC = 0x4, 0x800, 0x80000
_EVENT = struct.Struct("iIII")
_POLL_S = 0.05  # where there is no inotify


class FileHints(LocalHints):
    """Wake-ups across all processes that use one database file.

    The watching thread starts with the first wait, so programs that only enqueue have none; nor has a worker, whose
    event loop attends to the file itself and hears of it a change of threads earlier.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._files = {topic: folder / topic for topic in TOPICS}
        folder.mkdir(exist_ok=True)
        for file in self._files.values():
            file.touch(exist_ok=True)
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._attending = 0

    def ring(self, topic: str) -> None:
        self._wake(topic)
        try:
            os.utime(self._files[topic])
        except OSError:  # somebody removed the folder: others find out by their slow poll
            self._wake(topic)

    def follow(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        self._watch()
        return super().follow(topic, callback)

    async def wait(self, topic: str, seen: int, timeout: float) -> None:
        self._watch()
        await super().wait(topic, seen, timeout)

    async def attend(self) -> None:
        descriptor = _inotify_on(self._folder)
        if descriptor is None:
            return await super().attend()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._hear, descriptor)
        self._attending += 1
        try:
            return await super().attend()
        finally:
            self._attending -= 1
            loop.remove_reader(descriptor)
            os.close(descriptor)
            if not self._closing.is_set() and self._is_awaited():
                self._watch()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            with suppress(OSError):
                os.utime(self._files[STOP])  # makes the watcher look up
                self._thread.join(timeout=2)
        super().close()

    def _watch(self) -> None:
        with self._lock:
            if self._thread is not None or self._attending:
                return
            self._thread = threading.Thread(target=self._run, name="ade-hints", daemon=True)
            ready = threading.Event()
            self._ready = ready
            self._thread.start()
        ready.wait(timeout=2)

    def _run(self) -> None:
        descriptor = _inotify_on(self._folder)
        if descriptor is None:
            self._poll()
            return
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            self._ready.set()
            while not self._closing.is_set():
                if poller.poll(5000):
                    self._hear(descriptor)
        finally:
            os.close(descriptor)

    def _hear(self, descriptor: int) -> None:
        for name in _names_in(os.read(descriptor, 65536)):
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


def _inotify_on(folder: Path) -> int | None:
    """A descriptor that tells of touched files in the folder, or None where there is no inotify."""
    import ctypes  # slow to load, and only those who wait need it

    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if library.inotify_add_watch(descriptor, os.fsencode(folder), _IN_ATTRIB) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _names_in(data: bytes) -> set[str]:
    """The file names in a buffer of inotify events."""
    names, position = set(), 0
    while position < len(data):
        _, _, _, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        names.add(data[position : position + length].rstrip(b"\0").decode(errors="replace"))
        position += length
    return names
