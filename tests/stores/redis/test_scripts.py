"""Every Lua script and every part is used, every name in the code has a script, and contracts are written down."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade.stores import redis
from ade.stores.redis.scripts import LUA, contract, script_names

CALLS = ("run", "_run", "run_blocking", "run_blocking_each", "_ask_all")  # functions whose first argument is a script
FOR_OTHER_LANGUAGES = {"hand_in"}


def given_names() -> Iterator[str]:
    """Names that the modules give to a function which runs them, and all others that are the name of a script."""
    scripts = set(script_names())
    for path in Path(redis.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                name = node.args[0] if node.args else None
                if isinstance(name, ast.Constant):
                    yield str(name.value)
            elif isinstance(node, ast.Constant) and node.value in scripts:
                yield str(node.value)


def parts_of(text: str) -> set[str]:
    lines = [line.removeprefix("-- uses: ") for line in text.splitlines() if line.startswith("-- uses: ")]
    return {name.strip() for line in lines for name in line.split(",")}


def test_every_script_is_used_and_every_used_one_exists() -> None:
    assert set(given_names()) | FOR_OTHER_LANGUAGES == set(script_names())


def test_every_part_is_used_and_every_used_one_exists() -> None:
    used = set[str]().union(*(parts_of(path.read_text()) for path in LUA.glob("*.lua")))

    assert used == {path.stem for path in (LUA / "lib").glob("*.lua")}


@pytest.mark.parametrize("name", script_names())
def test_a_script_begins_with_its_contract(name: str) -> None:
    head = (LUA / f"{name}.lua").read_text().partition("\n\n")[0]

    assert f"\n-- {name}: {contract(name)[:20]}" in head
