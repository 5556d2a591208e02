"""A class or function as it is declared: signature and docstring, taken from the source, without its body."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

_WIDTH = 100
_SPACED = re.compile(r"^(\w+: [^=]+)=")  # `limit: int=5` is how the parser writes it, not how people do
Function = ast.FunctionDef | ast.AsyncFunctionDef


def class_stub(kind: type[Any], members: Sequence[str]) -> str:
    """The class with its fields and these members, in this order. Raises KeyError for one not declared there."""
    node = _node_of(kind)
    declared = {item.name: item for item in node.body if isinstance(item, Function) and not _is_overload(item)}
    lines = [f"class {_class_head(node)}:", *_docstring(node, 4)]
    if fields := [f"    {ast.unparse(item)}".replace("'", '"') for item in _fields(node)]:
        lines += ["", *fields] if len(lines) > 1 else fields
    for name in members:
        lines += ["", *_function(declared[name], 4)]
    return _fenced(lines if len(lines) > 1 else [*lines, "    ..."])


def fields_of(kind: type[Any]) -> dict[str, str]:
    """The annotated fields of a class, as they are written."""
    return {ast.unparse(item.target): _annotation(item.annotation) for item in _fields(_node_of(kind))}


def _node_of(kind: type[Any]) -> ast.ClassDef:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return node


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [item for item in node.body if isinstance(item, ast.AnnAssign)]


def _annotation(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", "") if "Literal" not in ast.unparse(node) else ast.unparse(node)


def function_stub(function: Any) -> str:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(node, Function)
    return _fenced([*_decorators(node, 0), *_function(node, 0)])


def public_members(kind: type[Any]) -> set[str]:
    """What a class declares for others, its attributes aside."""
    return {
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property) or hasattr(value, "attrname"))
    }


def _fenced(lines: Sequence[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def _class_head(node: ast.ClassDef) -> str:
    """Type parameters and machinery tell a reader nothing; errors and their like say what they are."""
    bases = [base for base in map(ast.unparse, node.bases) if base in ("Exception", "AdeError", "StrEnum")]
    return f"{node.name}({', '.join(bases)})" if bases else node.name


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def _decorators(node: Function, indent: int) -> Iterator[str]:
    for decorator in map(ast.unparse, node.decorator_list):
        yield f"{' ' * indent}@{'property' if decorator == 'cached_property' else decorator}"


def _function(node: Function, indent: int) -> Iterator[str]:
    space = " " * indent
    if indent:
        yield from _decorators(node, indent)
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    answer = f" -> {_text(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    parameters = _parameters(node.args)
    line = f"{space}{word} {node.name}({', '.join(parameters)}){answer}:"
    docstring = list(_docstring(node, indent + 4))
    end = "" if docstring else " ..."
    if len(line) <= _WIDTH:
        yield line + end
    else:
        yield f"{space}{word} {node.name}("
        yield from (f"{space}    {parameter}," for parameter in parameters)
        yield f"{space}){answer}:{end}"
    yield from docstring


def _parameters(arguments: ast.arguments) -> list[str]:
    """As written, one by one."""
    split: list[str] = []
    depth = 0
    for part in ast.unparse(arguments).split(", "):
        if depth:
            split[-1] += f", {part}"
        else:
            split.append(part)
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
    return [_SPACED.sub(r"\1 = ", parameter).replace("'", '"') for parameter in split if parameter]


def _text(node: ast.expr) -> str:
    """An annotation in quotes is for the interpreter, not for readers."""
    return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _docstring(node: Function | ast.ClassDef, indent: int) -> Iterator[str]:
    text = ast.get_docstring(node)
    if text is None:
        return
    lines = text.splitlines()
    marked = [f'"""{lines[0]}', *lines[1:]]
    if len(lines) == 1:
        marked[0] += '"""'
    else:
        marked.append('"""')
    yield from (f"{' ' * indent}{line}".rstrip() for line in marked)
