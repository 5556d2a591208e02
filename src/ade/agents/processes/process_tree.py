"""Finds and kills all processes that a program has started, even outside its process group.

Every process of a run has a mark in its environment. The supervisor (see `supervisor`) does not need marks, because it
is the subreaper of all of them. Marks serve to find processes whose supervisor was killed. All of this reads /proc. On
systems other than Linux nothing is found, and a run is only its process group.
"""

import os
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

MARK = "ADE_AGENT_RUN"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessSnapshot(NamedTuple):
    """A process at one moment; the start time distinguishes it from a later one with the same PID."""

    pid: int
    started: int  # clock ticks since boot


def inspect_process(pid: int) -> tuple[ProcessSnapshot, int, str] | None:
    """Return the process, its parent's PID, and its state; None if it does not exist."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat.rpartition(b")")[2].split()  # the program's name before it can contain any characters
    return ProcessSnapshot(pid, int(fields[19])), int(fields[1]), fields[0].decode()


def descendants(pid: int) -> list[ProcessSnapshot]:
    """Return all descendants of this process, nearest first, including zombies.

    Processes that start or exit in the meantime can be missed. To kill all of them, call this repeatedly.
    """
    children = _children_of if _kernel_lists_children() else _family_tree()
    found: dict[ProcessSnapshot, None] = {}  # insertion-ordered set
    parents = [pid]
    while parents:
        looks = [
            look for parent in parents for child in children(parent) if (look := inspect_process(child)) is not None
        ]
        new = [process for process, _, _ in looks if process not in found]
        found.update(dict.fromkeys(new))
        parents = [process.pid for process in new]
    return list(found)


def send(process: ProcessSnapshot, number: signal.Signals) -> bool:
    """Send a signal to exactly this process, never to a later one with its PID. False if it is gone or not ours."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        look = inspect_process(process.pid)
        if look is None or look[0] != process or look[2] == "Z":
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def resident(pids: list[int]) -> int:
    """Return the memory of these processes in bytes, with shared pages counted repeatedly. Fast."""
    return sum(int(statm.split()[1]) * _PAGE for pid in pids if (statm := _read(f"/proc/{pid}/statm")))


def proportional(pids: list[int]) -> int:
    """Return the same with shared pages counted once (PSS). Slow in the kernel."""
    total = 0
    for pid in pids:
        rollup = _read(f"/proc/{pid}/smaps_rollup")
        if b"\nPss:" in rollup:
            total += int(rollup.split(b"\nPss:", 1)[1].split(None, 1)[0]) * 1024
        else:
            total += resident([pid])
    return total


def new_mark() -> str:
    """Return a unique mark for one run, which names this process."""
    me = inspect_process(os.getpid())
    started = me[0].started if me is not None else 0
    return f"{_namespace()}-{os.getpid()}-{started}-{os.urandom(8).hex()}"


def end_marked(mark: str) -> int:
    """Kill every process with this mark, until none is found. Returns their number."""
    return _end_all(lambda found: found == mark)


def end_abandoned() -> int:
    """At startup, kill processes of runs whose supervisor and worker process were both killed.

    Runs of live processes, and those of other containers, are not affected.
    """
    return _end_all(_is_abandoned)


def _end_all(is_meant: Callable[[str], bool]) -> int:
    ended: set[ProcessSnapshot] = set()
    while new := [process for process, mark in _marked() if process not in ended and is_meant(mark)]:
        for process in new:
            send(process, signal.SIGKILL)
        ended.update(new)
    return len(ended)


def _marked() -> Iterator[tuple[ProcessSnapshot, str]]:
    key = MARK.encode() + b"="
    for pid in _pids():
        marks = [entry for entry in _read(f"/proc/{pid}/environ").split(b"\0") if entry.startswith(key)]
        if marks and pid != os.getpid() and (look := inspect_process(pid)) is not None:
            yield look[0], marks[0][len(key) :].decode("ascii", "replace")


def _is_abandoned(mark: str) -> bool:
    place, *numbers = mark.split("-")
    if place != _namespace() or len(numbers) != 3 or not (numbers[0].isdecimal() and numbers[1].isdecimal()):
        return False
    look = inspect_process(int(numbers[0]))
    return look is None or look[2] == "Z" or look[0].started != int(numbers[1])


def _namespace() -> str:
    """Return the PID namespace, because PIDs are only meaningful within it."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116  # pathlib is large
    except OSError:
        return "0"


def _kernel_lists_children() -> bool:
    me = os.getpid()
    return os.path.exists(f"/proc/{me}/task/{me}/children")  # noqa: PTH110  # pathlib is large


def _children_of(pid: int) -> list[int]:
    """Children are listed under the thread that started them."""
    children: list[int] = []
    for thread in _numbers_in(f"/proc/{pid}/task"):
        children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _family_tree() -> Callable[[int], list[int]]:
    """Return the same for kernels that do not list children: by each process's parent."""
    tree: dict[int, list[int]] = {}
    for pid in _pids():
        if (look := inspect_process(pid)) is not None:
            tree.setdefault(look[1], []).append(pid)
    return lambda pid: tree.get(pid, [])


def _pids() -> list[int]:
    return _numbers_in("/proc")


def _numbers_in(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208  # pathlib is large
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Return the whole file; empty if the process is gone or belongs to another user."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # pathlib is large
            return file.read()
    except OSError:
        return b""
