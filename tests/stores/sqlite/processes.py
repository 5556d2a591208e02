"""Other processes for stories that need them: started, read line by line, always ended."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 180


def command(program: str, *arguments: object) -> list[str]:
    """The command line of a module in tests/stores/sqlite/programs."""
    module = f"tests.stores.sqlite.programs.{program}"
    return [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]


@contextmanager
def started(words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line the process says."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        assert process.stderr is not None
        raise AssertionError(f"the process said nothing more: {process.stderr.read()}")
    return line


def answer_of(words: Sequence[str]) -> str:
    """All that a process says until it ends well."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on_small_disk(folder: Path, size: str, words: Sequence[str]) -> list[str]:
    """The same command with a small file system of its own at the folder, seen by nobody else."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare(1) to mount a small file system")
    script = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    probe = subprocess.run(["unshare", "-m", "sh", "-c", script, str(folder), "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {probe.stderr.decode().strip()}")
    return ["unshare", "-m", "sh", "-c", script, str(folder), *words]


def with_failing_syncs(when: str, words: Sequence[str]) -> list[str]:
    """The same command, with the disk refusing to sync: `when` is strace's (8 = the 8th, 8+ = from the 8th on)."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace(1) to make a sync fail")
    probe = subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"strace may not trace here: {probe.stderr.decode().strip()}")
    inject = ["-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={when}"]
    return [strace, "-f", "--seccomp-bpf", "-o", os.devnull, *inject, *words]
