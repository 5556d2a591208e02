"""What a process says belongs to one run, and what it leaves behind ends with it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from ade import Status
from tests.domain import HandlerMode
from tests.waiting import PATIENCE_S, eventually
from tests.worker import process_tasks
from tests.worker.harness import Workshop, plain

UNGUARDED = """
import asyncio
from ade import Ade
from ade.settings import Settings
from ade.settings.sections import TaskSettings
print("main")
ade = Ade("sqlite:///script.db", settings=Settings(task=TaskSettings(max_attempts=5)))
@ade.task(cpu=True)
def work() -> int:
    return 1
async def main():
    async with ade:
        task = await work.enqueue()
        async with ade.worker():
            done = await task.wait(90)
            print(done.status, done.attempt, done.error.type)
asyncio.run(main())
"""

WITH_OFFSPRING = """
import os, subprocess, threading
from ade import Ade
ade = Ade("sqlite:///script.db")
@ade.task(cpu=True)
def settle_down() -> None:
    offspring = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), offspring.pid, flush=True)
    threading.Event().wait()
if __name__ == "__main__":
    settle_down.enqueue().wait()
    ade.run_worker()
"""

FORKING = """
import asyncio, os, signal, sys, warnings
from ade import Ade
warnings.simplefilter("ignore")  # Python warns of forks beside threads, and rightly
ade = Ade("sqlite:///script.db")
@ade.task
def in_a_thread() -> int:
    return os.fork()
@ade.task
async def in_the_loop() -> int:
    forked = os.fork()
    if forked == 0:
        sys.exit(3)
    return forked
@ade.task
async def beside_the_loop() -> int:
    return await asyncio.to_thread(os.fork)
