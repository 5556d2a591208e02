"""What the code says beside the fields of a record or form: the comment behind each, or behind the type it has."""

import ast
import inspect
import io
import tokenize
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any


def comments_of(record: type[Any]) -> Mapping[str, str]:
    """Field -> what is said about it. Fields that explain themselves are not in it."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base.__module__.startswith("ade."):
            found |= _own_comments(base)
    return found


def _own_comments(record: type[Any]) -> dict[str, str]:
    tree, behind = _parsed(record.__module__)
    [body] = [each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == record.__name__]
    found: dict[str, str] = {}
    for line in body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            names = [each.id for each in ast.walk(line.annotation) if isinstance(each, ast.Name)]
            places = (behind.get(line.end_lineno or 0, ""), *(_of_alias(record.__module__, name) for name in names))
            found[line.target.id] = next(filter(None, places), "")
    return {field: said for field, said in found.items() if said}


@cache
def _of_alias(module: str, name: str) -> str:
    """Of a type that has a name in this module, or where the module has it from."""
    tree, behind = _parsed(module)
    for line in tree.body:
        if isinstance(line, ast.Assign) and name in [each.id for each in line.targets if isinstance(each, ast.Name)]:
            return behind.get(line.end_lineno or 0, "")
        if isinstance(line, ast.ImportFrom) and name in [each.asname or each.name for each in line.names]:
            return _of_alias(line.module, name) if line.module and line.module.startswith("ade.") else ""
    return ""


@cache
def _parsed(module: str) -> tuple[ast.Module, dict[int, str]]:
    """The module, and what is said at the end of each of its lines."""
    source = inspect.getsource(import_module(module))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    said = {line: text for line, text in comments.items() if not text.startswith(("noqa", "type:", "fmt:"))}
    return ast.parse(source), said
