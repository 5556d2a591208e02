"""Callers without an event loop use the same methods and `.wait()`."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from ade import Ade, Status
from ade.errors import InvalidArguments, WouldBlock

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def ade(tmp_path: Path) -> Ade:
    return Ade(f"sqlite:///{tmp_path / 'ade.db'}")


def test_a_plain_script_enqueues_looks_and_closes(ade: Ade) -> None:
    @ade.task
    async def work(number: int) -> int:
        return number

    task = work.enqueue(3).wait()
    assert task.status().wait() is Status.PENDING
    assert [event.type for event in task.events()] == ["task.created"]
    assert list(task.output()) == []
    assert task.cancel("enough").wait().status is Status.CANCELLED
    with pytest.raises(InvalidArguments):
        work.enqueue("3").wait()  # type: ignore[arg-type] # the mistake in question
    ade.close().wait()
    assert not [thread for thread in threading.enumerate() if thread.name == "ade-portal"]


def test_an_app_can_be_used_again_after_it_was_closed(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    first = work.enqueue().wait()
    ade.close().wait()
    assert ade.handle(first.id).status().wait() is Status.PENDING
    ade.close().wait()


def test_many_threads_share_one_store(ade: Ade) -> None:
    @ade.task
    async def work(number: int) -> None: ...

    ids: set[str] = set()

    def enqueue() -> None:
        for number in range(20):
            ids.add(work.enqueue(number).wait().id)

    threads = [threading.Thread(target=enqueue) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 100
    ade.close().wait()


async def test_waiting_on_an_event_loop_is_refused_because_it_would_block(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    with pytest.raises(WouldBlock, match="await"):
        work.enqueue().wait()


async def test_loops_and_threads_may_use_one_app_at_once(ade: Ade) -> None:
    @ade.task
    async def work() -> None: ...

    here = await work.enqueue()
    elsewhere: list[str] = []
    thread = threading.Thread(target=lambda: elsewhere.append(work.enqueue().wait().id))
    thread.start()
    while thread.is_alive():
        await here.status()
    assert await ade.handle(elsewhere[0]).status() is Status.PENDING
    await ade.close()


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error,ignore::DeprecationWarning"},
    )


def test_an_app_that_was_never_closed_does_not_keep_python_alive(tmp_path: Path) -> None:
    ended = run_script(
        f"""
        from ade import Ade
        ade = Ade("sqlite:///{tmp_path / "ade.db"}")
        @ade.task
        async def work() -> None: ...
        print(work.enqueue().wait().id)
        """
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.strip()) == 36


def test_a_forked_child_opens_a_store_of_its_own(tmp_path: Path) -> None:
    ended = run_script(
        f"""
        import os
        from ade import Ade
        ade = Ade("sqlite:///{tmp_path / "ade.db"}")
        @ade.task
        async def work() -> None: ...
        before = work.enqueue().wait().id
        child = os.fork()
        inside = work.enqueue().wait().id
        print(before, inside, flush=True)
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert ade.handle(before).status().wait() == "pending"
        ade.close().wait()
        """
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    ids = [line.split() for line in ended.stdout.splitlines()]
    assert len({each for line in ids for each in line}) == 3


def test_a_program_can_be_a_worker(tmp_path: Path) -> None:
    ended = run_script(
        f"""
        import os, signal
        from ade import Ade
        ade = Ade("sqlite:///{tmp_path / "ade.db"}")
        @ade.task
        async def work() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
        task = work.enqueue().wait()
        ade.close().wait()
        handover = ade.run_worker(concurrency=3, queues=["default"])
        print(ade.handle(task.id).status().wait(), handover.handed_back)
        """
    )

    assert (ended.returncode, ended.stdout) == (0, "completed ()\n"), ended.stderr
