"""Types as text, and the imports that the text needs."""

import types
from collections.abc import Iterable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import UnsetType

_WIDTH = 120
Names = set[tuple[str, str]]  # module and name of what is to be imported


def text_of(kind: Any, names: Names) -> str:
    """The annotation; what it takes to understand it is added to `names`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is None or kind is type(None):
        return "None"
    if origin in (Union, types.UnionType):
        return " | ".join(text_of(each, names) for each in arguments)
    if origin is Literal:
        names.add(("typing", "Literal"))
        return f"Literal[{', '.join(_quoted(each) for each in arguments)}]"
    if kind is Any:
        names.add(("typing", "Any"))
        return "Any"
    if kind is Ellipsis:
        return "..."
    if origin is not None:
        return f"{text_of(origin, names)}[{', '.join(text_of(each, names) for each in arguments)}]"
    if kind is UnsetType:
        names.add(("msgspec", "UnsetType"))
    elif kind.__module__ != "builtins":
        names.add((kind.__module__, kind.__name__))
    name: str = kind.__name__
    return name


def _quoted(value: object) -> str:
    plain = value.value if isinstance(value, Enum) else value
    return f'"{plain}"' if isinstance(plain, str) else repr(plain)


def imports(names: Names, indent: int = 0) -> list[str]:
    """Lines in the order that the linter wants: the library, what is installed, our own."""
    groups: dict[int, dict[str, list[str]]] = {}
    for module, name in sorted(names):
        group = 2 if module.startswith("ade.") else 1 if module.startswith("msgspec") else 0
        groups.setdefault(group, {}).setdefault(module, []).append(name)
    blocks = [_block(groups[group], " " * indent) for group in sorted(groups)]
    return [line for index, block in enumerate(blocks) for line in ([""] if index else []) + block]


def _block(modules: dict[str, list[str]], space: str) -> list[str]:
    lines: list[str] = []
    for module, found in modules.items():
        in_order = sorted(found, key=lambda name: (not name.isupper(), not name[0].isupper(), name.lower()))
        line = f"{space}from {module} import {', '.join(in_order)}"
        if len(line) <= _WIDTH:
            lines.append(line)
        else:
            lines += [f"{space}from {module} import (", *(f"{space}    {name}," for name in in_order), f"{space})"]
    return lines


def filled(items: Iterable[str], indent: int) -> list[str]:
    """As many on a line as go there, with commas between."""
    lines: list[str] = []
    space = " " * indent
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 < _WIDTH:
            lines[-1] += f" {item},"
        else:
            lines.append(f"{space}{item},")
    return lines
