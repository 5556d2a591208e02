"""The identity of a database's files: whether they are still those that were opened, and how to save lost ones.

A removed or replaced file is noticed by its inode, and an overwritten one by the ID in its `meta` table. No check opens
a file: closing any descriptor of a file releases all POSIX locks that the process has on it, also those of SQLite.
"""

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import apsw

from ade.errors import StoreReplaced, StoreTooNew, StoreTooOld
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.files import DatabaseFiles
from ade.stores.sqlite.schema import check_version, schema_version

STORE_ID = "store_id"  # in the table `meta`: a random name of the store, which backups keep
FILE = "file"  # in the table `meta`: the inode of the file, to recognize a copy
LOG_MISSING = "log_missing_at"  # in the table `meta`: when a database that came without its log was first opened
CHECK_EVERY_S = 0.5
_ID_IN_PAGE = re.compile(rb"store_id([0-9a-f]{32})")
_SHARED_LOCK, _SHM_LOCK = 1_073_741_826, 128  # first bytes of SQLite's locks on the database and the -shm file
_SETTLE_S = 2.0  # processes that open or close the database meanwhile hold only some of its locks

Inode = tuple[int, int]  # device, inode


def inode_of(path: str) -> Inode | None:
    """Return device and inode of a file; None if it is missing or inaccessible."""
    try:
        status = os.stat(path)  # noqa: PTH116  # faster than a Path, and called for every commit
    except OSError:
        return None
    return status.st_dev, status.st_ino


