"""The structure of the package: its size, its names, and how its modules depend on each other.

The limits are goals of decision 0020. A limit above its goal is the present figure: it can only go down.
"""

import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ade.stores import ports, resource_ports
from tests.architecture.repository import ROOT, SOURCE, shown

MOST_MODULES, MOST_FILES = 392, 540
MOST_LINES = 86_500
SHORTEST_MODULE, LONGEST_MODULE, LONGEST_FUNCTION = 40, 500, 60
MOST_IN_A_DIRECTORY = 30
MOST_WITH_ONE_USER = 20
MOST_GERUNDS = 10
MOST_WITHOUT_DOCSTRING = 0
MOST_INNER_IMPORTS = 91  # goal: 60
MOST_PORT_METHODS = 96  # why not 60: decision 0021
SOURCE_SUFFIXES = {".py", ".sql", ".lua", ".toml", ".html", ".css", ".js"}
NAMES_WITHOUT_MEANING = {"utils", "util", "helpers", "helper", "misc", "manager"}
# One user in the same directory, on purpose: one file per agent program, per kind of record of a store, and per section
# of the client.
ONE_USER_ON_PURPOSE = ("ade.agents.protocols.", "ade.stores.redis.", "ade.stores.sqlite.", "ade.client.api.")

MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def dotted(module: Path) -> str:
    parts = [part for part in module.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
    return ".".join(["ade", *parts])


def imports(node: ast.AST, *, is_inner: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import below a node, and whether it is inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_inner
        else:
            yield from imports(child, is_inner=is_inner or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def users() -> dict[str, set[str]]:
    """Module -> the modules that import it."""
    known = {dotted(module) for module in MODULES}
    found: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        for node, _ in imports(tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ade":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[whole if whole in known else node.module].add(dotted(module))
    return found


def test_the_import_rule_holds() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{SOURCE.parent}{os.pathsep}{ROOT}", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_few_modules_and_source_files() -> None:
    files = [path for path in SOURCE.rglob("*") if path.suffix in SOURCE_SUFFIXES]

    assert len(MODULES) <= MOST_MODULES
    assert len(files) <= MOST_FILES


def test_the_package_does_not_grow() -> None:
    assert sum(module.read_text().count("\n") for module in MODULES) <= MOST_LINES


def test_modules_are_neither_fragments_nor_too_long() -> None:
    lengths = {shown(module): module.read_text().count("\n") for module in MODULES}
    fragments = {
        name: lines for name, lines in lengths.items() if lines < SHORTEST_MODULE and not name.endswith("__.py")
    }

    assert fragments == {}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{shown(module)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_directory_has_too_many_modules() -> None:
    counts = Counter(shown(module.parent) for module in MODULES)

    assert {name: count for name, count in counts.items() if count > MOST_IN_A_DIRECTORY} == {}


def test_few_modules_serve_one_neighbor() -> None:
    lonely = [
        module
        for module, found in users().items()
        if len(found) == 1
        and next(iter(found)).rpartition(".")[0] == module.rpartition(".")[0]
        and not module.startswith(ONE_USER_ON_PURPOSE)
    ]

    assert len(lonely) <= MOST_WITH_ONE_USER, sorted(lonely)


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in tree(module).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(shown(module))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_modules_are_named_after_things() -> None:
    gerunds = [shown(module) for module in MODULES if re.search(r"ing(_\w+)?$", module.stem)]

    assert len(gerunds) <= MOST_GERUNDS, gerunds
    assert [shown(module) for module in MODULES if module.stem in NAMES_WITHOUT_MEANING] == []


def test_few_imports_are_inside_functions() -> None:
    inner = Counter(
        shown(module)
        for module in MODULES
        if "client/api" not in shown(module)
        for _, is_inner in imports(tree(module))
        if is_inner
    )

    assert inner.total() <= MOST_INNER_IMPORTS, inner


def test_the_ports_of_a_store_stay_narrow() -> None:
    methods = [
        f"{kind.__name__}.{name}"
        for module in (ports, resource_ports)
        for kind in vars(module).values()
        if isinstance(kind, type) and getattr(kind, "_is_protocol", False) and kind.__module__ == module.__name__
        for name, member in vars(kind).items()
        if callable(member) and not name.startswith("_")
    ]

    assert len(methods) <= MOST_PORT_METHODS, sorted(methods)


def test_every_module_and_every_public_name_says_what_it_is() -> None:
    modules = [shown(module) for module in MODULES if not ast.get_docstring(tree(module))]
    missing = [
        f"{shown(module)}:{node.lineno} {node.name}"
        for module in MODULES
        for node in tree(module).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]

    assert modules == []
    assert len(missing) <= MOST_WITHOUT_DOCSTRING, missing