async def exit_code_of(pid):
    try:
        async with asyncio.timeout(60):
            while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
                await asyncio.sleep(0.01)
        return os.waitstatus_to_exitcode(ended[1])
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        return "did not end"
@ade.task
async def look(pids: list[int]) -> None:
    print([await exit_code_of(pid) for pid in pids], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
@ade.task
async def begin() -> None:
    handles = [await task.enqueue() for task in (in_a_thread, in_the_loop, beside_the_loop)]
    await look.enqueue([await handle.result(60) for handle in handles])
if __name__ == "__main__":
    begin.enqueue().wait()
    ade.run_worker()
"""


async def test_a_process_forked_by_a_handler_never_answers_in_its_place(workshop: Workshop) -> None:
    workshop.handle(process_tasks.fork_and_return, mode=HandlerMode.PROCESS)
    workshop.handle(process_tasks.same, mode=HandlerMode.PROCESS)
    async with workshop.worker(cpu_processes=1):
        forking = await workshop.enqueue("fork_and_return", {"number": 111}, max_attempts=1)
        others = [await workshop.enqueue("same", {"number": number}) for number in range(3)]
        assert [plain((await workshop.final(task)).result) for task in (forking, *others)] == [111, 0, 1, 2]


def test_a_process_forked_in_the_worker_itself_ends_when_it_comes_out_of_the_handler(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORKING)
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180
    )
    assert ran.stdout.splitlines() == ["[0, 3, 0]"], ran.stderr


async def test_a_process_that_dies_is_noticed_and_what_it_forked_ends_too(workshop: Workshop) -> None:
    workshop.handle(process_tasks.fork_and_die, mode=HandlerMode.PROCESS)
    async with workshop.worker():
        task = await workshop.final(await workshop.enqueue("fork_and_die", max_attempts=1))
        assert task.error is not None
        assert task.error.message == "process died with signal SIGKILL"
        forked = plain(task.progress)["forked"]

        async def is_dead() -> bool:
            return not is_running(forked)

        await eventually(is_dead)


async def test_a_process_that_closes_its_line_and_ends_is_told_by_its_own_exit_code(workshop: Workshop) -> None:
    workshop.handle(process_tasks.leave_slowly, mode=HandlerMode.PROCESS)
    task = await workshop.perform("leave_slowly", {"code": 7}, max_attempts=1)
    assert task.error is not None
    assert task.error.message == "process ended with exit code 7 before it answered"


async def test_a_process_that_dies_between_two_runs_costs_no_task_an_attempt(workshop: Workshop) -> None:
    workshop.handle(process_tasks.where_am_i, mode=HandlerMode.PROCESS)
    workshop.handle(process_tasks.same, mode=HandlerMode.PROCESS)
    async with workshop.worker(cpu_processes=1):
        first = await workshop.final(await workshop.enqueue("where_am_i"))
        pid = plain(first.result)[0]
        os.kill(pid, signal.SIGKILL)

        async def is_gone() -> bool:
            return not Path(f"/proc/{pid}").exists()

        await eventually(is_gone)
        task = await workshop.final(await workshop.enqueue("same", {"number": 1}, max_attempts=1))
    assert (task.status, plain(task.result)) == (Status.COMPLETED, 1)


async def test_the_context_may_be_used_from_several_threads(workshop: Workshop) -> None:
    workshop.handle(process_tasks.talk_from_threads, mode=HandlerMode.PROCESS)
    task = await workshop.perform("talk_from_threads", max_attempts=1)
    assert plain(task.result) == 4


async def test_a_signal_never_comes_in_the_middle_of_a_message(workshop: Workshop) -> None:
    workshop.handle(process_tasks.talk_while_it_rings, mode=HandlerMode.PROCESS)
    task = await workshop.perform("talk_while_it_rings", max_attempts=1)
    assert plain(task.result) == "talked", task.error


async def test_a_process_that_cannot_end_a_message_ends_itself(workshop: Workshop) -> None:
    workshop.handle(process_tasks.talk_while_a_thread_is_rung, mode=HandlerMode.PROCESS)
    workshop.handle(process_tasks.same, mode=HandlerMode.PROCESS)
    async with workshop.worker(cpu_processes=1):
        torn = await workshop.final(await workshop.enqueue("talk_while_a_thread_is_rung", max_attempts=1))
        assert torn.error is not None
        assert torn.error.message == "process ended with exit code 1 before it answered"
        assert plain((await workshop.final(await workshop.enqueue("same", {"number": 1}))).result) == 1


async def test_a_context_refuses_once_its_run_is_over(workshop: Workshop) -> None:
    workshop.handle(process_tasks.keep_context, mode=HandlerMode.PROCESS)
    workshop.handle(process_tasks.use_kept_context, mode=HandlerMode.PROCESS)
    async with workshop.worker(cpu_processes=1):
        kept = await workshop.final(await workshop.enqueue("keep_context"))
        assert kept.status is Status.COMPLETED
        used = await workshop.final(await workshop.enqueue("use_kept_context"))
    assert plain(used.result) == "run_over"


def test_a_script_without_a_main_guard_fails_its_task_once_and_starts_nothing_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180
    )
    assert ran.stdout.splitlines() == ["main", "main", "failed 1 UnguardedMain"], ran.stderr


async def test_nothing_that_a_handler_has_started_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITH_OFFSPRING)
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as worker:
        assert worker.stdout is not None
        told = await asyncio.wait_for(asyncio.to_thread(worker.stdout.readline), PATIENCE_S)
        worker.kill()
        pids = [int(pid) for pid in told.split()]
        assert len(pids) == 2

        async def are_dead() -> bool:
            return not any(is_running(pid) for pid in pids)

        await eventually(are_dead)


def is_running(pid: int) -> bool:
    """A process that nobody has fetched the exit code of is dead all the same."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_function_typed_at_a_prompt_is_refused_and_never_looked_for_in_the_child_itself(tmp_path: Path) -> None:
    typed = UNGUARDED.replace("main()", "program()").replace("def work()", "def main()").replace("work.", "main.")
    ran = subprocess.run(
        [sys.executable, "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180
    )
    assert ran.stderr.splitlines()[-1].endswith("task 'main' runs in a process, so it must be defined in a file")
