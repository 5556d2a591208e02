"""The machine is up again: the store's own code opens what the cut has left, and looks at all of it."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import apsw
from msgspec import Raw

from ade.errors import AdeError
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.codec import read_task
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.files import DatabaseFiles
from ade.stores.sqlite.maintenance import broken_invariants
from ade.tasks.model import Task
from tests.domain import Payloads
from tests.faults.powercut.acknowledgement import TaskState
from tests.faults.powercut.disk import Files


@dataclass(slots=True)
class Recovered:
    """What was found: the tasks, and all that is wrong without knowing what ought to be there."""

    states: dict[str, TaskState] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # payloads that records name and that cannot be read


class Recovery:
    """Lays files out in a folder and opens them, again and again."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self.place = DatabaseFiles(folder / database)
        self.place.path.parent.mkdir(parents=True)
        self._blobs = str(self.place.blobs.relative_to(folder)) + "/"
        self._laid_out: dict[str, bytes] = {}
        self._readable: set[bytes] = set()  # references that were followed since their blob was laid out
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def lay_out(self, files: Files) -> None:
        """Make the folder hold these files. Opening changes the database's own; blobs are often right as they lie."""
        for left in self.place.path.parent.glob(f"{self.place.path.name}*"):
            if left.is_file():
                left.unlink()
        blobs = {path: content for path, content in files.items() if path.startswith(self._blobs)}
        self._lay_out_blobs(blobs)
        for path, content in files.items():
            if path not in blobs:
                (self._folder / path).write_bytes(content)

    def _lay_out_blobs(self, blobs: dict[str, bytes]) -> None:
        changed = {path for path, _ in blobs.items() ^ self._laid_out.items()}
        for path in changed:
            target = self._folder / path
            if path in blobs:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(blobs[path])
            else:
                target.unlink()
        refs = [path.rpartition("/")[2].encode() for path in changed]
        self._readable = {payload for payload in self._readable if not any(ref in payload for ref in refs)}
        self._laid_out = blobs

    def look(self) -> Recovered:
        """Open the database as the store does and read everything in it."""
        found = Recovered()
        tasks: list[Task] = []
        try:
            connection = connect(self.place.path)
            try:
                found.damage += _damage(connection)
                tasks = [read_task(json) for (json,) in connection.execute("SELECT json FROM record")]
            finally:
                connection.close()
        except (AdeError, apsw.Error, ValueError) as error:
            found.damage.append(f"{type(error).__name__}: {error}")
        found.states = {task.id: TaskState.of(task) for task in tasks}
        found.missing = self._runner.run(self._missing_payloads(tasks))
        return found

    async def _missing_payloads(self, tasks: list[Task]) -> list[str]:
        """A record never names a blob that is not there, acknowledged or not."""
        payloads = Payloads(SqliteBlobs(self.place.blobs))
        missing = []
        stored = {bytes(raw) for task in tasks for raw in (task.args, task.result) if raw is not None}
        for payload in stored - self._readable:
            try:
                if bytes(await payloads.load(Raw(payload))) != payload:
                    self._readable.add(payload)
            except AdeError as error:
                missing.append(str(error))
        return missing


def _damage(connection: apsw.Connection) -> list[str]:
    answers = [str(answer) for (answer,) in connection.execute("PRAGMA integrity_check(5)")]
    return [answer for answer in answers if answer != "ok"] + broken_invariants(connection)
