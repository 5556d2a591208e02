"""Programs that an agent's run may meet: each function is one, run as `python unruly.py NAME ARGUMENTS`."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

SIGNALS_ONE_CAN_IGNORE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def stay() -> NoReturn:
    while True:
        signal.pause()


def stubborn() -> None:
    """Ends for nothing but SIGKILL."""
    for number in SIGNALS_ONE_CAN_IGNORE:
        signal.signal(number, signal.SIG_IGN)
    say(pid=os.getpid())
    stay()


def polite() -> None:
    """Has last words."""

    def leave(*_: object) -> None:
        os.write(1, b"bye\n")
        os._exit(7)

    signal.signal(signal.SIGTERM, leave)
    say(pid=os.getpid())
    stay()


def asleep() -> None:
    """Stopped, as by Ctrl-Z, before anything is said."""
    pid = os.getpid()
    if os.fork() == 0:
        while b") T " not in Path(f"/proc/{pid}/stat").read_bytes():
            os.sched_yield()
        say(pid=pid)
        os._exit(0)
    os.kill(pid, signal.SIGSTOP)


def family(then: str, runaway: str) -> None:
    """Has a grandchild that left the group, heeds no signal and, as a runaway, has no mark in its environment."""
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)  # so that the grandchild has lost its parent
        environment = {} if runaway == "unmarked" else dict(os.environ)
        os.execve(sys.executable, [sys.executable, __file__, "grandchild", str(tell)], environment)
    os.close(tell)
    os.wait()
    say(pid=os.getpid(), parent=os.getppid(), grandchild=int(os.read(told, 100)))
    if then == "stay":
        stay()


def grandchild(tell: str) -> None:
    for number in SIGNALS_ONE_CAN_IGNORE:
        signal.signal(number, signal.SIG_IGN)
    os.write(int(tell), str(os.getpid()).encode())
    stay()


def orphans(count: str) -> None:
    """Leaves children behind that end at once; says how many of them somebody has reaped."""
    told, tell = os.pipe()
    for _ in range(int(count)):
        if os.fork() == 0:
            if os.fork() == 0:
                os.write(tell, b"%d\n" % os.getpid())
            os._exit(0)
        os.wait()
    os.close(tell)
    pids = [int(line) for line in os.fdopen(told).read().split()]
    give_up_at = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < give_up_at:
        os.sched_yield()
    say(reaped=[not Path(f"/proc/{pid}").exists() for pid in pids])


def flood(megabytes: str) -> None:
    say(pid=os.getpid())
    piece = (b"x" * 99 + b"\n") * 10_000
    for _ in range(int(megabytes)):
        sys.stdout.buffer.write(piece)


def hog(megabytes: str, children: str) -> None:
    """Needs so much memory in all, each child its part of it."""
    for _ in range(int(children) - 1):
        if os.fork() == 0:
            break
    _memory = os.urandom(1024) * (int(megabytes) * 1024 // int(children))
    stay()


def shared(megabytes: str, children: str) -> None:
    """Needs so much memory once, though each child has it."""
    memory = os.urandom(1024) * (int(megabytes) * 1024)
    told, tell = os.pipe()
    for _ in range(int(children)):
        if os.fork() == 0:
            assert all(memory[place] is not None for place in range(0, len(memory), 4096))
            os.write(tell, b"%d\n" % os.getpid())
            stay()
    said = b""
    while said.count(b"\n") < int(children):
        said += os.read(told, 1000)
    say(pid=os.getpid(), children=[int(line) for line in said.split()])
    stay()


def deaf() -> None:
    """Does not read what it is given."""
    os.close(0)
    say(done=True)


def partly(*pieces: str) -> None:
    """Prints piece by piece, the next when somebody has read the last."""
    for piece in pieces:
        os.write(1, piece.encode())
        sys.stdin.readline()


def surroundings() -> None:
    inherited = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]  # noqa: PTH208
    say(environment=dict(os.environ), cwd=str(Path.cwd()), descriptors=inherited, session=os.getsid(0))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
