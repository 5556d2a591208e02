"""Finding and ending what a program has started, wherever it went.

Every process of a run carries a mark in its environment. Its keeper (see `keeper`) needs no marks: it is the nearest
reaper of all of them. They are for what is left when the keeper itself was killed. All this reads /proc, so elsewhere
than on Linux nothing is found, and a run is its process group alone.
"""

import os
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

MARK = "ADE_AGENT_RUN"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessSnapshot(NamedTuple):
    """A process as it was found; the time of its start tells it from a later one with the same number."""

    pid: int
    started: int  # in clock ticks since the machine was started


def inspect_process(pid: int) -> tuple[ProcessSnapshot, int, str] | None:
    """The process, its parent's number and its state; None if there is none."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat.rpartition(b")")[2].split()  # before it is the program's name, which may hold anything
    return ProcessSnapshot(pid, int(fields[19])), int(fields[1]), fields[0].decode()


def descendants(pid: int) -> list[ProcessSnapshot]:
    """The children of this process, theirs and so on, nearest first. One that is dead and not yet reaped is among them.

    What is started or ended meanwhile may be missed, so who wants an end to all of them looks again.
    """
    children = _children_of if _kernel_lists_children() else _family_tree()
    found: dict[ProcessSnapshot, None] = {}  # in order
    parents = [pid]
    while parents:
        looks = [
            look for parent in parents for child in children(parent) if (look := inspect_process(child)) is not None
        ]
        new = [seen for seen, _, _ in looks if seen not in found]
        found.update(dict.fromkeys(new))
        parents = [seen.pid for seen in new]
    return list(found)


def send(seen: ProcessSnapshot, number: signal.Signals) -> bool:
    """Signal this very process, and never another that has its number now. False if it is gone or not ours."""
    try:
        handle = os.pidfd_open(seen.pid)
    except OSError:
        return False
    try:
        look = inspect_process(seen.pid)
        if look is None or look[0] != seen or look[2] == "Z":
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def resident(pids: list[int]) -> int:
    """The memory of these processes in bytes, what they share counted each time. Quick."""
    return sum(int(statm.split()[1]) * _PAGE for pid in pids if (statm := _read(f"/proc/{pid}/statm")))


def proportional(pids: list[int]) -> int:
    """The same with what they share counted once. Takes the kernel a while."""
    total = 0
    for pid in pids:
        rollup = _read(f"/proc/{pid}/smaps_rollup")
        if b"\nPss:" in rollup:
            total += int(rollup.split(b"\nPss:", 1)[1].split(None, 1)[0]) * 1024
        else:
            total += resident([pid])
    return total


def new_mark() -> str:
    """A mark for one run of this process: where it belongs to, and what no other run has."""
    me = inspect_process(os.getpid())
    started = me[0].started if me is not None else 0
    return f"{_namespace()}-{os.getpid()}-{started}-{os.urandom(8).hex()}"


def end_marked(mark: str) -> int:
    """Kill every process with this mark, until a look finds none. Answers how many it were."""
    return _end_all(lambda found: found == mark)


def end_abandoned() -> int:
    """Kill what runs have left whose keeper was killed together with the process that wanted them. For a start-up.

    Runs of living processes are left alone, and so are those that belong to another container.
    """
    return _end_all(_is_abandoned)


def _end_all(is_meant: Callable[[str], bool]) -> int:
    ended: set[ProcessSnapshot] = set()
    while new := [seen for seen, mark in _marked() if seen not in ended and is_meant(mark)]:
        for seen in new:
            send(seen, signal.SIGKILL)
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
    """Numbers of processes mean something within it only."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116  # pathlib is large
    except OSError:
        return "0"


def _kernel_lists_children() -> bool:
    me = os.getpid()
    return os.path.exists(f"/proc/{me}/task/{me}/children")  # noqa: PTH110  # pathlib is large


def _children_of(pid: int) -> list[int]:
    """Children belong to the thread that has started them."""
    children: list[int] = []
    for thread in _numbers_in(f"/proc/{pid}/task"):
        children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _family_tree() -> Callable[[int], list[int]]:
    """The same for kernels that do not list children: who has which parent."""
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
    """All of it; nothing if the process is gone or somebody else's."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # pathlib is large
            return file.read()
    except OSError:
        return b""
