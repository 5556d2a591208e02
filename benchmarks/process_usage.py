"""CPU time and memory of a process and its children, from Linux's /proc."""

from pathlib import Path

PROC = Path("/proc")


def cpu_seconds(pid: int) -> float:
    """CPU time so far; from schedstat, whose nanoseconds show loads that clock ticks of 10 ms hide."""
    total = 0
    for member in _family(pid):
        for thread in (PROC / str(member) / "task").glob("*/schedstat"):
            total += int(_read(thread).split(" ")[0] or 0)
    return total / 1e9


def resident_megabytes(pid: int) -> float:
    pages = sum(int(_read(PROC / str(member) / "statm").split()[1]) for member in _family(pid))
    return pages * 4096 / 1e6


def _family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        fields = _read(stat).rpartition(")")[2].split()  # the name before it may hold spaces
        if fields:
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, []))
    return family


def _read(file: Path) -> str:
    """The file's text, or nothing when its process or thread has just ended."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
