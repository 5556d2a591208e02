"""Looks after the file around writes: is it still ours, is there room, does the disk answer?"""

import time

from ade.core.errors import DiskFull, StoreUnavailable
from ade.stores.sqlite.places import Place, drop_ballast, ensure_ballast, free_percent

_LOOK_EVERY_S = 1.0
_IO_ERRORS_TOLERATED = 3
_READ_ONLY_FOR_S = 10.0


class FileGuard:
    """State shared by the threads that write and the callers of `add`; single assignments only, so no lock."""

    def __init__(self, place: Place, *, min_free_percent: float, ballast_mb: int) -> None:
        self._place = place
        self._min_free = min_free_percent
        self._ballast_mb = ballast_mb
        self._had_ballast = False
        self._identity: tuple[int, int] | None = None
        self._room_looked_at = 0.0
        self._full: str | None = None
        self._io_errors = 0
        self._refuse_until = 0.0

    def settle(self) -> None:
        """Remember which file was opened, and have a reserve."""
        self.check_identity()
        self.ensure_ballast()

    def before_admission(self) -> None:
        """Near the end of the disk new work is refused, so that running work can finish."""
        now = time.monotonic()
        if now - self._room_looked_at > _LOOK_EVERY_S:
            self._room_looked_at = now
            self._full = self._why_full()
        if self._full is not None:
            raise DiskFull(f"{self._full}, so no new task is taken; running tasks may finish. Free some space")

    def _why_full(self) -> str | None:
        free = free_percent(self._place.path.parent)
        if free < self._min_free:
            return f"only {free:.1f} % of the disk is free (store.min_free_percent is {self._min_free})"
        if self._had_ballast and not self.ensure_ballast():
            return "the disk was full and there is not yet room again for the ballast (store.ballast_mb)"
        return None

    def ensure_ballast(self) -> bool:
        """Have a reserve that can be given up; False when there is no room for one."""
        there = ensure_ballast(self._place, self._ballast_mb)
        self._had_ballast = self._had_ballast or there
        return there

    def before_write(self) -> None:
        if time.monotonic() < self._refuse_until:
            raise StoreUnavailable(
                f"{self._place.path} met {self._io_errors} input/output errors in a row; not written for a while"
            )
        self.check_identity()

    def check_identity(self) -> None:
        """A file that was removed or replaced would take our writes with it, or mix two databases."""
        try:
            status = self._place.path.stat()
        except OSError as error:
            raise StoreUnavailable(
                f"{self._place.path} was removed while in use. Put it back (or a backup) and restart"
            ) from error
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            raise StoreUnavailable(f"{self._place.path} was replaced while in use. Restart to use the new file")

    def after_write(self) -> None:
        self._io_errors = 0

    def make_room(self) -> bool:
        self._room_looked_at = 0.0
        return drop_ballast(self._place)

    def note_io_error(self) -> None:
        self._io_errors += 1
        if self._io_errors >= _IO_ERRORS_TOLERATED:
            self._refuse_until = time.monotonic() + _READ_ONLY_FOR_S
