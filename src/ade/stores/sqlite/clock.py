"""Time. Leases are judged on a clock that never jumps and that every process on this machine shares."""

import time
from pathlib import Path

import apsw

from ade.stores.sqlite.connection import run, value

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Which boot of the machine this is; the monotonic clock starts anew with each."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # not Linux: the time of the boot, to ten minutes, tells boots apart well enough
        return f"about-{int(time.time() - time.monotonic()) // 600}"


class MachineClock:
    """Wall time for records; for leases the machine's monotonic time plus an offset kept in the database.

    The offset is set once per boot, so a wall clock that is put right (or wrong) moves no lease.
    """

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def drift_ms(self) -> int:
        """How far the wall clock has moved away from the steady one since the boot's first use."""
        return self.now() - self.steady()


def cached_offset(connection: apsw.Connection) -> int | None:
    """The offset of this boot if it is settled."""
    if value(connection, "meta.get", key="boot_id") != boot_id():
        return None
    return int(value(connection, "meta.get", key="steady_offset_ms"))


def settle_offset(connection: apsw.Connection) -> int:
    """The offset of this boot. After a reboot steady time goes on from where it can have been at most."""
    boot = boot_id()
    if value(connection, "meta.get", key="boot_id") != boot:
        wall = time.time_ns() // 1_000_000
        latest = value(connection, "meta.latest_lease") or 0
        offset = max(wall, latest) - time.monotonic_ns() // 1_000_000
        run(connection, "meta.set", key="boot_id", value=boot)
        run(connection, "meta.set", key="steady_offset_ms", value=str(offset))
    return int(value(connection, "meta.get", key="steady_offset_ms"))
