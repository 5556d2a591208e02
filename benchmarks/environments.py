"""Throw-away virtual environments for the peers, made once per lock file and interpreter."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE / "peers"
SCRATCH = HERE / ".scratch"
SET_UP_SECONDS = 180


class NotInstalled(Exception):
    """The packages of a lock could not be had; the table says so in the contestant's place."""


def interpreter(requirements: str | None) -> Path:
    """The Python that has the packages of this lock file; the project's own when there is none."""
    if requirements is None:
        return Path(sys.executable)
    lock = PEERS / requirements
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = SCRATCH / "venvs" / f"{lock.stem}-{digest}"
    if not (home / "complete").exists():
        _create(home, lock)
    return home / "bin" / "python"


def _create(home: Path, lock: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    # pip from outside saves the new environment the copy of its own.
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    install = ["install", "-qq", "--require-hashes", "--no-deps", "--requirement", str(lock)]
    _run([sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), *install])
    (home / "complete").touch()


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, timeout=SET_UP_SECONDS, stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed: took longer than {SET_UP_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        errors = [line for line in str(error.stderr).splitlines() if line.startswith("ERROR")]
        raise NotInstalled(f"not installed: {errors[-1] if errors else error}") from None
