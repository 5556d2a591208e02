"""The page on agent profiles lists what the reader of profiles and the handler of runs take, and nothing else."""

import ast
import re
from collections.abc import Iterable

from ade.agents.profile_documents import _LISTS
from ade.agents.profiles import VALUES
from tests.architecture.repository import ROOT

PAGE = (ROOT / "docs" / "reference" / "agent-profiles.md").read_text()
READER = ROOT / "src" / "ade" / "agents" / "profile_documents.py"
HANDLER = ROOT / "src" / "ade" / "agents" / "handlers.py"
_READS = {"text", "texts", "word", "whole", "duration", "flag", "table", "value", "has"}


def read_keys() -> set[str]:
    found = set(_LISTS)
    for node in ast.walk(ast.parse(READER.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in _READS | {"_word_lists", "_variables"}:
                found |= _texts(node.args)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            found |= _texts(node.iter.elts)
    return found - {"name"}


def _texts(nodes: Iterable[ast.expr]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_key_is_listed() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    listed = {word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert listed == read_keys()


def test_every_value_that_words_may_stand_for_is_listed() -> None:
    told = PAGE.partition("Words may stand for")[2].partition("Ids and")[0]

    assert set(re.findall(r"`\{(\w+)\}`", told)) == VALUES


def test_every_argument_of_a_run_is_listed() -> None:
    [function] = [
        node
        for node in ast.walk(ast.parse(HANDLER.read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "run_agent"
    ]
    told = PAGE.partition("## Arguments of a run")[2].partition("The program finds")[0].partition("take:")[2]

    assert {argument.arg for argument in function.args.args} - {"ctx"} <= set(re.findall(r"`(\w+)`", told))
