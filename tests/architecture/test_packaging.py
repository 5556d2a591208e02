"""What users install is what the repository holds."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from ade import VERSION
from tests.architecture.repository import ROOT, SOURCE, written_files


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == VERSION


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr

    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("ade/")}

    assert packed == {path.relative_to(SOURCE.parent).as_posix() for path in written_files(SOURCE)}
    assert {".sql", ".lua"} <= {Path(name).suffix for name in packed}
    assert "ade/py.typed" in packed
