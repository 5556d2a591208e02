"""What `import ade` offers, how little it costs, and what type checkers make of it."""

import subprocess
import sys
from pathlib import Path

import pytest

import ade

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there() -> None:
    assert sorted(ade.__all__) == dir(ade)
    for name in ade.__all__:
        assert getattr(ade, name).__name__ == name
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = ade.nothing


def test_importing_ade_loads_no_library() -> None:
    script = "import sys, ade; print(sorted({'msgspec', 'apsw', 'asyncio'} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.slow
def test_type_checkers_infer_arguments_and_results() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "tests/app/typing_cases.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
