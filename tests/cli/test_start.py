"""How fast a command starts: nothing is loaded that it does not need."""

import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from tests.cli.processes import ADE, call, environment

PROGRAM = """
import sys
from ade.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
CLICK_ALONE = "import click\nclick.command()(lambda: None).main([], standalone_mode=False)"
CLICK_AND_DATABASE = f"import apsw, msgspec\n{CLICK_ALONE}"


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command has loaded when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def cpu_seconds(folder: Path, command: list[str]) -> float:
    """The least processor time of some runs: what a command costs that is compiled and has the machine for itself."""
    surroundings = environment(folder, PYTHONPYCACHEPREFIX=str(folder / "compiled"))
    surroundings.pop("PYTHONDONTWRITEBYTECODE", None)

    def once() -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once()  # compiles
    return min(once() for _ in range(9))


def test_help_loads_no_command_and_no_store(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "--help")

    assert modules.isdisjoint({"asyncio.events", "msgspec", "apsw", "rich", "ade.errors", "ade.tasks.commands.tasks"})


@pytest.mark.parametrize("arguments", [["tasks"], ["stats"], ["workers"], ["queues", "list"], ["events", "tail"]])
def test_simple_commands_load_neither_app_nor_worker_nor_drawing(tmp_path: Path, arguments: list[str]) -> None:
    assert call(tmp_path, "queues", "limit", "default", "none", "--new").returncode == 0
    modules = loaded(tmp_path, *arguments)

    heavy = {"rich", "uvloop", "ade.app.ade", "ade.worker.worker", "difflib", "tomllib", "ctypes", "tempfile"}
    assert modules.isdisjoint(heavy), modules & heavy


LOOKING = [["tasks"], ["stats"], ["workers"], ["queues"], ["schedules"], ["dlq"], ["tasks", "--json"]]


@pytest.mark.parametrize("arguments", LOOKING)
def test_commands_that_only_look_need_no_event_loop_and_no_part_that_writes(
    tmp_path: Path, arguments: list[str]
) -> None:
    assert call(tmp_path, "queues", "limit", "default", "none", "--new").returncode == 0
    modules = loaded(tmp_path, *arguments)

    heavy = {
        "asyncio.events",
        "ssl",
        "ade.stores.sqlite.writer",
        "ade.stores.sqlite.claims",
        "ade.stores.sqlite.commits",
    }
    assert modules.isdisjoint(heavy), modules & heavy


@pytest.mark.parametrize("command", ["enqueue", "schedules", "dlq", "tasks", "queues"])
def test_help_of_a_command_loads_no_app(tmp_path: Path, command: str) -> None:
    heavy = {"asyncio.events", "apsw", "rich", "ade.app.ade", "difflib"}
    modules = loaded(tmp_path, command, "--help")

    assert modules.isdisjoint(heavy), modules & heavy


@pytest.mark.slow
def test_help_starts_about_as_fast_as_click_itself(tmp_path: Path) -> None:
    alone = cpu_seconds(tmp_path, [sys.executable, "-c", CLICK_ALONE])

    assert cpu_seconds(tmp_path, [*ADE, "--help"]) < 2 * alone


@pytest.mark.slow
def test_a_listing_costs_little_more_than_what_it_is_made_of(tmp_path: Path) -> None:
    assert call(tmp_path, "queues", "limit", "default", "none", "--new").returncode == 0
    parts = cpu_seconds(tmp_path, [sys.executable, "-c", CLICK_AND_DATABASE])

    assert cpu_seconds(tmp_path, [*ADE, "tasks"]) < 2.3 * parts


DEFERRED = """
import sys
from ade.cli import defer
defer("asyncio")
import asyncio
assert "asyncio.events" not in sys.modules
assert not hasattr(asyncio, "nothing_of_this_name")
assert not hasattr(asyncio, "nothing_of_this_name")
from asyncio.subprocess import PIPE
assert asyncio.run(asyncio.sleep(0, "done")) == "done"
assert asyncio.Event is sys.modules["asyncio"].Event
print("fine")
"""


@pytest.mark.parametrize("first", ["", "import asyncio.coroutines", "from asyncio import Queue"])
def test_a_deferred_module_behaves_like_the_module_itself(tmp_path: Path, first: str) -> None:
    program = DEFERRED if not first else DEFERRED.replace('assert "asyncio.events" not in sys.modules', first)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, check=False
    )

    assert (done.stdout.strip(), done.stderr) == ("fine", "")
