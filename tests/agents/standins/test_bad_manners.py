"""The stand-ins can be as unruly as real programs, whichever of them is played."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.command_line import RunAssignment, command_of
from ade.agents.runs.failures import RunFailure
from tests.agents.standins.running import profile_of

PROGRAMS = ("letta", "claude", "codex", "gemini")


@contextmanager
def started(program: str, prompt: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A stand-in in a process group of its own, which is gone afterwards."""
    command = command_of(profile_of(program), RunAssignment(prompt=prompt))
    question = folder / "prompt"
    question.write_bytes(command.stdin or b"")
    with question.open("rb") as stdin:
        child = subprocess.Popen(
            command.argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
        )
    with child:
        try:
            yield child
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def last_word(child: subprocess.Popen[bytes], about: str) -> int:
    """The process id that it tells on stderr."""
    assert child.stderr is not None
    told = next(line for line in child.stderr if line.startswith(about.encode()))
    return int(told.split()[-1])


def ignores_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line.split()[-1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_can_hang_and_not_listen(program: str, tmp_path: Path) -> None:
    with started(program, "hello [[ignore-sigterm]] [[hang]]", tmp_path) as child:
        pid = last_word(child, "hanging")
        assert (pid, ignores_sigterm(pid)) == (child.pid, True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_can_leave_a_grandchild_behind(program: str, tmp_path: Path) -> None:
    with started(program, "hello [[fork]]", tmp_path) as child:
        grandchild = last_word(child, "grandchild")
        assert child.wait() == 0
        assert os.getpgid(grandchild) == child.pid  # it lives, in the group that has to be ended


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_that_hangs_has_told_who_it_is_before_it_is_ended(program: str, tmp_path: Path) -> None:
    profile = profile_of(program)
    reader = OutputReader(profile)
    with started(program, "hello [[hang]]", tmp_path) as child:
        last_word(child, "hanging")
        child.terminate()
        assert child.stdout is not None
        reader.feed(child.stdout.read())
        code = child.wait()
        _, report = reader.finish(code, stopped_for=RunFailure.TIMED_OUT, stop_message="longer than 1h")

    assert (code, report.failure) == (-signal.SIGTERM, RunFailure.TIMED_OUT)
    assert report.session_id is not None
