"""Several worker processes under one supervisor: started, started again when they die, ended together."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence

from ade.logs import Log
from ade.worker.kinship import die_with_parent

SUPERVISOR = "ADE_SUPERVISOR_PID"
_MOST_RESTARTS, _WINDOW_S = 10, 60.0
_EXIT_GAVE_UP = 3
log = Log("ade.supervisor")


class RestartGuard:
    """Tells when processes die faster than restarting them can help."""

    def __init__(self, most: int = _MOST_RESTARTS, window_s: float = _WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._restarts: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Note a restart; False when there were too many in the window."""
        while self._restarts and self._restarts[0] <= now - self._window_s:
            self._restarts.popleft()
        self._restarts.append(now)
        return len(self._restarts) <= self._most


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        count: int,
        guard: RestartGuard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._count = count
        self._guard = guard or RestartGuard()
        self._clock = clock
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop_asked = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> int:
        """Until a signal ends it, or the processes die too often. Answers the exit code."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            await asyncio.gather(*(self._keep(number) for number in range(self._count)))
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
        return self.exit_code

    def stop(self) -> None:
        """Pass the wish to stop on; a second one makes the processes hurry."""
        self._stop_asked.set()
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def _keep(self, number: int) -> None:
        while not self._stop_asked.is_set():
            # In a session of its own, a Ctrl-C reaches the process once and not twice.
            process = await asyncio.create_subprocess_exec(
                *self._command, start_new_session=True, env={**os.environ, SUPERVISOR: str(os.getpid())}
            )
            self._running[number] = process
            log.info("process.started", number=number, pid=process.pid)
            if self._stop_asked.is_set():
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
            if self._stop_asked.is_set():
                return
            log.warning("process.died", number=number, pid=process.pid, exit_code=code)
            if not self._guard.allows(self._clock()):
                log.error("supervisor.gave_up", restarts=_MOST_RESTARTS, seconds=_WINDOW_S)
                self.exit_code = _EXIT_GAVE_UP
                self.stop()


def supervise(command: Sequence[str], count: int) -> int:
    """Run `count` processes of this command until told to stop. Answers the exit code."""
    return asyncio.run(Supervisor(command, count).run())


def die_with_supervisor() -> None:
    """Called by each worker process: when its supervisor is killed it is told to stop, and hands its work back."""
    pid = os.environ.pop(SUPERVISOR, None)
    if pid is not None:
        die_with_parent(int(pid), by=signal.SIGTERM)
