"""What only helps at a command line is said as advice, never in a sentence that others read over HTTP."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import ROOT

SOURCE = ROOT / "src" / "ade"
ROOMS = ("core", "events", "governance", "http", "insight", "operations", "queue")
COMMAND = re.compile(r"`ade [a-z]| --[a-z]{2,}")
FINDINGS = frozenset({"ok", "warning", "problem"})  # their third argument is the advice
ELSEWHERE = {
    "core/agent_runs/profile_reading.py",  # about the command line of an agent's program, told where workers start
    "core/agent_runs/built_in.py",
}


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts that somebody may be shown: neither hints nor docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.keyword) and node.arg == "advice":
            continue
        if isinstance(node, ast.Assign) and any("advice" in ast.unparse(target).lower() for target in node.targets):
            continue
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_advice"):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FINDINGS:
            yield from (each for part in node.args[:2] for each in texts(ast.Expression(part)))
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
        yield from texts(node)


def test_no_sentence_sends_people_to_a_command() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{text.lineno}: {text.value!r}"
        for room in ROOMS
        for path in sorted(Path(SOURCE, room).rglob("*.py"))
        if str(path.relative_to(SOURCE)) not in ELSEWHERE
        for text in texts(ast.parse(path.read_text()))
        if COMMAND.search(str(text.value))
    ]

    assert found == [], "say it as `advice=`, and the sentence without it"


def test_no_error_speaks_of_a_command_in_its_docstring() -> None:
    from tests.architecture.test_errors import all_errors

    above = ("ade.cli.", "ade.app.")
    found = [
        error.__name__
        for error in all_errors()
        if COMMAND.search(error.__doc__ or "") and not error.__module__.startswith(above)
    ]

    assert sorted(found) == ["AddressInUse", "NeedsStore"]  # of commands alone: no request can lead to them
