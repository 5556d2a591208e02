"""The rooms keep their order, and nothing in them grows past reading."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import ROOT, SOURCE, shown

LONGEST_MODULE = 510
LONGEST_FUNCTION = 60
MODULES = sorted(SOURCE.rglob("*.py"))


def functions(module: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (
                f"{shown(module)}:{node.lineno} {node.name}",
                (node.end_lineno or node.lineno) - node.lineno + 1,
            )


def test_the_import_rule_holds() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    answer = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_no_module_is_too_long() -> None:
    lengths = {shown(module): len(module.read_text().splitlines()) for module in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_no_function_is_too_long() -> None:
    lengths = dict(found for module in MODULES for found in functions(module))

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

    assert [shown(module) for module in MODULES if module.stem in empty_names] == []
