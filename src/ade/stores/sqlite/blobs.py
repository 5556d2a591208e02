"""Large arguments and results lie in files beside the database, written durably before the record names them."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ade.core.errors import StoreCorrupt
from ade.stores.sqlite.connection import translating
from ade.stores.sqlite.places import make_folder, sync_folder
from ade.stores.sqlite.threads import Aside, in_thread

_REF = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}(\.[A-Za-z0-9_-]+)+")


class SqliteBlobs:
    """Blobs named `<task id>.<what>`; in memory when there is no folder."""

    def __init__(self, folder: Path | None, aside: Aside = in_thread) -> None:
        self._folder = folder
        self._aside = aside  # where the files are touched
        self._memory: dict[str, bytes] = {}
        self._made: set[Path] = set()

    async def put_blob(self, ref: str, content: bytes) -> None:
        _check(ref)
        if self._folder is None:
            self._memory[ref] = content
        else:
            await self._aside(self._write, self._path(ref), content)

    async def get_blob(self, ref: str) -> bytes:
        _check(ref)
        if self._folder is None:
            if ref not in self._memory:
                raise StoreCorrupt(f"blob {ref} is missing")
            return self._memory[ref]
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

    def copy_to(self, folder: Path) -> None:
        """Copy every blob; those of tasks that are pruned meanwhile may be missing."""
        if self._folder is None or not self._folder.exists():
            return
        with translating(str(folder)):
            for path in self._folder.glob("??/*"):
                if not path.name.endswith(".part"):
                    copied = folder / path.parent.name / path.name
                    copied.parent.mkdir(parents=True, exist_ok=True)
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path, copied)

    def _path(self, ref: str) -> Path:
        assert self._folder is not None
        return self._folder / ref[34:36] / ref  # the last digits of the task id spread the files

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all: digest first, then the content, then its name."""
        with translating(str(path)):
            self._make_folder_of(path)
            unfinished = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")  # two may write one blob at once
            try:
                _write_synced(unfinished, content)
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
    def _unlink(paths: Sequence[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def _remove(self, task_ids: Sequence[str]) -> None:
        assert self._folder is not None
        for task_id in task_ids:
            for path in (self._folder / task_id[-2:]).glob(f"{task_id}.*"):
                path.unlink(missing_ok=True)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(hashlib.sha256(content).digest())
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _check(ref: str) -> None:
    """A name made by us leads into our folder; any other might lead anywhere."""
    if not _REF.fullmatch(ref):
        raise StoreCorrupt(f"{ref[:80]!r} is not the name of a blob")
