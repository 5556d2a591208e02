"""Where the database lies: its companions on disk, and whether the place can be trusted."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ade.core.errors import InvalidUrl, StoreReadOnly, StoreUnsupported

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
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space, tab, newline or backslash in a mount point


@dataclass(frozen=True, slots=True)
class Place:
    """The database file and what lies beside it."""

    path: Path

    @property
    def ballast(self) -> Path:
        return self.path.with_name(self.path.name + ".ballast")

    @property
    def blobs(self) -> Path:
        return self.path.with_name(self.path.name + ".blobs")

    @property
    def hints(self) -> Path:
        return self.path.with_name(self.path.name + ".hints")

    @property
    def wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")


def place_of(url: str) -> Place | None:
    """The place a URL names: sqlite:///relative/file.db, sqlite:////absolute/file.db; None for memory://."""
    if url == "memory://":
        return None
    prefix = "sqlite:///"
    rest = url.removeprefix(prefix)
    if not url.startswith(prefix) or not rest or "?" in rest or "\0" in rest:
        raise InvalidUrl(f"store URL {url!r} is not known: use sqlite:///path/to/file.db or memory://")
    return Place(Path(rest).expanduser().absolute())


def prepare(place: Place, *, allow_network: bool) -> bool:
    """Make the folder and check the place; True when it lies on a network file system (and that was allowed)."""
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
            f"{place.path} lies on a network file system ({kind}), where locks and syncs cannot be trusted. Choose a"
            " local disk, or set store.allow_network_fs if you accept slower writes and the risk"
        )
    if not os.access(place.path.parent, os.W_OK) or (place.path.exists() and not os.access(place.path, os.W_OK)):
        raise StoreReadOnly(f"{place.path} or its folder cannot be written. Check owner, mode and mount")
    return remote


def make_folder(folder: Path) -> None:
    """Make the folder, and those above it, to stay: what is synced in a folder is lost with the folder's own name."""
    missing = [path for path in folder.parents if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder, *missing):
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlast a power cut."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # it is not ours, so it was there before us
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: nothing to go by


def file_system_of(folder: Path, mounts: str) -> str:
    """The type of the file system that holds the folder, from a mountinfo text; '' when unknown."""
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


def _free_bytes(folder: Path) -> int:
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize


def free_percent(folder: Path) -> float:
    """How much of the disk is still free for us."""
    usage = os.statvfs(folder)
    return 100.0 * usage.f_bavail / max(usage.f_blocks, 1)


def ensure_ballast(place: Place, megabytes: int) -> bool:
    """Keep some space that can be given up when the disk is full, so that finished work can still be written.

    Only where as much again stays free: a ballast that fills the disk would be of no use. True when it is there.
    """
    size = megabytes << 20
    try:
        if size == 0 or place.ballast.exists():
            return size > 0
        if _free_bytes(place.path.parent) < 2 * size:
            return False
        descriptor = os.open(place.ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError:
        place.ballast.unlink(missing_ok=True)  # somebody was faster in filling the disk
        return False
    return True


def drop_ballast(place: Place) -> bool:
    """Give the ballast up; False when there was none left."""
    try:
        place.ballast.unlink()
    except OSError:
        return False
    return True
