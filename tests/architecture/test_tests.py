"""The tests themselves: each can fail, none waits for a clock without a reason, and few depend on internal modules."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.repository import ROOT, shown

TESTS = ROOT / "tests"
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Import lines of modules inside a feature (`ade.tasks.model`). Names that tests of many features use come from `ade` or
# from tests/domain.py. The figure can only go down.
MOST_INTERNAL_IMPORTS = 1_237  # half of the 2,475 that there were

# Where a real delay is the point. Waits for a condition are in tests/waiting.py; a test that is about a real clock is
# marked `realtime` and needs no line here.
SLEEPS = {
    "tests/waiting.py": (3, "the bounded waits that all others use, and the watch for a machine that stands still"),
    "tests/servers/proxy.py": (1, "a slow path is one of the faults it can have"),
    "tests/stores/sqlite/test_wakeups.py": (1, "measures how much CPU an idle process takes"),
    "tests/worker/process_tasks.py": (1, "a task that takes time to leave"),
    "tests/worker/remote/errands.py": (1, "a task that blocks the event loop"),
    "tests/faults/worker_program.py": (2, "tasks that take time, and one that blocks the event loop"),
    "tests/faults/test_lost_data.py": (1, "measures how much idle workers ask in a second"),
    "tests/faults/campaign/app.py": (2, "tasks that take time, on a loop and in a thread"),
    "tests/faults/campaign/course.py": (1, "the pace of the kills, in a program of minutes"),
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


def is_of_pytest(call: ast.Call, *names: str) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and function.attr in names and ast.unparse(function.value) == "pytest"


def can_fail(function: Function) -> bool:
    """Whether something is asserted in it, or an error is expected."""
    nodes = list(ast.walk(function))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in nodes) or any(
        is_of_pytest(call, "raises", "warns", "fail") for call in calls
    )


def helpers(path: Path) -> set[str]:
    """Functions that assert something, as the module names them: its own and those of other test modules."""
    found = {each.name for each in functions(path) if can_fail(each)}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            file = ROOT / f"{str(node.module).replace('.', '/')}.py"
            theirs = {each.name for each in functions(file) if can_fail(each)} if file.exists() else set()
            found |= {name.asname or name.name for name in node.names if name.name in theirs}
    return found


def called(function: Function) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {each.id for each in calls if isinstance(each, ast.Name)}


def test_every_test_asserts_something() -> None:
    without = [
        f"{shown(path)}::{function.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for function in functions(path)
        if function.name.startswith("test_") and not can_fail(function) and not called(function) & helpers(path)
    ]

    assert without == []


def is_sleep(node: ast.AST) -> bool:
    """A call that waits for a clock; `sleep(0)` only lets others have their turn."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep", "anyio.sleep"):
        return False
    return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def is_about_real_time(function: Function) -> bool:
    return any("realtime" in ast.unparse(mark) for mark in function.decorator_list)


def sleeps(path: Path) -> int:
    exempt = {id(node) for function in functions(path) if is_about_real_time(function) for node in ast.walk(function)}
    return sum(is_sleep(node) and id(node) not in exempt for node in ast.walk(tree_of(path)))


def test_no_test_sleeps_without_a_reason() -> None:
    found = Counter({shown(path): sleeps(path) for path in sorted(TESTS.rglob("*.py"))})

    assert +found == Counter({file: count for file, (count, _) in SLEEPS.items()})


def is_internal_import(node: ast.AST) -> bool:
    """Whether it names a module that is two or more levels below `ade`."""
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    else:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(module.startswith("ade.") and module.count(".") >= 2 for module in modules)


def test_few_imports_are_of_internal_modules() -> None:
    found = [node for path in TESTS.rglob("*.py") for node in ast.walk(tree_of(path)) if is_internal_import(node)]

    assert len(found) <= MOST_INTERNAL_IMPORTS
