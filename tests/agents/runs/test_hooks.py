"""The line that hooks ask at, and what is left of it when a process was killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ade.agents.runs import hooks
from ade.agents.runs.model import HookAnswer, HookedProgram, HookRuling, reply_of


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def left_by(place: Path, pid: int, *, days: float) -> Path:
    folder = place / f"ade-run-{pid}-abc"
    folder.mkdir()
    then = time.time() - days * 86_400
    os.utime(folder, (then, then))
    return folder


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_folders_of_processes_that_are_gone_are_removed_after_a_while(place: Path) -> None:
    gone = ended_process()
    old, alive = left_by(place, gone, days=30), left_by(place, os.getpid(), days=30)
    (place / "ade-run-strange").mkdir()

    hooks.remove_abandoned()

    assert not old.exists()
    assert alive.exists()
    assert (place / "ade-run-strange").exists()


@pytest.mark.parametrize("program", HookedProgram)
def test_every_program_gets_the_response_with_the_denial(program: HookedProgram) -> None:
    reply = reply_of(program, HookRuling(HookAnswer.DENY, "bob did not approve: tool Bash. Response: use the trash"))

    if program is HookedProgram.CLAUDE:
        assert reply.stdout is not None
        said = reply.stdout["hookSpecificOutput"]
        assert (said["permissionDecision"], reply.exit_code) == ("deny", 0)
        assert said["permissionDecisionReason"].endswith("use the trash")
    else:
        assert (reply.exit_code, reply.stderr) == (2, "bob did not approve: tool Bash. Response: use the trash")


def test_a_folder_that_somebody_else_removes_meanwhile_is_no_trouble(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left_by(place, ended_process(), days=30)
    monkeypatch.setattr(Path, "glob", lambda *_: iter([folder, folder.with_name("ade-run-1-gone")]))

    hooks.remove_abandoned()

    assert not folder.exists()
