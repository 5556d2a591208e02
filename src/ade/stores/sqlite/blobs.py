"""BlobStore on SQLite: large arguments and results in files next to the database.

A blob is durable before the record that refers to it is written.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ade.errors import StoreCorrupt
from ade.stores.sqlite.connection import translating
from ade.stores.sqlite.files import make_folder, sync_folder

ThreadResult = TypeVar("ThreadResult")


class ThreadRunner(Protocol):
    """Runs a blocking function: in a thread, or directly where there is no event loop to block."""

    async def __call__(self, function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult: ...


async def in_thread(function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult:
    """Run a blocking function in a thread, so that the event loop does not wait."""
    import asyncio  # read-only commands do not need asyncio, and start in half the time without it

    return await asyncio.to_thread(function, *args)


async def at_once(function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult:
    """Run a blocking function directly, in the thread of the caller."""
    return function(*args)


_REF = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[A-Za-z0-9_-]+)+")
_UNFINISHED = ".part"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteBlobs:
    """Blobs named `<task id>.<part>`. They are kept in memory when there is no directory."""

    def __init__(
        self,
        folder: Path | None,
        aside: ThreadRunner = in_thread,
        now: Callable[[], int] = _wall_ms,
        *,
        is_shared: bool = False,
    ) -> None:
        self._folder = folder
        self._aside = aside  # runs the file operations
        self._now = now
        self._is_shared = is_shared  # other databases can store their blobs in the same directory
        self._memory: dict[str, tuple[bytes, int]] = {}  # content, and when it was stored
        self._made: set[Path] = set()

    async def put_blob(self, ref: str, content: bytes) -> None:
        _check(ref)
        if self._folder is None:
            self._memory[ref] = content, self._now()
        else:
            await self._aside(self._write, self._path(ref), content, self._now())

    async def get_blob(self, ref: str) -> bytes:
        _check(ref)
        if self._folder is None:
            if ref not in self._memory:
                raise StoreCorrupt(f"blob {ref} is missing")
            return self._memory[ref][0]
        return await self._aside(self._read, self._path(ref))

    async def remove_refs(self, refs: Sequence[str]) -> None:
        """Remove single blobs that no record refers to."""
        for ref in refs:
            _check(ref)
            self._memory.pop(ref, None)
        if self._folder is not None and refs:
            await self._aside(self._unlink, [self._path(ref) for ref in refs])

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of deleted tasks."""
        if self._folder is None:
            gone = set(task_ids)
            self._memory = {ref: blob for ref, blob in self._memory.items() if ref.partition(".")[0] not in gone}
        elif self._folder.exists():
            await self._aside(self._remove, task_ids)

    async def put_before(self, moment: int) -> list[str]:
        """List the blobs stored before this moment, including partly written ones. Empty for a shared directory."""
        if self._folder is None:
            return [ref for ref, (_, put_at) in self._memory.items() if put_at < moment]
        return [] if self._is_shared else await self._aside(self._old, moment)

    async def remove_if_old(self, refs: Sequence[str], moment: int) -> None:
        """Remove those of these blobs that were not stored again since the moment."""
        if self._folder is None:
            old = set(await self.put_before(moment))
            await self.remove_refs([ref for ref in refs if ref in old])
        else:
            await self._aside(self._unlink_old, [self._path(ref) for ref in refs], moment)

    def copy_to(self, folder: Path) -> None:
        """Copy every blob. Blobs of tasks that are pruned during the copy might be missing."""
        if self._folder is None or not self._folder.exists():
            return
        import shutil  # large to import, and only a backup needs it

        with translating(str(folder)):
            for path in self._folder.glob("??/*"):
                if not path.name.endswith(_UNFINISHED):
                    copied = folder / path.parent.name / path.name
                    copied.parent.mkdir(parents=True, exist_ok=True)
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path, copied)

    def _path(self, ref: str) -> Path:
        assert self._folder is not None
        return self._folder / ref[34:36] / ref  # the last digits of the task ID spread the files evenly

    def _old(self, moment: int) -> list[str]:
        assert self._folder is not None
        files = (path for path in self._folder.glob("??/*") if _REF.fullmatch(path.name))
        return [path.name for path in files if _is_old(path, moment)]

    def _write(self, path: Path, content: bytes, now: int) -> None:
        """Write a blob atomically: digest and content into a temporary file, which is then renamed."""
        with translating(str(path)):
            self._make_folder_of(path)
            own = os.urandom(4).hex()  # two writers can write the same blob concurrently
            unfinished = path.with_name(f"{path.name}.{own}{_UNFINISHED}")
            try:
                _write_synced(unfinished, content, now)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)  # do not waste space on a disk that might be full
                raise
            sync_folder(path.parent)

    def _make_folder_of(self, path: Path) -> None:
        """Create and sync the directory of a blob, once. The creator of an existing one might not have synced it."""
        if path.parent not in self._made or not path.parent.exists():
            make_folder(path.parent.parent)
            make_folder(path.parent)
            self._made.add(path.parent)

    def _read(self, path: Path) -> bytes:
        with translating(str(path)):
            try:
                stored = path.read_bytes()
            except FileNotFoundError:
                raise StoreCorrupt(f"blob {path.name} is missing; restore it from the newest backup") from None
        digest, content = stored[:32], stored[32:]
        if hashlib.sha256(content).digest() != digest:
            raise StoreCorrupt(f"blob {path.name} does not match its digest; restore it from the newest backup")
        return content

    @staticmethod
    def _unlink_old(paths: Sequence[Path], moment: int) -> None:
        for path in paths:
            if _is_old(path, moment):
                path.unlink(missing_ok=True)

    @staticmethod
    def _unlink(paths: Sequence[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def _remove(self, task_ids: Sequence[str]) -> None:
        assert self._folder is not None
        for task_id in task_ids:
            for path in (self._folder / task_id[-2:]).glob(f"{task_id}.*"):
                path.unlink(missing_ok=True)


def is_ref_of(task_id: str, ref: object) -> bool:
    """Return whether this is the name of a blob of this task. A record from before could contain any other text."""
    return isinstance(ref, str) and ref.startswith(f"{task_id}.") and _REF.fullmatch(ref) is not None


def is_unfinished(ref: str) -> bool:
    """Return whether this is the name of a partly written file."""
    return ref.endswith(_UNFINISHED)


def _is_old(path: Path, moment: int) -> bool:
    try:
        return path.stat().st_mtime_ns < moment * 1_000_000
    except FileNotFoundError:
        return False


def _write_synced(path: Path, content: bytes, now: int) -> None:
    with path.open("wb") as file:
        file.write(hashlib.sha256(content).digest())
        file.write(content)
        file.flush()
        os.utime(file.fileno(), ns=(now * 1_000_000, now * 1_000_000))  # blob ages follow the clock of the store
        os.fsync(file.fileno())


def _check(ref: str) -> None:
    """Reject names that ADE did not create: they could point outside the blob directory."""
    if not _REF.fullmatch(ref):
        raise StoreCorrupt(f"{ref[:80]!r} is not the name of a blob")
