"""Workers that are killed and suspended in mid-task, with every setting at its default and the clock on the wall.

tests/worker/test_takeover.py tells the same story in no time; here it is seen that nothing was left out of it.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade import Ade, TaskHandle
from tests.domain import FINAL_EVENTS
from tests.faults.default_worker import build
from tests.faults.programs import Program, Stage, stage
from tests.faults.workers import until
from tests.waiting import time_until

pytestmark = [pytest.mark.long, pytest.mark.faults, pytest.mark.realtime]

PROMISE_S = 35.0


class Scene:
    """One database file, the journal that runs write, and workers with default settings."""

    def __init__(self, programs: Stage) -> None:
        self._programs = programs
        self._folder = programs.folder
        self.url = f"sqlite:///{self._folder / 'ade.db'}"
        self.go_on = self._folder / "go-on"
        self._journal = self._folder / "journal"

    async def worker(self, name: str, **settings: str) -> Program:
        program = self._programs.start(name, "tests.faults.default_worker", ADE_STORE__URL=self.url, **settings)
        await program.until_it_says("worker.started")
        return program

    async def busy_worker(self, name: str, ade: Ade) -> tuple[Program, TaskHandle[object]]:
        """A worker with room for one task, in the middle of it."""
        worker = await self.worker(name, ADE_WORKER__CONCURRENCY="1")
        task = await ade.enqueue(build.name, {"journal": str(self._journal), "go_on": str(self.go_on)})
        await until(lambda: worker.pid in self.noted("began-1"), f"{name} begins")
        return worker, task

    def noted(self, word: str) -> list[int]:
        """The processes that wrote this word."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        return [int(pid) for written, pid in (line.split() for line in lines) if written == word]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with stage(tmp_path) as programs:
        yield Scene(programs)


async def final_events(task: TaskHandle[object]) -> list[str]:
    return [event.type async for event in task.events() if event.type in FINAL_EVENTS]


async def test_with_default_settings_a_killed_workers_task_runs_again_elsewhere_within_35_seconds(
    scene: Scene,
) -> None:
    """A suspended worker loses its task in the same way; when it wakes up, its result comes too late."""
    async with Ade(scene.url) as ade:
        killed, task = await scene.busy_worker("killed", ade)
        suspended, other_task = await scene.busy_worker("suspended", ade)
        heir = await scene.worker("heir")

        killed.send(signal.SIGKILL)
        suspended.send(signal.SIGSTOP)
        took = await time_until(lambda: len(scene.noted("began-2")) == 2, "both tasks run again")
        results = [await task.result(timeout=60), await other_task.result(timeout=60)]

        assert took < PROMISE_S
        assert scene.noted("began-2") == [heir.pid, heir.pid]
        assert results == ["built by attempt 2", "built by attempt 2"]

        scene.go_on.touch()  # what the suspended run waits for has come
        suspended.send(signal.SIGCONT)
        await until(
            lambda: "task.stopped" in suspended.log() or "task.result_thrown_away" in suspended.log(),
            "the suspended worker learns that it is too late",
        )
        assert await other_task.result() == "built by attempt 2"
        assert [await final_events(task), await final_events(other_task)] == [["task.succeeded"], ["task.succeeded"]]
        assert await (await ade.open()).stores.maintenance.check_invariants() == []
