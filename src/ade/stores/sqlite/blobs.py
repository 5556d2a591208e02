"""Large arguments and results lie in files beside the database, written durably before the record names them."""

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

# Where blocking calls are made: in a thread, so that no event loop waits, or at once where there is no loop.


ThreadResult = TypeVar("ThreadResult")


class ThreadRunner(Protocol):
    async def __call__(self, function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult: ...


async def in_thread(function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult:
    import asyncio  # a command that only looks at the store does without it, and starts in half the time

    return await asyncio.to_thread(function, *args)


async def at_once(function: Callable[..., ThreadResult], /, *args: Any) -> ThreadResult:
    return function(*args)


_REF = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[A-Za-z0-9_-]+)+")
_UNFINISHED = ".part"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteBlobs:
    """Blobs named `<task id>.<what>`; in memory when there is no folder."""

    def __init__(
        self,
        folder: Path | None,
        aside: ThreadRunner = in_thread,
        now: Callable[[], int] = _wall_ms,
        *,
        is_shared: bool = False,
    ) -> None:
        self._folder = folder
        self._aside = aside  # where the files are touched
        self._now = now
        self._is_shared = is_shared  # other databases may keep theirs in the folder too
        self._memory: dict[str, tuple[bytes, int]] = {}  # content, and when it was put
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
        """Remove single blobs that no record names any more."""
        for ref in refs:
            _check(ref)
            self._memory.pop(ref, None)
        if self._folder is not None and refs:
            await self._aside(self._unlink, [self._path(ref) for ref in refs])

    async def remove_blobs(self, task_ids: Sequence[str]) -> None:
        """Remove all blobs of tasks that are gone."""
        if self._folder is None:
            gone = set(task_ids)
            self._memory = {ref: blob for ref, blob in self._memory.items() if ref.partition(".")[0] not in gone}
        elif self._folder.exists():
            await self._aside(self._remove, task_ids)

    async def put_before(self, moment: int) -> list[str]:
        """Names of the blobs, also of half-written ones, that were put before this. Of a shared folder: none."""
        if self._folder is None:
            return [ref for ref, (_, put_at) in self._memory.items() if put_at < moment]
        return [] if self._is_shared else await self._aside(self._old, moment)

    async def remove_if_old(self, refs: Sequence[str], moment: int) -> None:
        """Remove those of these blobs that nobody has put again since the moment."""
        if self._folder is None:
            old = set(await self.put_before(moment))
            await self.remove_refs([ref for ref in refs if ref in old])
        else:
            await self._aside(self._unlink_old, [self._path(ref) for ref in refs], moment)

    def copy_to(self, folder: Path) -> None:
        """Copy every blob; those of tasks that are pruned meanwhile may be missing."""
        if self._folder is None or not self._folder.exists():
            return
        import shutil  # large, and only a backup needs it

        with translating(str(folder)):
            for path in self._folder.glob("??/*"):
                if not path.name.endswith(_UNFINISHED):
                    copied = folder / path.parent.name / path.name
                    copied.parent.mkdir(parents=True, exist_ok=True)
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path, copied)

    def _path(self, ref: str) -> Path:
        assert self._folder is not None
        return self._folder / ref[34:36] / ref  # the last digits of the task id spread the files

    def _old(self, moment: int) -> list[str]:
        assert self._folder is not None
        files = (path for path in self._folder.glob("??/*") if _REF.fullmatch(path.name))
        return [path.name for path in files if _is_old(path, moment)]

    def _write(self, path: Path, content: bytes, now: int) -> None:
        """Whole or not at all: digest first, then the content, then its name."""
        with translating(str(path)):
            self._make_folder_of(path)
            own = os.urandom(4).hex()  # two may write one blob at once
            unfinished = path.with_name(f"{path.name}.{own}{_UNFINISHED}")
            try:
                _write_synced(unfinished, content, now)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)  # on a full disk it is the last thing that is wanted
                raise
            sync_folder(path.parent)

    def _make_folder_of(self, path: Path) -> None:
        """Once for each folder, even if it is there: who made it may not have synced it yet."""
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


def is_unfinished(ref: str) -> bool:
    """Whether this is the name of a file that was never written to its end."""
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
        os.utime(file.fileno(), ns=(now * 1_000_000, now * 1_000_000))  # its age is told by the store's clock
        os.fsync(file.fileno())


def _check(ref: str) -> None:
    """A name made by us leads into our folder; any other might lead anywhere."""
    if not _REF.fullmatch(ref):
        raise StoreCorrupt(f"{ref[:80]!r} is not the name of a blob")
