"""The build may try a few failed tests once more; it must not pass when others were never run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = """\
test test-all:
\tsh ./pytest $(ARGS)
lint fuzz bench-quick:
\ttrue
"""
FIRST_RUN = """\
if [ -e ran ]; then exit 0; fi
touch ran
mkdir -p .pytest_cache/v/cache
{first}
"""
WRITE_ONE = """echo '{"tests/test_x.py::test_it": true}' >.pytest_cache/v/cache/lastfailed"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "tools").mkdir()
    for name in ("strace", "redis-server", "openssl", "curl", "jq"):  # so that none is installed
        (tmp_path / "tools" / name).write_text("#!/bin/sh\n")
        (tmp_path / "tools" / name).chmod(0o755)
    return tmp_path


def built(house: Path, first: str) -> subprocess.CompletedProcess[str]:
    """The build where the first run of the tests does this, and every later one passes."""
    (house / "pytest").write_text(FIRST_RUN.format(first=first))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    path = f"{house / 'tools'}{os.pathsep}{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", ".ci/run"], cwd=house, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_few_that_failed_in_company_and_pass_alone_are_named(house: Path) -> None:
    run = built(house, f"{WRITE_ONE}; exit 1")

    assert run.returncode == 0, run.stdout + run.stderr
    assert "SHAKY, failed once and passed alone, look at them:\ntests/test_x.py::test_it" in run.stdout


@pytest.mark.parametrize(
    "first",
    [
        f"{WRITE_ONE}; exit 3",  # pytest itself broke: of the others nobody knows
        f"{WRITE_ONE}; exit 2",
        f"{WRITE_ONE}; kill -9 $$",
        "exit 1",
    ],
)
def test_a_run_that_did_not_come_to_its_end_is_a_failure(house: Path, first: str) -> None:
    run = built(house, first)

    assert run.returncode != 0
    assert "once more" not in run.stdout


def test_what_an_earlier_build_left_behind_says_nothing_of_this_one(house: Path) -> None:
    (house / ".pytest_cache/v/cache").mkdir(parents=True)
    (house / ".pytest_cache/v/cache/lastfailed").write_text('{"tests/test_old.py::test_it": true}')

    assert built(house, "exit 1").returncode != 0
