"""How worker processes start and stop: the supervisor of several processes, signals, draining, and the event loop."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from ade.logs import Log
from ade.worker.backend import WorkerOptions
from ade.worker.executor import RunExecutor
from ade.worker.run import StopReason
from ade.worker.state import WorkerState
from ade.worker.threads import DaemonThreadExecutor
from ade.worker.watchdog import die_with_parent

SUPERVISOR = "ADE_SUPERVISOR_PID"
RESTARTED = "ADE_RESTARTED"
_MOST_RESTARTS, _WINDOW_S = 10, 60.0
_EXIT_GAVE_UP = 3
supervisor_log = Log("ade.supervisor")


class RestartLimiter:
    """Detects when processes die too fast for restarts to help."""

    def __init__(self, most: int = _MOST_RESTARTS, window_s: float = _WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._restarts: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Record a restart; False if there were too many in the window."""
        while self._restarts and self._restarts[0] <= now - self._window_s:
            self._restarts.popleft()
        self._restarts.append(now)
        return len(self._restarts) <= self._most


class Supervisor:
    """Starts several processes of a command, restarts those that die, and stops them together."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        guard: RestartLimiter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._count = count
        self._guard = guard or RestartLimiter()
        self._clock = clock
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop_asked = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> int:
        """Run until a signal arrives or the processes die too often. Returns the exit code."""
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
        """Signal the processes to stop; a second call makes them hurry."""
        self._stop_asked.set()
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def _keep(self, number: int) -> None:
        environment = {**os.environ, SUPERVISOR: str(os.getpid())}
        while not self._stop_asked.is_set():
            # In its own session, the process receives Ctrl-C once and not twice.
            process = await asyncio.create_subprocess_exec(*self._command, start_new_session=True, env=environment)
            environment[RESTARTED] = "1"
            self._running[number] = process
            supervisor_log.info("process.started", number=number, pid=process.pid)
            if self._stop_asked.is_set():
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
            if self._stop_asked.is_set():
                return
            supervisor_log.warning("process.died", number=number, pid=process.pid, exit_code=code)
            if not self._guard.allows(self._clock()):
                supervisor_log.error("supervisor.gave_up", restarts=_MOST_RESTARTS, seconds=_WINDOW_S)
                self.exit_code = _EXIT_GAVE_UP
                self.stop()


def supervise(command: Sequence[str], count: int) -> int:
    """Run `count` processes of this command until told to stop. Returns the exit code."""
    return asyncio.run(Supervisor(command, count).run())


def is_restarted() -> bool:
    """Return whether this process takes the place of one that died, so that its store must exist already."""
    return RESTARTED in os.environ


def die_with_supervisor() -> None:
    """Have this worker process stop and return its tasks when its supervisor is killed."""
    pid = os.environ.pop(SUPERVISOR, None)
    if pid is not None:
        die_with_parent(int(pid), by=signal.SIGTERM)


# Graceful shutdown: stop claiming, let runs finish, return unfinished tasks to the queue, and report them.


_COMMIT_PATIENCE_S = 10.0  # for the last commits, if the store is unavailable
log = Log("ade.worker")


class StopSignals:
    """`stop` is set by the first signal, `hurry` by the second."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def ask(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT inside the block."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


class Handover(Struct, frozen=True, kw_only=True):
    """What became of the work a stopping worker held."""

    handed_back: tuple[str, ...] = ()  # task IDs: unfinished, returned without counting an attempt
    left_behind: tuple[str, ...] = ()  # task IDs: the store was unreachable; their leases will expire


async def drain(runs: RunExecutor, state: WorkerState, options: WorkerOptions, hurry: asyncio.Event) -> None:
    """Drain the worker. On return no run is held, or the store could not be reached."""
    if state.held:
        log.info("worker.draining", running=len(state.held), grace_s=options.grace_s)
    await _emptied(state, options.grace_s, hurry)
    runs.stop_all(StopReason.SHUTDOWN)
    await _emptied(state, options.cancel_grace_s, hurry)
    runs.detach_all()
    await _emptied(state, _COMMIT_PATIENCE_S, None)


async def _emptied(state: WorkerState, seconds: float, hurry: asyncio.Event | None) -> None:
    """Wait until no run is held, for at most `seconds`, or until `hurry` is set."""
    if not state.held:
        return
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(state.emptied())]
    if hurry is not None:
        waiting.append(asyncio.ensure_future(hurry.wait()))
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for job in waiting:
        job.cancel()


# Start of a worker process: the fastest available event loop, signal handlers, and tuned garbage collection.


T = TypeVar("T")
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # for `asyncio.to_thread`; Python's default size
_COLLECT_EVERY = 10_000  # new objects; Python's default of 700 is reached too quickly here
_SWITCH_S = 0.0005  # how long a store thread waits for the interpreter next to a busy loop; the default is 5 ms


def serve(main: Callable[[StopSignals], Coroutine[Any, Any, T]]) -> T:
    """Run a worker's main coroutine in this process; SIGTERM and SIGINT stop it, a second signal makes it hurry."""
    die_with_supervisor()
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 20, 50)

    async def caught() -> T:
        asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor(_THREADS))
        signals = StopSignals()
        with signals.caught():
            return await main(signals)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(caught())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return None
    return uvloop.new_event_loop