class FileIdentity:
    """The files of one open store. Threads share it; only single assignments, so no lock is needed."""

    def __init__(self, place: DatabaseFiles) -> None:
        path = os.path.realpath(place.path)  # SQLite names the other files after the file that a link refers to
        self._shown = str(place.path)
        self._path = path
        self._wal_path, self._shm_path = f"{path}-wal", f"{path}-shm"
        self.database: Inode | None = None
        self._wal: Inode | None = None  # None without a write-ahead log
        self._shm: Inode | None = None
        self._connections = 0
        self._meta_page = (0, 0)  # offset and size of the page with the ID
        self.trouble: StoreReplaced | StoreTooNew | StoreTooOld | None = None  # what `look` found
        self._has_saved_log = False
        self.store_id = ""
        self.is_new_file = False  # the file was created, copied, or never recorded before

    # Opening

    def note_opened(self, connection: apsw.Connection) -> None:
        """Record the files of a new connection. Raises StoreReplaced if they are not those of the other connections."""
        if self.database is not None:
            self.check()
            if value(connection, "meta.get", key=STORE_ID) != self.store_id:
                raise self._replaced("was replaced while in use", can_save=False)
        if self._connections == 0:  # the last connection of all processes removes the log
            has_log = connection.pragma("journal_mode") == "wal"
            self.database = inode_of(self._path)
            self._wal = inode_of(self._wal_path) if has_log else None
            self._shm = inode_of(self._shm_path) if has_log else None
        self._connections += 1

    def note_closed(self) -> None:
        """Forget the log if no connection is left."""
        self._connections -= 1
        if self._connections == 0:
            self._wal = self._shm = None

    def settle(
        self, connection: apsw.Connection, *, new_id: str, now: int, lost_log: bool = False, has_no_log: bool = False
    ) -> None:
        """Give the store its ID, and record the file that it is in. Runs in a write transaction.

        `has_no_log` and `lost_log` are what `log_state` returned before the store was opened.
        """
        if not value(connection, "meta.get", key=STORE_ID):
            run(connection, "meta.set", key=STORE_ID, value=new_id)
        self.store_id = str(value(connection, "meta.get", key=STORE_ID))
        file = str((inode_of(self._path) or (0, 0))[1])  # some file systems change the device number at every boot
        earlier = value(connection, "meta.get", key=FILE)
        if lost_log or (has_no_log and earlier not in (None, file)):
            run(connection, "meta.set", key=LOG_MISSING, value=str(now))
        if earlier != file:
            run(connection, "meta.set", key=FILE, value=file)
            self.is_new_file = True
        page, size = int(value(connection, "meta.page")), int(str(connection.pragma("page_size")))
        self._meta_page = ((page - 1) * size, size)

    # Checks

    def check(self) -> None:
        """Raise StoreReplaced if a file is not the one that was opened: writes would be lost, or two stores mixed.

        Also raises what `look` has found: StoreReplaced, StoreTooNew, or StoreTooOld.
        """
        self._check_files()
        if self.trouble is not None:
            raise self.trouble

    def _check_files(self) -> None:
        if self.database is None:
            return
        found = inode_of(self._path)
        if found != self.database:
            raise self._replaced("was removed while in use" if found is None else "was replaced while in use")
        if self._wal is not None and inode_of(self._wal_path) != self._wal:
            raise self._log_removed("write-ahead log (-wal)")

    def look(self, connection: apsw.Connection) -> None:
        """Do all checks, and set `trouble` once they are done. Called by the thread of the connection.

        If only the log was removed, the process that still has it open writes its contents into the database.
        """
        try:
            self._check_files()
            self._check_contents(connection)
            with suppress(apsw.Error):
                check_version(schema_version(connection), self._shown)
            self.trouble = None
        except (StoreTooNew, StoreTooOld) as error:  # a newer version has upgraded it, or an older copy was put back
            self.trouble = error
        except StoreReplaced as error:
            self.trouble = error
            if self._is_only_log_missing():
                self._save_log(connection)
                self.trouble = self._log_removed("write-ahead log (-wal)")

    def _check_contents(self, connection: apsw.Connection) -> None:
        """Raise StoreReplaced if the contents of the file were replaced. Reads a page past the cache of SQLite."""
        if self._shm is not None and inode_of(self._shm_path) != self._shm:
            raise self._log_removed("shared memory file (-shm)")
        offset, size = self._meta_page
        if not size:
            return
        with suppress(apsw.Error, OSError):
            is_complete, page = connection.read("main", 0, offset, size)
            if not is_complete and Path(self._path).stat().st_size == 0:
                raise self._replaced("was emptied while in use", can_save=False)
            found = _ID_IN_PAGE.search(page) if is_complete else None
            if found is not None and found[1].decode() != self.store_id:
                raise self._replaced("was overwritten by another store while in use", can_save=False)

    def _is_only_log_missing(self) -> bool:
        if self._wal is None or inode_of(self._wal_path) is not None or inode_of(self._path) != self.database:
            return False
        return inode_of(self._shm_path) in (None, self._shm)

    def _save_log(self, connection: apsw.Connection) -> None:
        """Copy the removed log, which is still open, into the database. Other processes cannot open it meanwhile."""
        with suppress(apsw.Error):
            frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._has_saved_log = frames == copied

    # What to say

    def _log_removed(self, what: str) -> StoreReplaced:
        detail = f"the {what} of {self._shown} was removed or replaced while in use, so nothing more is written."
        if self._has_saved_log:
            return StoreReplaced(
                f"{detail} Everything accepted so far was saved into the database: stop all processes that use it, and"
                " start them again"
            )
        return StoreReplaced(f"{detail} {self._how_to_save()}")

    def _replaced(self, what: str, *, can_save: bool = True) -> StoreReplaced:
        detail = f"{self._shown} {what}, so nothing more is written."
        how = self._how_to_save() if can_save else "Stop all processes, restore the newest backup, and start again"
        return StoreReplaced(f"{detail} {how}")

    def _how_to_save(self) -> str:
        """Return the sentences that say how to copy the files that this process still has open."""
        database, log = self._descriptor(self.database), self._descriptor(self._wal)
        if database is None:
            return "Put the file back, or restore the newest backup, and restart"
        saved = f"{self._path}.saved"
        commands = [f"cp {database} {_quoted(saved)}"]
        if log is not None:
            commands.append(f"cp {log} {_quoted(saved + '-wal')}")
        return (
            f"This process still has all tasks: keep it running, and save them with `{' && '.join(commands)}`."
            f" Then stop all processes, remove {self._path}-wal and {self._path}-shm, move the saved files to"
            f" {self._path} and {self._path}-wal, and start again"
        )

    def _descriptor(self, inode: Inode | None) -> str | None:
        """Return the path in /proc of a file that this process has open; None if there is none, or no Linux."""
        folder = f"/proc/{os.getpid()}/fd"
        paths = (f"{folder}/{name}" for name in sorted(_names_in(folder), key=int))
        return None if inode is None else next((path for path in paths if inode_of(path) == inode), None)


