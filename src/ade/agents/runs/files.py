"""The files of a run: transcript, raw program output, and working directory.

File errors are logged and never fail the run, because the authoritative data is in the store.
"""

import hashlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ade.agents.runs.messages import one_line
from ade.agents.runs.spec import DirectoryPolicy
from ade.logs import Log

MOST_RAW_BYTES = 16 * 1024 * 1024
_OWNER_ONLY = 0o600
_LONGEST_NAME = 100
_MOST_USERS = 200
_MOST_LOOKED_AT = 100_000  # entries of one directory
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
log = Log("ade.agents")


class StaleRunDirectory(NamedTuple):
    """A directory of runs that can be removed."""

    folder: Path
    name: str  # of a task, of a conversation, or chosen by runs
    users: tuple[str, ...]  # task IDs


class RunFiles:
    """Locates the files of all runs, with one directory per task."""

    def __init__(self, transcripts: Path, workspaces: Path) -> None:
        self._transcripts = transcripts.absolute()
        self._workspaces = workspaces.absolute()

    def transcript(self, task_id: str, attempt: int, run_id: str) -> "Transcript":
        """Return the transcript of one run, so that attempts never share a file."""
        return Transcript(self._transcripts / safe_name(task_id) / f"{attempt}-{safe_name(run_id)[:13]}.log")

    def workspace(self, name: str, task_id: str) -> tuple[Path, DirectoryPolicy]:
        """Return a directory shared by all attempts of a task, and by all tasks that name it. Blocks.

        Agents find their sessions by it. A file next to it stores its name and users; ADE owns no directory without
        one.
        """
        folder = self._workspaces / safe_name(name)
        users = _users_of(folder)
        known = users.read_text().splitlines()[1:] if users.is_file() else []
        if task_id not in known:
            _write(users, [name, *known[-_MOST_USERS:], task_id])
        return folder, DirectoryPolicy.KEPT

    def old_folders(self, older_than_s: float) -> list["StaleRunDirectory"]:
        """Return directories without a write for this long, at any depth. Blocks."""
        before = time.time() - older_than_s
        found = [StaleRunDirectory(folder, folder.name, (folder.name,)) for folder in _folders(self._transcripts)]
        for folder in _folders(self._workspaces):
            users = _users_of(folder)
            if users.is_file():
                name, *tasks = users.read_text().splitlines() or [folder.name]
                found.append(StaleRunDirectory(folder, name, tuple(tasks)))
        return [one for one in found if _is_older(one.folder, before)]

    def remove(self, old: "StaleRunDirectory") -> None:
        """Remove the directory and its user list. Blocks."""
        shutil.rmtree(old.folder, ignore_errors=True)
        _users_of(old.folder).unlink(missing_ok=True)


class Transcript:
    """The transcript of a run, with the raw program output next to it (`.out`), up to a limit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw_left = MOST_RAW_BYTES
        self._raw_path = path.with_suffix(".out")

    def start(self, description: str, subagent_type: str) -> None:
        """Write the first lines."""
        self.add(f"[Task started: {one_line(description)}]\n[subagent_type: {one_line(subagent_type)}]\n\n")

    def succeed(self, head: str, report: str) -> None:
        """Write the end of a successful run."""
        self.add(f"{head}\n\n{report}\n\n[Task completed]\n")

    def fail(self, message: str) -> None:
        """Write the end of a failed run."""
        self.add(f"[error] {message}\n\n[Task failed]\n")

    def add(self, text: str) -> None:
        self._append(self.path, text.encode("utf-8", "replace"))

    def raw(self, data: bytes) -> None:
        """Append raw program output, up to the limit."""
        if self._raw_left <= 0:
            return
        cut = data[: self._raw_left]
        self._raw_left -= len(data)
        mark = b"\n[... cut here: there is no room for more ...]\n" if self._raw_left <= 0 else b""
        self._append(self._raw_path, cut + mark)

    def _append(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, _OWNER_ONLY)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("transcript.not_written", path=str(path), error=str(error))


def safe_name(text: str) -> str:
    """Return a unique directory name that cannot leave its parent directory, for any text."""
    safe = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST_NAME]
    if safe == text:
        return safe
    return f"{safe}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _users_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.users")


def _write(path: Path, lines: list[str]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:  # the directory is kept
        log.warning("workspace.users_not_written", path=str(path), error=str(error))


def _folders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_older(folder: Path, before: float) -> bool:
    """Return whether nothing in it was written since. One with too many entries to inspect counts as newer."""
    count, left = 0, [folder]
    try:
        while left:
            place = left.pop()
            if place.stat().st_mtime >= before:
                return False
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if count > _MOST_LOOKED_AT or entry.stat(follow_symlinks=False).st_mtime >= before:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
    except OSError:
        return False
    return True
