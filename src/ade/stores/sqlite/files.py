"""Files of a store on disk: their paths, file system checks, the disk space reserve, and checks around writes."""

import os
import re
from pathlib import Path

from msgspec import Struct

from ade.errors import InvalidUrl, StoreMissing, StoreReadOnly, StoreUnsupported

_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "ocfs2",
        "gfs2",
        "davfs",
        "ncpfs",
        "beegfs",
    ]
)
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # an escaped space, tab, newline, or backslash in a mount point


class DatabaseFiles(Struct, frozen=True):
    """The database file and the files and directories next to it."""

    path: Path

    @property
    def ballast(self) -> Path:
        return self.path.with_name(self.path.name + ".ballast")

    @property
    def blobs(self) -> Path:
        return self.path.with_name(self.path.name + ".blobs")

    @property
    def wakeups(self) -> Path:
        path = self.path.resolve()  # processes that open the file through a link notify each other too
        return path.with_name(path.name + ".hints")

    @property
    def wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")


def place_of(url: str) -> DatabaseFiles | None:
    """Parse a store URL: sqlite:///relative/file.db, sqlite:////absolute/file.db; None for memory://.

    Raises InvalidUrl.
    """
    if url == "memory://":
        return None
    prefix = "sqlite:///"
    rest = url.removeprefix(prefix)
    if not url.startswith(prefix) or not rest or "?" in rest or "\0" in rest:
        raise InvalidUrl(f"store URL {url!r} is not supported: use sqlite:///path/to/file.db or memory://")
    return DatabaseFiles(Path(rest).expanduser().absolute())


def audit_file(url: str) -> Path | None:
    """Return the audit file of a store; None for memory://."""
    place = place_of(url)
    return None if place is None else place.path.with_name(f"{place.path.stem}.audit.db")


def check_may_create(place: DatabaseFiles, audit: Path | None) -> None:
    """Raise StoreMissing if the database is missing or empty, and files next to it show that there was one."""
    if _has_contents(place.path):
        return
    log = (place.path.with_name(f"{place.path.name}{end}") for end in ("-wal", "-shm"))
    files = [*log, place.wakeups, place.blobs, place.ballast, *([] if audit is None else [audit])]
    found = [file.name for file in files if file.exists()]
    if found and not _has_contents(place.path):  # again: another process might be creating it
        raise StoreMissing(
            f"{place.path} is missing or empty, but {', '.join(found)} next to it belong to a store that was there. No"
            " process creates such a store again: restore the database or its newest backup. To start with an empty"
            " store, move these files away first"
        )


def _has_contents(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # opening it raises the proper error


def prepare(place: DatabaseFiles, *, allow_network: bool) -> bool:
    """Create the directory and check it. Returns True if it is on a network file system and that is allowed."""
    try:
        make_folder(place.path.parent)
    except OSError as error:
        raise StoreReadOnly(f"cannot make the folder of {place.path}: {error.strerror}") from error
    if place.path.is_dir():
        raise StoreUnsupported(f"{place.path} is a folder; name a file for the database")
    kind = file_system_of(place.path.parent, _read_mounts())
    remote = kind in _NETWORK or kind.startswith("fuse")
    if remote and not allow_network:
        raise StoreUnsupported(
            f"{place.path} is on a network file system ({kind}), where locks and syncs cannot be trusted. Choose a"
            " local disk, or set store.allow_network_fs if you accept slower writes and the risk"
        )
    if not os.access(place.path.parent, os.W_OK) or (place.path.exists() and not os.access(place.path, os.W_OK)):
        raise StoreReadOnly(f"{place.path} or its folder cannot be written. Check owner, mode and mount")
    return remote


def make_folder(folder: Path) -> None:
    """Create a directory and its parents durably: synced files are lost if the name of their directory is not."""
    missing = [path for path in folder.parents if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder, *missing):
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a directory, so that the names in it survive a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # owned by another user, so it existed before
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: the mounts are unknown


def file_system_of(folder: Path, mounts: str) -> str:
    """Return the file system type of a directory, given the mountinfo text; '' if unknown."""
    target = str(folder.resolve())
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        mount = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


def free_bytes(folder: Path) -> int:
    """Return the bytes of the disk that are free for this user."""
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize


def free_percent(folder: Path) -> float:
    """Return the percentage of the disk that is free for this user."""
    usage = os.statvfs(folder)
    return 100.0 * usage.f_bavail / max(usage.f_blocks, 1)


def ensure_ballast(place: DatabaseFiles, megabytes: int) -> bool:
    """Reserve space that is released when the disk is full, so that results of running tasks can still be written.

    The ballast is created only if the same amount stays free. Returns whether it exists.
    """
    size = megabytes << 20
    try:
        if size == 0 or place.ballast.exists():
            return size > 0
        if free_bytes(place.path.parent) < 2 * size:
            return False
        descriptor = os.open(place.ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError:
        place.ballast.unlink(missing_ok=True)  # the disk was filled meanwhile
        return False
    return True


def drop_ballast(place: DatabaseFiles) -> bool:
    """Delete the ballast to free its space. Returns False if there was none."""
    try:
        place.ballast.unlink()
    except OSError:
        return False
    return True