def _quoted(path: str) -> str:
    """Quote a path for a shell. The module `shlex` would slow down commands that only read."""
    return "'" + path.replace("'", "'\\''") + "'"


# Before a store is opened.


def log_state(place: DatabaseFiles) -> dict[str, bool]:
    """Return whether a database has no log, as after a clean end or a plain copy, and whether it lost its log.

    SQLite creates the log before the -shm file and removes it after that, so a -shm file alone shows a loss.
    """
    path = os.path.realpath(place.path)
    shm = inode_of(f"{path}-shm")
    has_no_log = inode_of(path) is not None and inode_of(f"{path}-wal") is None
    return {"has_no_log": has_no_log, "lost_log": has_no_log and shm is not None and inode_of(f"{path}-shm") == shm}


def check_other_processes(place: DatabaseFiles) -> None:
    """Raise StoreReplaced if a process still uses files that were removed or replaced next to this database.

    Opening it then would mix two stores. Every process that uses a database has a lock on it and on its -shm file, and
    both are visible on Linux; elsewhere nothing is checked.
    """
    if sys.platform != "linux":
        return
    deadline = time.monotonic() + _SETTLE_S
    while holders := _holders_of_other_files(place):
        if time.monotonic() > deadline:
            pids = ", ".join(str(pid) for pid in sorted(holders))
            raise StoreReplaced(
                f"files of {place.path} were removed or replaced, and process {pids} still uses the earlier ones. Its"
                " log has the command that saves the tasks it has; then stop it. Nothing was changed"
            )
        time.sleep(0.005)  # a process that opens or closes the database is done soon


def _holders_of_other_files(place: DatabaseFiles) -> set[int]:
    """Return the processes whose locks fit a state with missing or replaced files."""
    path = os.path.realpath(place.path)
    database, shm, wal = (inode_of(f"{path}{end}") for end in ("", "-shm", "-wal"))
    if database is None:
        return set()
    users = _lock_holders(database[1], _SHARED_LOCK)
    sharers = set() if shm is None else _lock_holders(shm[1], _SHM_LOCK)
    strays = sharers if wal is None and inode_of(f"{path}-wal") is None else sharers - users
    holders = {pid for pid in strays if shm is not None and _may_have(pid, shm)}
    return holders | {pid for pid in users - sharers if _has_removed_log(pid, Path(path).name)}


def _may_have(pid: int, inode: Inode) -> bool:
    """Return whether a process has a file open, and not another one with the same number on another file system."""
    folder = f"/proc/{pid}/fd"
    names = _names_in(folder)
    return not names or any(inode_of(f"{folder}/{name}") == inode for name in names)  # no names: a process of others


def _has_removed_log(pid: int, name: str) -> bool:
    """Return whether a process has the log of a database with this name open, although it was removed.

    A program that reads a copy without a log, or without the permission to write, has a lock on the database alone.
    """
    folder, ends = f"/proc/{pid}/fd", (f"/{name}-wal (deleted)", f"/{name}-shm (deleted)")
    for file in _names_in(folder):
        with suppress(OSError):  # it was closed meanwhile
            if os.readlink(f"{folder}/{file}").endswith(ends):  # noqa: PTH115  # faster than a Path
                return True
    return False


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder; none if it is not accessible."""
    try:
        return os.listdir(folder)  # noqa: PTH208  # plain names
    except OSError:
        return []


def _lock_holders(inode: int, offset: int) -> set[int]:
    """Return the IDs of other processes with a POSIX lock at this place of a file.

    A lock is found by its inode alone: some file systems show another device number there.
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    pids = set()
    for line in lines:
        fields = line.split()
        if len(fields) == 8 and fields[1] == "POSIX" and fields[5].endswith(f":{inode}"):
            first, last = int(fields[6]), sys.maxsize if fields[7] == "EOF" else int(fields[7])
            if first <= offset <= last:
                pids.add(int(fields[4]))
    return pids - {os.getpid(), 0, -1}
