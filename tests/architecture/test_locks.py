"""The lock files pin everything, and say nothing about where it came from."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>\S+)", re.MULTILINE)
# `name==version [; marker]`, then one hash or more; comments were taken out before.
ENTRY = re.compile(r"[a-z0-9][a-z0-9._-]*==\S+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")


def entries(lock: Path) -> list[str]:
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    return re.split(r"\n(?=\S)", text.strip())


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / name).read_text()))


def wanted(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in requirements}


def test_the_locks_are_there() -> None:
    assert [lock.name for lock in LOCKS] == ["audit.txt", "build.txt", "dev.txt", "fuzz.txt", "runtime.txt"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_line_is_a_pin_with_its_hashes(lock: Path) -> None:
    assert [entry for entry in entries(lock) if not ENTRY.fullmatch(entry)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_names_an_address_or_a_path(lock: Path) -> None:
    places = re.compile(r"://|--(extra-)?index|--find-links|--trusted-host|(^|\s)/\w", re.MULTILINE)

    assert places.findall(lock.read_text()) == []


def test_the_locks_agree_with_each_other() -> None:
    development = pins("dev.txt")

    for smaller in (pins("runtime.txt"), pins("build.txt")):
        assert smaller.items() <= development.items()
    for apart in (pins("fuzz.txt"), pins("audit.txt")):  # installed beside it, so that nothing of it may change
        assert {name: version for name, version in apart.items() if development.get(name, version) != version} == {}


def test_everything_the_project_asks_for_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    tools = [entry for entry in groups["dev"] if isinstance(entry, str)]

    assert wanted(project["project"]["dependencies"]) <= pins("runtime.txt").keys()
    for name in ("build", "fuzz", "audit"):
        assert wanted(groups[name]) <= pins(f"{name}.txt").keys()
    assert wanted(tools) <= pins("dev.txt").keys()
