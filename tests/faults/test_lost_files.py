"""Files of a database are removed or replaced under running processes: all of them notice within a second, nothing more
is accepted, and everything that was accepted can be saved."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade.errors import StoreReplaced
from ade.settings import Settings
from tests.domain import ExitCode, open_read_only, open_stores
from tests.faults.programs import Program, Stage, stage
from tests.waiting import time_until

pytestmark = [pytest.mark.faults]
NOTICED_WITHIN_S = 1.0
MANY = 50


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


class Scene:
    """A database file with a producer and a worker on it."""

    def __init__(self, programs: Stage, folder: Path) -> None:
        self.path = folder / "db" / "ade.db"
        self.url = f"sqlite:///{self.path}"
        self._programs = programs
        self.producer = self.start("producer", "tests.faults.lost_files_program")

    def start(self, name: str, module: str, *arguments: str) -> Program:
        settings = {"ADE_STORE__URL": self.url, "ADE_STORE__BALLAST_MB": "0", "ADE_LOG__FORMAT": "json"}
        return self._programs.start(name, module, *arguments, **settings)

    def worker(self) -> Program:
        return self.start("worker", "ade.cli", "worker", "--app", "tests.faults.lost_files_program:ade")

    def accepted(self) -> list[str]:
        return re.findall(r"^accepted (\S+)$", self.producer.log(), re.MULTILINE)

    async def until_accepted(self, count: int) -> None:
        await time_until(lambda: len(self.accepted()) >= count, f"{count} accepted tasks")

    async def until_refused(self) -> str:
        """Return the refusal; it comes within a second."""
        took = await time_until(lambda: "refused " in self.producer.log(), "a refusal")
        assert took < NOTICED_WITHIN_S
        return str(re.findall(r"^refused (.+)$", self.producer.log(), re.MULTILINE)[0])

    def remove(self, *ends: str) -> None:
        for end in ends:
            self.path.with_name(self.path.name + end).unlink()

    async def stored(self) -> set[str]:
        stores = await open_stores(self.url, must_exist=True)
        try:
            found = await stores.tasks.get(self.accepted())
            return {task.id for task in found if task is not None}
        finally:
            await stores.close()


def remove_folder(folder: Path) -> None:
    """Remove it in one step: processes create files for their wake-ups again."""
    shutil.rmtree(folder.rename(folder.with_name("removed")))


@pytest.fixture
def scene(programs: Stage, tmp_path: Path) -> Scene:
    return Scene(programs, tmp_path)


@pytest.mark.parametrize("ends", [("-wal",), ("-wal", "-shm"), ("-shm",)])
async def test_everything_accepted_survives_a_removed_log(scene: Scene, ends: tuple[str, ...]) -> None:
    await scene.until_accepted(MANY)
    scene.remove(*ends)

    refusal = await scene.until_refused()
    assert refusal.startswith("store_replaced")
    with pytest.raises(StoreReplaced, match=str(scene.producer.pid)):  # nobody else mixes in meanwhile
        open_read_only(scene.url, Settings())
    scene.producer.send(signal.SIGTERM)
    await scene.producer.exit_code()

    assert await scene.stored() == set(scene.accepted())


async def test_a_removed_log_is_saved_before_the_process_is_killed(scene: Scene) -> None:
    await scene.until_accepted(MANY)
    scene.remove("-wal")
    await scene.until_refused()
    await scene.producer.until_it_says("saved into the database")
    scene.producer.send(signal.SIGKILL)
    await scene.producer.exit_code()

    assert await scene.stored() == set(scene.accepted())


@pytest.mark.parametrize("way", ["removed", "removed with its log", "replaced", "folder removed"])
async def test_a_lost_database_is_saved_with_the_command_of_the_error(scene: Scene, way: str, tmp_path: Path) -> None:
    await scene.until_accepted(MANY)
    if way == "replaced":
        other = tmp_path / "other.db"
        await (await open_stores(f"sqlite:///{other}")).close()
        other.replace(scene.path)
    elif way == "folder removed":
        remove_folder(scene.path.parent)
        scene.path.parent.mkdir()
    else:
        scene.remove("", *(["-wal", "-shm"] if way == "removed with its log" else []))

    refusal = await scene.until_refused()
    [command] = re.findall("`([^`]+)`", refusal)
    subprocess.run(command, shell=True, check=True)
    scene.producer.send(signal.SIGKILL)
    await scene.producer.exit_code()
    if way != "replaced":
        assert not scene.path.exists()
    for end in ("-wal", "-shm"):
        scene.path.with_name(scene.path.name + end).unlink(missing_ok=True)
    saved = scene.path.with_name(scene.path.name + ".saved")
    saved.with_name(saved.name + "-wal").rename(scene.path.with_name(scene.path.name + "-wal"))
    saved.rename(scene.path)

    assert await scene.stored() == set(scene.accepted())


async def test_a_file_that_is_overwritten_in_place_is_noticed(scene: Scene, tmp_path: Path) -> None:
    await scene.until_accepted(MANY)
    other = tmp_path / "other.db"
    await (await open_stores(f"sqlite:///{other}")).close()
    with scene.path.open("r+b") as file, other.open("rb") as source:
        shutil.copyfileobj(source, file)
    refusal = await scene.until_refused()

    assert "overwritten by another store" in refusal


async def test_every_kind_of_process_notices_within_a_second_and_none_creates_a_new_store(scene: Scene) -> None:
    worker = scene.worker()
    await worker.until_it_says("worker.started")
    followers = [
        scene.start("tail", "ade.cli", "events", "tail", "--follow", "--json"),
        scene.start("top", "ade.cli", "top", "--json"),
    ]
    server = scene.start("server", "ade.cli", "serve", "--port", "0", "--json")
    await server.until_it_says("worker.started")
    await server.until_it_says('"serving"')  # before, it has nothing that could be lost, and ends
    await followers[0].until_it_says("task.created")
    await followers[1].until_it_says("{")

    remove_folder(scene.path.parent)
    scene.path.parent.mkdir()

    await scene.until_refused()
    for program in (worker, server):
        took = await time_until(lambda program=program: "store_replaced" in program.log(), program.name)  # type: ignore[misc]
        assert took < NOTICED_WITHIN_S
        assert program.process.poll() is None  # it still has what was lost
    for program in followers:
        assert await program.exit_code() == ExitCode.STORE
        assert "store_replaced" in program.log()
    assert not scene.path.exists()


async def test_a_restart_creates_no_new_store_where_one_was(scene: Scene) -> None:
    await scene.until_accepted(MANY)
    scene.producer.send(signal.SIGKILL)
    await scene.producer.exit_code()
    scene.path.unlink()

    for arguments in (
        ["tasks"],
        ["enqueue", "send", "number=1", "--allow-unknown"],
        ["worker", "--app", "ade.demo:ade"],
    ):
        line = [sys.executable, "-m", "ade.cli", *arguments, "--store", scene.url]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=30)
        assert done.returncode == ExitCode.STORE
        assert "store_missing" in done.stderr
        assert "restore the database or its newest backup" in done.stderr
        assert "creates one" not in done.stderr
    assert not scene.path.exists()


def test_a_worker_that_its_supervisor_restarts_creates_no_store(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "ade.cli", "worker", "--app", "ade.demo:ade", "--store", f"sqlite:///{tmp_path}/a.db"]
    done = subprocess.run(
        line, env={**os.environ, "ADE_RESTARTED": "1"}, check=False, capture_output=True, text=True, timeout=30
    )

    assert done.returncode == ExitCode.STORE
    assert "store_missing" in done.stderr
    assert list(tmp_path.iterdir()) == []
