"""Signs of life for keepers, from a thread of their own: an event loop that is blocked is no dead worker."""

import socket
import threading
from collections.abc import Callable

from ade.agents.keeper import BEAT

EVERY_S = 1.0
SHORTEST_SILENCE_S = 5.0  # a few beats may be late on a machine that is busy


class _Beats:
    def __init__(self) -> None:
        self._lines: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._has_lines = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, line: socket.socket) -> Callable[[], None]:
        """Beat on this line until what is answered is called."""
        own = line.dup()
        own.setblocking(False)
        with self._lock:
            self._lines[id(own)] = own
            self._has_lines.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ade-agent-beats", daemon=True)
                self._thread.start()
        return lambda: self._end(own)

    def _end(self, own: socket.socket) -> None:
        with self._lock:
            self._drop(own)

    def _drop(self, own: socket.socket) -> None:
        self._lines.pop(id(own), None)
        own.close()
        if not self._lines:
            self._has_lines.clear()

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            self._has_lines.wait()
            with self._lock:
                for own in tuple(self._lines.values()):
                    try:
                        own.send(BEAT)
                    except BlockingIOError:
                        pass  # the keeper is very busy, and has enough to read
                    except OSError:
                        self._drop(own)  # the keeper is gone
            pause.wait(EVERY_S)


begin = _Beats().begin
