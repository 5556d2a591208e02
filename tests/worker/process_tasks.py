"""Handlers for child processes: they must be found by import."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType

from ade import SyncContext, Unrecoverable
from ade.errors import RunOver


@dataclass
class Point:
    x: int
    y: int


def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


def where_am_i() -> tuple[int, int, str | None]:
    return os.getpid(), os.getppid(), os.environ.get("PYTHONPATH")


def give_up() -> None:
    raise Unrecoverable("no further attempt can succeed")


def use_up_memory() -> None:
    raise MemoryError("out of memory")


def leave(code: int) -> None:
    os._exit(code)


def leave_slowly(code: int) -> None:
    """Its line is closed a moment before it ends, as that of a program that tidies up."""
    os.closerange(3, 1_000)
    time.sleep(0.1)
    os._exit(code)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def return_nonsense() -> int:
    return "nonsense"  # type: ignore[return-value]  # what the handler is for


def wait_for_ever() -> None:
    threading.Event().wait()


def say_and_wait(ctx: SyncContext) -> None:
    """Tells its own process id and that of a process it has started, then waits to be killed."""
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    ctx.progress({"pid": os.getpid(), "child": child.pid})
    threading.Event().wait()


def talk(ctx: SyncContext) -> list[str]:
    ctx.progress(0.5)
    ctx.log("half way", done=1)
    first = ctx.once("effect", _effect, "a")
    second = ctx.once("effect", _effect, "b")
    return [ctx.task_id, str(ctx.attempt), first, second]


def _effect(text: str) -> str:
    return f"effect of {text}"


def fork_and_return(number: int) -> int:
    """The forked process comes out of the handler too, and must not answer."""
    forked = os.fork()
    if forked == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 3
    return number


def same(number: int) -> int:
    return number


def fork_and_die(ctx: SyncContext) -> None:
    """What it leaves behind would keep the line open."""
    forked = os.fork()
    if forked == 0:
        threading.Event().wait()
    ctx.progress({"forked": forked})
    os.kill(os.getpid(), signal.SIGKILL)


def talk_from_threads(ctx: SyncContext) -> int:
    threads = [threading.Thread(target=lambda: [ctx.progress(step) for step in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads)


_kept: list[SyncContext] = []


def keep_context(ctx: SyncContext) -> None:
    _kept.append(ctx)


def use_kept_context() -> str:
    try:
        _kept[-1].progress(1)
    except RunOver as error:
        return error.code
    return "nothing happened"


class Rung(Exception):
    """What a handler's own signal handler raises."""


class Bell:
    """Rings all the time, and raises, once, if it rings in the middle of a message."""

    def __init__(self) -> None:
        self.rings = 0
        self._has_raised = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        self.rings += 1
        while frame is not None and not self._has_raised:
            if frame.f_globals["__name__"] == "ade.worker.messages":
                self._has_raised = True
                raise Rung
            frame = frame.f_back


def talk_while_it_rings(ctx: SyncContext) -> str:
    bell = Bell()
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while bell.rings < 50:
        ctx.progress("x" * 300_000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return "talked"


def talk_while_a_thread_is_rung(ctx: SyncContext) -> None:
    """Signals are given to the thread, and Python interrupts the main one for them."""
    Bell()

    def ring() -> None:
        while True:
            os.kill(os.getpid(), signal.SIGALRM)

    threading.Thread(target=ring, daemon=True).start()
    while True:
        ctx.progress("x" * 300_000)


def lock_and_tell(resource: str, ctx: SyncContext) -> tuple[int, int, int]:
    with ctx.lock(resource) as lock, ctx.lock("db:main") as again:
        return ctx.token("db:main"), lock.token(), again.token()


def die_in_line(resource: str, ctx: SyncContext) -> None:
    """Killed while it waits for a lock that somebody else has, as a process is that uses too much memory."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    with ctx.lock(resource):
        raise AssertionError("it was free")
