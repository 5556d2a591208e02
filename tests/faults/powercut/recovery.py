"""The machine is up again: the store's own code opens what the cut has left, and looks at all of it."""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from ade.core.errors import AdeError
from ade.core.records import Task
from ade.queue.payloads import Payloads
from ade.stores.sqlite.blobs import SqliteBlobs
from ade.stores.sqlite.codec import read_task
from ade.stores.sqlite.connection import connect
from ade.stores.sqlite.invariants import broken_invariants
from ade.stores.sqlite.places import Place
from tests.faults.powercut.acknowledgement import TaskState


@dataclass(slots=True)
class Recovered:
    """What was found: the tasks, and all that is wrong without knowing what ought to be there."""

    states: dict[str, TaskState] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


class Recovery:
    """Lays files out in a folder and opens them, again and again."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.place = Place(folder / database)
        self._folder = folder
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def lay_out(self, files: Mapping[Path, bytes | bytearray]) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self.place.path.parent.mkdir(parents=True)
        for path, content in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

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
        found.damage += self._runner.run(self._unreadable_payloads(tasks))
        return found

    async def _unreadable_payloads(self, tasks: list[Task]) -> list[str]:
        """A record never names a blob that is not there, acknowledged or not."""
        payloads = Payloads(SqliteBlobs(self.place.blobs))
        unreadable = []
        for task in tasks:
            for raw in (task.args, task.result):
                try:
                    if raw is not None:
                        await payloads.load(raw)
                except AdeError as error:
                    unreadable.append(f"task {task.id}: {error}")
        return unreadable


def _damage(connection: apsw.Connection) -> list[str]:
    answers = [str(answer) for (answer,) in connection.execute("PRAGMA integrity_check(5)")]
    return [answer for answer in answers if answer != "ok"] + broken_invariants(connection)
