"""The files of a run: its transcript, what its program printed, and its working directory. Trouble with them is logged
and never the run's: what counts is in the store."""

import hashlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ade.agents.runs import messages
from ade.agents.runs.spec import DirectoryPolicy
from ade.logs import Log

MOST_RAW_BYTES = 16 * 1024 * 1024
_OWNER_ONLY = 0o600
_LONGEST_NAME = 100
_MOST_USERS = 200
_MOST_LOOKED_AT = 100_000  # entries of one folder
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
log = Log("ade.agents")


class StaleRunDirectory(NamedTuple):
    folder: Path
    name: str  # of a task, a conversation, or as runs have named it
    users: tuple[str, ...]  # ids of tasks


class RunFiles:
    """Where the files of all runs lie, each task's in a folder of its own."""

    def __init__(self, transcripts: Path, workspaces: Path) -> None:
        self._transcripts = transcripts.absolute()
        self._workspaces = workspaces.absolute()

    def transcript(self, task_id: str, attempt: int, run_id: str) -> "Transcript":
        """One for each run, so that no attempt writes into the file of another."""
        return Transcript(self._transcripts / safe_name(task_id) / f"{attempt}-{safe_name(run_id)[:13]}.log")

    def workspace(self, name: str, task_id: str) -> tuple[Path, DirectoryPolicy]:
        """All attempts of a task share one, and all tasks that name it: agents find their sessions by it. Blocks.

        Beside it a file tells its name and who has used it; a folder without one is not ADE's.
        """
        folder = self._workspaces / safe_name(name)
        users = _users_of(folder)
        known = users.read_text().splitlines()[1:] if users.is_file() else []
        if task_id not in known:
            _write(users, [name, *known[-_MOST_USERS:], task_id])
        return folder, DirectoryPolicy.KEPT

    def old_folders(self, older_than_s: float) -> list["StaleRunDirectory"]:
        """Folders in which nothing was written for so long, however deep. Blocks."""
        before = time.time() - older_than_s
        found = [StaleRunDirectory(folder, folder.name, (folder.name,)) for folder in _folders(self._transcripts)]
        for folder in _folders(self._workspaces):
            users = _users_of(folder)
            if users.is_file():
                name, *tasks = users.read_text().splitlines() or [folder.name]
                found.append(StaleRunDirectory(folder, name, tuple(tasks)))
        return [one for one in found if _is_older(one.folder, before)]

    def remove(self, old: "StaleRunDirectory") -> None:
        """Blocks."""
        shutil.rmtree(old.folder, ignore_errors=True)
        _users_of(old.folder).unlink(missing_ok=True)


class Transcript:
    """The transcript of a run, and beside it (`.out`) what the program printed, up to a bound."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw_left = MOST_RAW_BYTES
        self._raw_path = path.with_suffix(".out")

    def start(self, description: str, subagent_type: str) -> None:
        self.add(messages.transcript_start(description, subagent_type))

    def succeed(self, head: str, report: str) -> None:
        self.add(messages.transcript_success(head, report))

    def fail(self, message: str) -> None:
        self.add(messages.transcript_failure(message))

    def add(self, text: str) -> None:
        self._append(self.path, text.encode("utf-8", "replace"))

    def raw(self, data: bytes) -> None:
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
    """A name of a folder that stays where it belongs, whatever the text, and is no other text's."""
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
    except OSError as error:  # then the folder stays
        log.warning("workspace.not_noted", path=str(path), error=str(error))


def _folders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_older(folder: Path, before: float) -> bool:
    """Whether nothing in it was written since. One that is too large to be looked through is taken for younger."""
    seen, left = 0, [folder]
    try:
        while left:
            place = left.pop()
            if place.stat().st_mtime >= before:
                return False
            with os.scandir(place) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_LOOKED_AT or entry.stat(follow_symlinks=False).st_mtime >= before:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
    except OSError:
        return False
    return True
