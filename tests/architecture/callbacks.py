"""Callbacks that are put into an object after it was made, found in the syntax trees of a package."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_OWN = {"self", "cls"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class CallbackFinder:
    """Reads all modules first, because what an attribute holds is declared elsewhere than it is assigned."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._trees = {name: ast.parse(text) for name, text in modules.items()}
        self._methods = set(_method_names(self._trees.values()))
        self._aliases = set(_function_types(self._trees.values()))
        self._declared = set(self._declared_callbacks())

    def assigned_from_outside(self) -> list[str]:
        """`x.attribute = callback` for any x but self and cls."""
        found = []
        for name, tree in self._trees.items():
            functions = _functions_in(tree)
            for target, value in _all_assignments(tree):
                if _is_foreign(target) and self._may_be_callback(target, value, functions):
                    found.append(f"{name}:{target.lineno} {ast.unparse(target)}")
        return sorted(found)

    def replaced_placeholders(self) -> list[str]:
        """Attributes that begin as a function of the module and are assigned again."""
        assigned = (target for tree in self._trees.values() for target, _ in _all_assignments(tree))
        foreign = {target.attr for target in assigned if _is_foreign(target)}
        found = []
        for name, tree in self._trees.items():
            functions = {node.name for node in tree.body if isinstance(node, _Function)}
            for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
                first = dict(_initial(owner, functions))
                again = {target.attr for target in _assigned_again(owner)} | foreign
                found += [f"{name}:{line} {owner.name}.{each}" for each, line in first.items() if each in again]
        return sorted(found)

    def _may_be_callback(self, target: ast.Attribute, value: ast.expr, functions: set[str]) -> bool:
        if target.attr in self._declared and isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
            return True
        return self._is_callback(value, functions)

    def _is_callback(self, value: ast.expr, functions: set[str]) -> bool:
        match value:
            case ast.Lambda():
                return True
            case ast.Name(id=name):
                return name in functions
            case ast.Attribute(attr=name):
                return name in self._methods
            case ast.Call(func=ast.Name(id="partial")):
                return True
            case ast.IfExp(body=body, orelse=other):
                return self._is_callback(body, functions) or self._is_callback(other, functions)
        return False

    def _declared_callbacks(self) -> Iterator[str]:
        """Attributes of `self`, and fields, that are declared to hold a function."""
        for tree in self._trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.AnnAssign) and self._is_function_type(node.annotation):
                    if isinstance(node.target, ast.Attribute):
                        yield node.target.attr
                    elif isinstance(node.target, ast.Name) and node.col_offset:  # a field of a class
                        yield node.target.id

    def _is_function_type(self, annotation: ast.expr) -> bool:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        match annotation:
            case ast.Name(id=name):
                return name in self._aliases
            case ast.Subscript(value=ast.Name(id="Callable")):
                return True
            case ast.BinOp(left=left, right=right):
                return self._is_function_type(left) or self._is_function_type(right)
        return False


def _assignments(node: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Attributes that a statement assigns, each with its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs = [pair for target in targets for pair in _unpacked(target, value)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case _:
            return
    yield from ((target, value) for target, value in pairs if isinstance(target, ast.Attribute))


def _all_assignments(tree: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    for node in ast.walk(tree):
        yield from _assignments(node)


def _unpacked(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(each, value) for each in target.elts]


def _is_foreign(target: ast.Attribute) -> bool:
    return not (isinstance(target.value, ast.Name) and target.value.id in _OWN)


def _method_names(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Of all classes, without properties and without names that some class also has as data."""
    methods: set[str] = set()
    data: set[str] = set()
    for tree in trees:
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for node in owner.body:
                if isinstance(node, _Function):
                    (data if any("property" in ast.unparse(each) for each in node.decorator_list) else methods).add(
                        node.name
                    )
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    data.add(node.target.id)
            data.update(target.attr for target, _ in _all_assignments(owner))
    yield from methods - data


def _function_types(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Names that modules give to types of functions: `Perform = Callable[...]` and protocols with `__call__`."""
    for tree in trees:
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id="Callable"))):
                    yield name
                case ast.ClassDef(name=name, body=body):
                    if any(isinstance(each, _Function) and each.name == "__call__" for each in body):
                        yield name


def _functions_in(tree: ast.Module) -> set[str]:
    """Functions of the module, and those inside functions, which are often made to be called back."""
    outer = [node for node in tree.body if isinstance(node, _Function)]
    every = (node for node in ast.walk(tree) if isinstance(node, _Function))
    inner = (each for node in every for statement in node.body for each in ast.walk(statement))
    return {node.name for node in (*outer, *inner) if isinstance(node, _Function)}


def _initial(owner: ast.ClassDef, functions: set[str]) -> Iterator[tuple[str, int]]:
    """Attributes that `__init__` sets to a function of the module."""
    for method in owner.body:
        if isinstance(method, _Function) and method.name == "__init__":
            for target, value in _all_assignments(method):
                if isinstance(value, ast.Name) and value.id in functions:
                    yield target.attr, target.lineno


def _assigned_again(owner: ast.ClassDef) -> Iterator[ast.Attribute]:
    for method in owner.body:
        if isinstance(method, _Function) and method.name != "__init__":
            yield from (target for target, _ in _all_assignments(method))


def read_package(folder: Path) -> CallbackFinder:
    return CallbackFinder({str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))})
