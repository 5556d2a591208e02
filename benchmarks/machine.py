"""What the machine is, and how fast it is at this moment."""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

CPU_STEPS = 400_000
CPU_REPEATS = 3
SYNC_WRITES = 40
BLOCK = b"\0" * 4096
TOLERANCE = 0.25


@dataclass(frozen=True, slots=True)
class Speed:
    """How long a fixed loop and a durable write of one block take, in milliseconds."""

    cpu_ms: float
    sync_ms: float


def probe(folder: Path) -> Speed:
    """Measure both; the loop's best and the write's median, so that one hiccup is not the answer."""
    return Speed(min(_time_loop() for _ in range(CPU_REPEATS)), statistics.median(_time_syncs(folder)))


def _time_loop() -> float:
    began = time.perf_counter()
    total = 0
    for step in range(CPU_STEPS):
        total += step & 7
    return (time.perf_counter() - began) * 1000


def _time_syncs(folder: Path) -> list[float]:
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNC_WRITES):
            began = time.perf_counter()
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return times


def describe() -> dict[str, str]:
    """Processor, cores, kernel and the Python that measures."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "SQLite of Python": sqlite3.sqlite_version,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
