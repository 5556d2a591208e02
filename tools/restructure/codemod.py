"""Move, merge, and rename the modules of `ade` as the tables beside this script say.

    python tools/restructure/codemod.py [ROOT]

Reads moves.csv (module -> target), renames.csv (name -> new name), splits.csv (names that leave their module), rewrites
`src/ade`, and updates every import, string path, and monkeypatch target in src, tests, docs, benchmarks, and requirements.
It changes no logic: definitions keep their text, apart from the names in it.
"""

import ast
import csv
import re
import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
problems: list[str] = []


def dotted(path: str) -> str:
    return ("ade." + path[:-3].replace("/", ".")).removesuffix(".__init__").removesuffix("ade.__init__") or "ade"


# ---------------------------------------------------------------- what there is


@dataclass
class Module:
    """One module of the old tree."""

    path: str  # below src/ade
    text: str
    tree: ast.Module = field(init=False)
    defs: set[str] = field(default_factory=set)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)  # bound name -> (module, name)
    modules: dict[str, str] = field(default_factory=dict)  # bound name -> module

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    @property
    def dotted(self) -> str:
        name = "ade." + self.path[:-3].replace("/", ".")
        return "ade" if name == "ade.__init__" else name.removesuffix(".__init__")


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def only_imports(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and is_type_checking(node)
        and not node.orelse
        and all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)
    )


def bound_at_top(statements: list[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
        elif isinstance(node, ast.If):
            yield from bound_at_top(node.body)
            yield from bound_at_top(node.orelse)
        elif isinstance(node, ast.Try):
            yield from bound_at_top(node.body)
        elif isinstance(node, ast.For):
            yield from (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))


class Tree:
    """The old package, and where everything in it goes."""

    def __init__(self, source: Path) -> None:
        self.modules = {}
        for path in sorted(source.rglob("*.py")):
            module = Module(str(path.relative_to(source)), path.read_text())
            self.modules[module.dotted] = module
        for module in self.modules.values():
            module.defs = set(bound_at_top(module.tree.body))
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ade":
                    for alias in node.names:
                        kind, value = self.target_of(node.module or "", alias.name)
                        bound = alias.asname or alias.name
                        if kind == "module":
                            module.modules[bound] = value
                        else:
                            module.names[bound] = (node.module or "", alias.name)
        self.moves = {row["old"]: row["new"] for row in _rows("moves.csv")}
        self.renames: dict[tuple[str, str], str] = {}
        for row in _rows("renames.csv"):
            if not row["why"].startswith(("Lua", "SQL")):
                self.renames[dotted(row["where"].split(" -> ")[0]), row["old"]] = row["new"]
        self.splits = {}
        for row in _rows("splits.csv"):
            for name in row["names"].split():
                self.splits[dotted(row["old"]), name] = row["new"]
        for module in self.modules.values():
            if module.path not in self.moves:
                problems.append(f"not mapped: {module.path}")
                self.moves[module.path] = module.path

    def target_of(self, module: str, name: str) -> tuple[str, str]:
        """What `from module import name` brings: a module, or a name of one."""
        whole = f"{module}.{name}"
        if whole in self.modules and not (module in self.modules and name in self.modules[module].defs):
            return "module", whole
        return "name", name

    def define(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that is imported from a module is defined."""
        seen = set()
        while module in self.modules and (module, name) not in seen:
            seen.add((module, name))
            here = self.modules[module]
            if name in here.defs or name not in here.names or module == "ade":
                break
            module, name = here.names[name]
        return module, name

    def new_module(self, module: str) -> str:
        if module not in self.modules:
            return module
        return dotted(self.moves[self.modules[module].path])

    def home(self, module: str, name: str) -> str:
        """The new module of a definition."""
        if (module, name) in self.splits:
            return dotted(self.splits[module, name])
        return self.new_module(module)

    def new_name(self, module: str, name: str) -> str:
        return self.renames.get((module, name), name)


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open() as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- scopes


@dataclass
class Scope:
    kind: str  # "function" or "class"
    bound: set[str]
    imports: dict[str, "Binding"] = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    """What an import of ours binds: an entity (module, name), or a whole module (module, None)."""

    module: str
    name: str | None


def bound_in(node: ast.AST) -> set[str]:
    """Names that a function or class binds in its own scope."""
    bound: set[str] = set()
    outer: set[str] = set()
    if isinstance(node, FUNCTIONS):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        bound |= {each.arg for each in every if each}
    stack: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]  # type: ignore[attr-defined]
    while stack:
        each = stack.pop()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(each.name)
            stack += each.decorator_list
            continue
        if isinstance(each, ast.Lambda):
            continue
        if isinstance(each, COMPREHENSIONS):
            bound |= {w.target.id for w in ast.walk(each) if isinstance(w, ast.NamedExpr)}
            continue
        if isinstance(each, ast.Global | ast.Nonlocal):
            outer |= set(each.names)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
            bound.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0] for alias in each.names}
        elif isinstance(each, ast.ExceptHandler) and each.name:
            bound.add(each.name)
        elif isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
            bound.add(each.name)
        elif isinstance(each, ast.MatchMapping) and each.rest:
            bound.add(each.rest)
        stack += ast.iter_child_nodes(each)
    return bound - outer


class Rewriter:
    """Collects the edits of one file. Offsets are in bytes, as those of `ast`."""

    def __init__(self, tree: Tree, name: str, text: str, new_module: str | None, module: str | None) -> None:
        self.tree, self.name, self.source = tree, name, text.encode()
        self.ast = ast.parse(text)
        self.module = module  # the old module that this file is, if it is one
        self.new_module = new_module
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.edits: list[tuple[int, int, bytes]] = []
        self.top: dict[str, Binding] = {}
        self.runtime_top: set[str] = set()
        self.aliases: dict[Binding, str] = {}  # names under which the merged module binds things
        self.top_runtime_bindings: set[Binding] = set()
        self.module_uses: dict[tuple[int, str], set[str]] = defaultdict(set)  # (scope id, alias) -> new modules used
        self.bound_anywhere = {
            each.id for each in ast.walk(self.ast) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        } | {each.arg for each in ast.walk(self.ast) if isinstance(each, ast.arg)}
        self.top_bound = set(bound_at_top(self.ast.body))
        if module is not None:
            self.top_bound = self.top_bound | tree.modules[module].defs
        self.extra: set[tuple[str, str, str | None]] = set()  # own names that have left
        for node in self.ast.body:
            for each in node.body if only_imports(node) else [node]:  # type: ignore[attr-defined]
                if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] == "ade":
                    for bound, binding in self.bindings(each):
                        self.top[bound] = binding
                        if each is node:
                            self.runtime_top.add(bound)

    # -- positions

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.at(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.at(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def replace(self, start: int, end: int, text: str) -> None:
        if self.source[start:end] != text.encode():
            self.edits.append((start, end, text.encode()))

    def result(self, start: int = 0, end: int | None = None) -> str:
        end = len(self.source) if end is None else end
        pieces, at = [], start
        for first, last, text in sorted(set(self.edits)):
            if first < start or last > end:
                continue
            if first < at:
                problems.append(f"{self.name}: edits overlap at byte {first}")
                continue
            pieces += [self.source[at:first], text]
            at = last
        pieces.append(self.source[at:end])
        return b"".join(pieces).decode()

    # -- names

    def bindings(self, node: ast.ImportFrom) -> Iterator[tuple[str, Binding]]:
        for alias in node.names:
            kind, value = self.tree.target_of(node.module or "", alias.name)
            bound = alias.asname or alias.name
            if kind == "module":
                yield bound, Binding(value, None)
            else:
                yield bound, Binding(*self.tree.define(node.module or "", alias.name))

    def new_binding(self, bound: str, binding: Binding) -> str:
        """The name that stands for a name bound by an import, in the new file."""
        if binding in self.aliases:
            return self.aliases[binding]
        if binding.name is None:
            raise AssertionError("modules are named where they are used")
        if binding.module == "ade":
            return bound
        if bound != binding.name:  # imported under another name: it stays, unless it is now the name itself
            return bound
        return self.tree.new_name(binding.module, binding.name)

    def new_own(self, name: str) -> str:
        """The new name of a definition of this module."""
        assert self.module is not None
        return self.tree.new_name(self.module, name)

    def lookup(self, name: str, scopes: list[Scope]) -> tuple[Scope | None, bool]:
        """The scope that binds a name; None for the module's own."""
        for index, scope in enumerate(reversed(scopes)):
            if scope.kind == "class" and index > 0:
                continue
            if name in scope.bound:
                return scope, True
        return None, False

    def named(self, name: str, scopes: list[Scope]) -> str | None:
        """The new form of a plain name where it is used; None if it stays as it is. Modules are not for here."""
        scope, is_local = self.lookup(name, scopes)
        if is_local and scope is not None:
            binding = scope.imports.get(name)
            if binding is None or binding.name is None:
                return None
            return self.new_binding(name, binding)
        new: str | None = None
        if name in self.top and self.top[name].name is not None:
            new = self.new_binding(name, self.top[name])
        elif self.module is not None and name in self.top_bound:
            new = self.new_own(name)
            home = self.tree.home(self.module, name)
            if home != self.new_module and self.new_module is not None:
                self.extra.add((home, new, None))
        if new is not None and new != name:
            for each in scopes:
                if each.kind == "function" and new in each.bound:
                    problems.append(f"{self.name}: {name} -> {new} is captured by a local name")
        return new

    def module_of(self, name: str, scopes: list[Scope]) -> tuple[str, int] | None:
        scope, is_local = self.lookup(name, scopes)
        if is_local and scope is not None:
            binding = scope.imports.get(name)
            return (binding.module, id(scope)) if binding is not None and binding.name is None else None
        binding = self.top.get(name)
        return (binding.module, 0) if binding is not None and binding.name is None else None

    def module_alias(self, new_module: str) -> str:
        return self.aliases.get(Binding(new_module, None)) or self.choose_alias(new_module)

    def choose_alias(self, new_module: str) -> str:
        parts = new_module.split(".")
        taken = self.bound_anywhere | self.top_bound
        mine = {name for name, binding in self.top.items() if binding.name is not None}
        generic = {"api", "client", "errors", "model", "options", "repository", "requests", "rules", "service", "views"}
        short = () if parts[-1] in generic else (parts[-1],)
        for candidate in (*short, "_".join(parts[-2:]), f"{parts[-1]}_module"):
            if candidate not in taken and candidate not in mine and candidate not in self.aliases.values():
                self.aliases[Binding(new_module, None)] = candidate
                return candidate
        problems.append(f"{self.name}: no alias for {new_module}")
        return parts[-1]

    # -- the walk

    def walk(self) -> None:
        for node in self.ast.body:
            self.visit(node, [])

    def visit(self, node: ast.AST, scopes: list[Scope]) -> None:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is not None:
            method(node, scopes)
        else:
            for child in ast.iter_child_nodes(node):
                self.visit(child, scopes)

    def visit_Import(self, node: ast.Import, scopes: list[Scope]) -> None:
        for alias in node.names:
            if alias.name.startswith("ade."):
                start, end = self.span(node)
                self.replace(start, end, f"import {self.tree.new_module(alias.name)}")

    def visit_ImportFrom(self, node: ast.ImportFrom, scopes: list[Scope]) -> None:
        pass  # after the walk

    def function_scope(self, node: ast.AST) -> Scope:
        scope = Scope("function", bound_in(node))
        stack: list[ast.AST] = list(node.body) if isinstance(node.body, list) else []  # type: ignore[attr-defined]
        while stack:
            each = stack.pop()
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                continue
            if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] == "ade":
                scope.imports.update(self.bindings(each))
                self.local_imports.append((each, scope))
            stack += ast.iter_child_nodes(each)
        return scope

    local_imports: list[tuple[ast.ImportFrom, Scope]]

    def visit_FunctionDef(self, node: ast.FunctionDef, scopes: list[Scope]) -> None:
        for each in [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(each, scopes)
        self.annotations(node.args, node.returns, scopes)
        if not scopes and self.module is not None:
            self.rename_definition(node)
        inner = [*scopes, self.function_scope(node)]
        for each in node.body:
            self.visit(each, inner)

    visit_AsyncFunctionDef = visit_FunctionDef

    def annotations(self, arguments: ast.arguments, returns: ast.expr | None, scopes: list[Scope]) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for each in [*(a.annotation for a in every if a), returns]:
            if each is not None:
                self.annotation(each, scopes)

    def annotation(self, node: ast.expr, scopes: list[Scope]) -> None:
        """Names in it, in strings as well."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.quoted(node, scopes)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            self.visit(node.value, scopes)
        else:
            if isinstance(node, ast.Name | ast.Attribute | ast.Call):
                self.visit(node, scopes)
                return
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.annotation(child, scopes)

    def quoted(self, node: ast.Constant, scopes: list[Scope]) -> None:
        start, end = self.span(node)
        literal = self.source[start:end].decode()

        def change(match: re.Match[str]) -> str:
            whole, first, attribute = match.group(0), match.group(1), match.group(2)
            if attribute and (found := self.module_of(first, scopes)):
                home, new = self.through_module(found, attribute)
                return f"{self.module_alias(home)}.{new}" if home != self.new_module else new
            new_name = self.named(first, scopes)
            return whole if new_name is None else new_name + (f".{attribute}" if attribute else "")

        self.replace(start, end, re.sub(r"(?<![\w.\"'])([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?", change, literal) if not literal.startswith(("'", '"')) else literal[0] + re.sub(r"(?<![\w.])([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?", change, literal[1:-1]) + literal[-1])

    def through_module(self, found: tuple[str, int], attribute: str) -> tuple[str, str]:
        module, scope = found
        entity = self.tree.define(module, attribute)
        if entity[0] in self.tree.modules and attribute in self.tree.modules[entity[0]].defs | {entity[1]}:
            defined = entity[1] in self.tree.modules[entity[0]].defs
            if not defined:  # something the module imports from outside: `module.time`
                entity = (module, attribute)
        home, new = self.tree.home(*entity), self.tree.new_name(*entity)
        if entity[1] not in self.tree.modules[entity[0]].defs:
            home = self.tree.new_module(module)
        return home, new

    def visit_AnnAssign(self, node: ast.AnnAssign, scopes: list[Scope]) -> None:
        self.visit(node.target, scopes)
        self.annotation(node.annotation, scopes)
        if node.value is not None:
            self.visit(node.value, scopes)

    def visit_Subscript(self, node: ast.Subscript, scopes: list[Scope]) -> None:
        self.visit(node.value, scopes)
        parts = ast.walk(node.slice) if isinstance(node.value, ast.Name) and node.value.id[0].isupper() else ()
        for each in parts:
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value[:1].isupper():
                self.quoted(each, scopes)
        self.visit(node.slice, scopes)

    def visit_ClassDef(self, node: ast.ClassDef, scopes: list[Scope]) -> None:
        for each in [*node.decorator_list, *node.bases, *node.keywords]:
            if isinstance(each, ast.Subscript):
                self.annotation(each, scopes)
            else:
                self.visit(each, scopes)
        if not scopes and self.module is not None:
            self.rename_definition(node)
        inner = [*scopes, Scope("class", bound_in(node))]
        for each in node.body:
            self.visit(each, inner)

    def rename_definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        new = self.new_own(node.name)
        if new != node.name:
            start = self.at(node.lineno, node.col_offset)
            match = re.compile(rb"(?:async\s+def|def|class)\s+").match(self.source, start)
            assert match is not None
            self.replace(match.end(), match.end() + len(node.name.encode()), new)

    def visit_Lambda(self, node: ast.Lambda, scopes: list[Scope]) -> None:
        for each in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(each, scopes)
        self.visit(node.body, [*scopes, Scope("function", bound_in(node))])

    def comprehension(self, node: ast.AST, scopes: list[Scope]) -> None:
        generators = node.generators  # type: ignore[attr-defined]
        self.visit(generators[0].iter, scopes)
        bound = {
            each.id for g in generators for each in ast.walk(g.target) if isinstance(each, ast.Name)
        }
        inner = [*scopes, Scope("function", bound)]
        for index, generator in enumerate(generators):
            if index:
                self.visit(generator.iter, inner)
            for condition in generator.ifs:
                self.visit(condition, inner)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part), inner)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def visit_Name(self, node: ast.Name, scopes: list[Scope]) -> None:
        found = self.module_of(node.id, scopes)
        if found is not None:  # the module itself, as an argument
            home = self.tree.new_module(found[0])
            self.module_uses[found[1], node.id].add(home)
            self.replace(*self.span(node), self.module_alias(home))
            return
        new = self.named(node.id, scopes)
        if new is not None:
            self.replace(*self.span(node), new)

    def visit_Attribute(self, node: ast.Attribute, scopes: list[Scope]) -> None:
        if isinstance(node.value, ast.Name) and (found := self.module_of(node.value.id, scopes)):
            home, new = self.through_module(found, node.attr)
            if home == self.new_module:
                self.replace(*self.span(node), new)
                for each in scopes:
                    if each.kind == "function" and new in each.bound:
                        problems.append(f"{self.name}:{node.lineno}: {node.value.id}.{node.attr} -> {new} is captured")
            else:
                self.module_uses[found[1], node.value.id].add(home)
                self.replace(*self.span(node), f"{self.module_alias(home)}.{new}")
            return
        self.visit(node.value, scopes)

    def visit_Global(self, node: ast.Global, scopes: list[Scope]) -> None:
        if self.module is not None:
            for name in node.names:
                if self.new_own(name) != name:
                    problems.append(f"{self.name}:{node.lineno}: global {name}")

    def visit_Call(self, node: ast.Call, scopes: list[Scope]) -> None:
        called = ast.unparse(node.func)
        if called.endswith(("setattr", "patch.object")) and len(node.args) >= 2:
            first, second = node.args[:2]
            if (
                isinstance(first, ast.Name)
                and isinstance(second, ast.Constant)
                and isinstance(second.value, str)
                and (found := self.module_of(first.id, scopes))
            ):
                module = self.tree.modules[found[0]]
                entity = self.tree.define(found[0], second.value)
                is_split = entity in self.tree.splits and entity[0] == found[0]
                home = self.tree.home(*entity) if is_split else self.tree.new_module(module.dotted)
                self.module_uses[found[1], first.id].add(home)
                self.replace(*self.span(first), self.module_alias(home))
                new = self.tree.new_name(*entity)
                self.replace(*self.span(second), f'"{new}"')
                for each in [*node.args[2:], *(k.value for k in node.keywords)]:
                    self.visit(each, scopes)
                return
        if called in ("TypeVar", "NewType", "ParamSpec") and isinstance(node.args[0], ast.Constant):
            name = node.args[0].value
            if not scopes and self.module is not None and name in self.top_bound:
                self.replace(*self.span(node.args[0]), f'"{self.new_own(name)}"')
        if called in ("cast", "TypeVar") and node.args and isinstance(node.args[0], ast.Constant) and called == "cast":
            self.annotation(node.args[0], scopes)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg == "bound":
                self.annotation(child.value, scopes)
            else:
                self.visit(child, scopes)

    def visit_Constant(self, node: ast.Constant, scopes: list[Scope]) -> None:
        if isinstance(node.value, str) and "ade." in node.value:
            start, end = self.span(node)
            if start < end and self.source[start:end].count(b"{") and self.source[start : start + 1] not in b"\"'":
                return  # a piece of an f-string
            text = self.source[start:end].decode()
            program = self.program(text)
            if program is not None:
                self.replace(start, end, program)
                return
            text = re.sub(r"(?m)^( *)from (ade\.[a-z_.]+) import ([A-Za-z_, ]+)$", self.program_import, text)
            self.replace(start, end, new_paths(self.tree, text))

    def program(self, literal: str) -> str | None:
        """The text of a program that a test starts; None if it is something else."""
        quotes = '"""'
        if not literal.startswith(quotes) or "import" not in literal or "\\" in literal:
            return None
        text = literal[3:-3]
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        if not re.search(r"^(from|import) ", text, re.MULTILINE):
            return None
        return quotes + rewrite_in_place(self.tree, f"{self.name} (program)", text, None, None) + quotes

    def program_import(self, match: re.Match[str]) -> str:
        """An import in the text of a program that a test starts."""
        lines = []
        for name in match.group(3).split(","):
            entity = self.tree.define(match.group(2), name.strip())
            lines.append((self.tree.home(*entity), self.tree.new_name(*entity), None))
        return match.group(1) + statement(lines, match.group(1))

    # -- imports

    def import_lines(self, node: ast.ImportFrom, scope: Scope | None) -> list[tuple[str, str, str | None]]:
        """(module, name, alias) that stand for an import of ours in the new file."""
        lines: list[tuple[str, str, str | None]] = []
        for alias in node.names:
            bound = alias.asname or alias.name
            kind, value = self.tree.target_of(node.module or "", alias.name)
            if kind == "module":
                for home in sorted(self.module_uses.get((id(scope) if scope else 0, bound), ())):
                    package, _, last = home.rpartition(".")
                    chosen = self.module_alias(home)
                    lines.append((package, last, chosen if chosen != last else None))
                continue
            binding = Binding(*self.tree.define(node.module or "", alias.name))
            home, new = self.tree.home(binding.module, binding.name or ""), self.new_binding(bound, binding)
            name = self.tree.new_name(binding.module, binding.name or "")
            if binding.module == "ade":
                home, name = "ade", binding.name or ""
            if home == self.new_module and name == new:
                continue
            if home == self.new_module:
                problems.append(f"{self.name}:{node.lineno}: {bound} is an alias of a name of the same module")
                continue
            is_export = alias.asname == alias.name and self.module == "ade"
            explicit = new if new != name or is_export else None
            lines.append((home, name, explicit))
        return lines


def statement(lines: list[tuple[str, str, str | None]], indent: str) -> str:
    grouped: dict[str, list[str]] = defaultdict(list)
    for module, name, alias in lines:
        grouped[module].append(f"{name} as {alias}" if alias else name)
    return f"\n{indent}".join(f"from {module} import {', '.join(sorted(set(names)))}" for module, names in sorted(grouped.items()))


_PATH = re.compile(r"\bade(?:\.[a-z_][a-z_0-9]*)+(?:\.[A-Za-z_]\w*|:[A-Za-z_]\w*)?")


def new_paths(tree: Tree, text: str) -> str:
    """Module paths in a text, with an attribute behind them or not."""

    def change(match: re.Match[str]) -> str:
        whole = match.group(0)
        parts = re.split(r"[.:]", whole)
        for length in range(len(parts), 1, -1):
            module = ".".join(parts[:length])
            if module not in tree.modules or whole[len(module) : len(module) + 1] not in (".", ":", ""):
                continue
            rest = parts[length:]
            if length == 2 and not (rest and rest[0] in tree.modules[module].defs | set(tree.modules[module].names)):
                return whole  # `ade.worker` and the like: names of loggers
            if not rest:
                return tree.new_module(module)
            separator = whole[len(module)]
            entity = tree.define(module, rest[0])
            home = tree.home(*entity) if entity in tree.splits and entity[0] == module else tree.new_module(module)
            new = tree.new_name(*entity)
            return home + separator + ".".join([new, *rest[1:]])
        return whole

    return _PATH.sub(change, text)


def rewrite_in_place(tree: Tree, name: str, text: str, new_module: str | None, module: str | None) -> str:
    """A file that keeps its own text, apart from names and imports."""
    rewriter = Rewriter(tree, name, text, new_module, module)
    rewriter.local_imports = []
    if new_module is None or True:
        _alias_conflicts([rewriter])
    rewriter.walk()
    local = {id(node): scope for node, scope in rewriter.local_imports}
    for node in ast.walk(rewriter.ast):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ade":
            scope = local.get(id(node))
            lines = rewriter.import_lines(node, scope)
            _put_import(rewriter, node, lines)
    _comments(tree, rewriter)
    return rewriter.result()


def _put_import(rewriter: Rewriter, node: ast.ImportFrom, lines: list[tuple[str, str, str | None]]) -> None:
    start, end = rewriter.span(node)
    indent = " " * node.col_offset
    if lines:
        rewriter.replace(start, end, statement(lines, indent))
        return
    line_start = rewriter.starts[node.lineno - 1]
    line_end = rewriter.starts[node.end_lineno or node.lineno]
    rewriter.edits.append((line_start, line_end, b""))


def _comments(tree: Tree, rewriter: Rewriter) -> None:
    """Module paths in comments."""
    import io
    import tokenize

    for token in tokenize.generate_tokens(io.StringIO(rewriter.source.decode()).readline):
        if token.type == tokenize.COMMENT and "ade." in token.string:
            line = rewriter.source[rewriter.starts[token.start[0] - 1] :].decode().split("\n", 1)[0]
            column = len(line[: token.start[1]].encode())
            start = rewriter.at(token.start[0], column)
            rewriter.replace(start, start + len(token.string.encode()), new_paths(tree, token.string))


def _alias_conflicts(rewriters: list[Rewriter]) -> None:
    """Give an alias to what would be bound twice under one name in the merged module."""
    shared: dict[Binding, str] = {}
    taken: dict[str, object] = {}
    for rewriter in rewriters:
        if rewriter.module is not None:
            for name in rewriter.top_bound:
                entity = (rewriter.module, name)
                if rewriter.tree.home(*entity) == rewriter.new_module:
                    taken[rewriter.tree.new_name(*entity)] = entity
    for rewriter in rewriters:
        for node in _external(rewriter):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                what = (getattr(node, "module", None), alias.name if isinstance(node, ast.ImportFrom) else bound)
                if taken.setdefault(bound, what) != what:
                    problems.append(f"{rewriter.name}: {bound} is bound to {taken[bound]} and {what}")
    bound_anywhere = set().union(*(each.bound_anywhere for each in rewriters))
    for rewriter in rewriters:
        for bound, binding in rewriter.top.items():
            if binding.name is None or binding in shared:
                continue
            home, name = rewriter.tree.home(binding.module, binding.name), rewriter.tree.new_name(binding.module, binding.name)
            if home == rewriter.new_module:
                shared[binding] = name
                continue
            chosen = bound if bound != binding.name else name
            what = (binding.module, binding.name)
            if taken.setdefault(chosen, what) != what:
                other = f"{home.rpartition('.')[2]}_{name}" if name[0].islower() else f"{home.rpartition('.')[2].title()}{name}"
                problems.append(f"note: {rewriter.name}: {chosen} of {home} is imported as {other}")
                taken[other] = what
                chosen = other
            shared[binding] = chosen
    for rewriter in rewriters:
        rewriter.aliases = shared
        rewriter.bound_anywhere = bound_anywhere | set(taken)


def _external(rewriter: Rewriter) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in rewriter.ast.body:
        for each in node.body if only_imports(node) else [node]:  # type: ignore[attr-defined]
            if isinstance(each, ast.Import) or (
                isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] != "ade"
            ):
                yield each


# ---------------------------------------------------------------- merging


def order(tree: Tree, modules: list[Module]) -> list[Module]:
    """Those that others need at load time first; otherwise the largest first, and a program's start last."""
    inside = {module.dotted for module in modules}

    def needs(module: Module) -> set[str]:
        found = set()
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ade":
                for alias in node.names:
                    kind, value = tree.target_of(node.module or "", alias.name)
                    found.add(value if kind == "module" else tree.define(node.module or "", alias.name)[0])
        return (found & inside) - {module.dotted}

    waiting = sorted(modules, key=lambda m: ("__main__" in m.text, -len(m.text)))
    done: list[Module] = []
    while waiting:
        for module in waiting:
            if needs(module) <= {each.dotted for each in done}:
                done.append(module)
                waiting.remove(module)
                break
        else:
            problems.append(f"cycle inside a merge: {[module.path for module in waiting]}")
            return done + waiting
    return done


def merge(tree: Tree, target: str, modules: list[Module]) -> str:
    new_module = dotted(target)
    modules = order(tree, modules)
    rewriters = [Rewriter(tree, module.path, module.text, new_module, module.dotted) for module in modules]
    for rewriter in rewriters:
        rewriter.local_imports = []
    _alias_conflicts(rewriters)
    runtime: dict[tuple[str, ...], None] = {}
    typing_only: dict[tuple[str, ...], None] = {}
    remarks: list[str] = []
    bodies: list[str] = []
    docstrings: list[str] = []
    seen: dict[str, str | None] = {}
    for rewriter in rewriters:
        rewriter.walk()
        for line in rewriter.extra:
            runtime[("ours", *(part or "" for part in line))] = None
    top_runtime: set[tuple[str, str, str | None]] = set()
    for rewriter in rewriters:
        for node in rewriter.ast.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ade":
                top_runtime |= set(rewriter.import_lines(node, None))
    for rewriter, module in zip(rewriters, modules, strict=True):
        for node in rewriter.ast.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                _collect(rewriter, node, runtime)
            elif only_imports(node):
                line = rewriter.source[rewriter.starts[node.lineno - 1] : rewriter.starts[node.lineno]].decode()
                if "#" in line:
                    remarks.append(line[line.index("#") :].strip())
                for each in node.body:  # type: ignore[attr-defined]
                    _collect(rewriter, each, typing_only)
        for node, scope in rewriter.local_imports:
            lines = [each for each in rewriter.import_lines(node, scope) if each not in top_runtime]
            _put_import(rewriter, node, lines)
        _comments(tree, rewriter)
        docstrings.append(new_paths(tree, ast.get_docstring(rewriter.ast, clean=False) or ""))
        bodies.append(_body(rewriter, module, seen))
    flagged = any(re.search(r"^TYPE_CHECKING = False", module.text, re.MULTILINE) for module in modules)
    text = _assemble(target, modules, docstrings, bodies, runtime, typing_only, remarks, flagged)
    return text


def _collect(rewriter: Rewriter, node: ast.stmt, into: dict[tuple[str, ...], None]) -> None:
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ade":
        for line in rewriter.import_lines(node, None):
            into[("ours", *(part or "" for part in line))] = None
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            into[("from", node.module or "", alias.name, alias.asname or "")] = None
    elif isinstance(node, ast.Import):
        for alias in node.names:
            name = rewriter.tree.new_module(alias.name) if alias.name.startswith("ade.") else alias.name
            into[("import", name, alias.asname or "", "")] = None


def _body(rewriter: Rewriter, module: Module, seen: dict[str, str | None]) -> str:
    """All but docstring, imports, and names that leave; comments go with the statement below them."""
    tree = rewriter.tree
    skipped = []
    for index, node in enumerate(rewriter.ast.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_export = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        is_flag = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPE_CHECKING"
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom) or only_imports(node) or is_export or is_flag:
            skipped.append(node)
        elif any(tree.home(module.dotted, name) != rewriter.new_module for name in bound_at_top([node])):
            skipped.append(node)
        elif isinstance(node, ast.Assign) and rewriter.result(*rewriter.span(node)) in seen:
            skipped.append(node)
        elif isinstance(node, ast.Assign):
            seen[rewriter.result(*rewriter.span(node))] = None
            for name in bound_at_top([node]):
                name = tree.new_name(module.dotted, name)
                text = rewriter.result(*rewriter.span(node))
                if seen.setdefault(f"={name}", text) != text:
                    problems.append(f"{module.path}: {name} is {text!r} and {seen[f'={name}']!r}")
    out, at = [], 0
    for node in skipped:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        start, end = rewriter.starts[first - 1], rewriter.starts[node.end_lineno or node.lineno]
        out.append(rewriter.result(at, start))
        at = end
    out.append(rewriter.result(at))
    return re.sub(r"\n{4,}", "\n\n\n", "".join(out)).strip("\n")


def _assemble(
    target: str,
    modules: list[Module],
    docstrings: list[str],
    bodies: list[str],
    runtime: dict[tuple[str, ...], None],
    typing_only: dict[tuple[str, ...], None],
    remarks: list[str],
    flagged: bool,
) -> str:
    largest = max(range(len(modules)), key=lambda index: len(bodies[index]))
    pieces = [f'"""{DOCSTRINGS.get(target) or docstrings[largest]}"""\n']
    for form, module, *rest in sorted(runtime):
        pieces.append(_line(form, module, *rest))
    only = [key for key in sorted(typing_only) if key not in runtime]
    if flagged:
        pieces.append("\nTYPE_CHECKING = False  # as in `typing`, which is large")
    if only:
        if not flagged and not any(key[:3] == ("from", "typing", "TYPE_CHECKING") for key in runtime):
            pieces.append("from typing import TYPE_CHECKING")
        remark = f"  {remarks[0]}" if remarks else ""
        pieces.append(f"\nif TYPE_CHECKING:{remark}")
        pieces += ["    " + _line(form, module, *rest) for form, module, *rest in only]
    for index, body in enumerate(bodies):
        if not body.strip():
            continue
        about = docstrings[index].strip()
        if index != largest and about and len([b for b in bodies if b.strip()]) > 1:
            pieces.append("\n\n" + _comment(about) + "\n\n")
        else:
            pieces.append("\n")
        pieces.append(body)
    return "\n".join(pieces) + "\n"


def _comment(text: str) -> str:
    lines = []
    for paragraph in text.split("\n\n"):
        is_prose = not any(line.startswith(" ") for line in paragraph.splitlines())
        wrapped = textwrap.wrap(" ".join(paragraph.split()), 116) if is_prose else paragraph.splitlines()
        lines += [*wrapped, ""]
    return "\n".join(f"# {line}".rstrip() for line in lines[:-1])


def _line(form: str, module: str, *rest: str) -> str:
    if form == "import":
        return f"import {module}" + (f" as {rest[0]}" if rest[0] else "")
    return f"from {module} import {rest[0]}" + (f" as {rest[1]}" if rest[1] else "")


DOCSTRINGS = {row["module"]: row["docstring"] for row in _rows("docstrings.csv")} if (HERE / "docstrings.csv").exists() else {}


def leaving(tree: Tree, target: str) -> Iterator[tuple[Module, list[ast.stmt]]]:
    """Statements that splits.csv brings into a target from modules that go elsewhere."""
    for module in tree.modules.values():
        names = {name for (source, name), new in tree.splits.items() if source == module.dotted and new == target}
        found = [node for node in module.tree.body if names & set(bound_at_top([node]))]
        if found:
            yield module, found


def cut_out(tree: Tree, module: Module, nodes: list[ast.stmt]) -> Module:
    """A module of its own for names that leave: the imports of the old one, and these statements."""
    lines = module.text.splitlines(keepends=True)
    kept = []
    for index, node in enumerate(module.tree.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr)
        if isinstance(node, ast.Import | ast.ImportFrom) or only_imports(node) or node in nodes:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            while first > 1 and lines[first - 2].startswith("#"):
                first -= 1
            kept.append("".join(lines[first - 1 : node.end_lineno]))
        elif is_docstring:
            continue
    part = Module(module.path, "\n".join(kept))
    part.defs, part.names, part.modules = module.defs, module.names, module.modules
    return part


def main(root: Path) -> None:
    source = root / "src" / "ade"
    tree = Tree(source)
    groups: dict[str, list[Module]] = defaultdict(list)
    for module in tree.modules.values():
        groups[tree.moves[module.path]].append(module)
    written: dict[str, str] = {}
    for target, modules in groups.items():
        parts = [cut_out(tree, module, nodes) for module, nodes in leaving(tree, target)]
        has_leavers = any((module.dotted, name) in tree.splits for module in modules for name in module.defs)
        real = [module for module in modules if any(not isinstance(n, ast.Expr) for n in module.tree.body)]
        if target.endswith("__init__.py") and not real:
            about = DOCSTRINGS.get(target) or ast.get_docstring(modules[0].tree, clean=False) or ""
            written[target] = f'"""{about}"""\n'
        elif len(real) == 1 and not parts and not has_leavers:
            module = real[0]
            text = rewrite_in_place(tree, module.path, module.text, dotted(target), module.dotted)
            written[target] = text
        elif target == "__init__.py":
            first = next(module for module in real if module.path == "__init__.py")
            text = rewrite_in_place(tree, first.path, first.text, "ade", "ade")
            others = [module for module in real if module is not first]
            extra = "\n".join(
                "\n".join(line for line in module.text.splitlines()[1:] if line.strip()) for module in others
            )
            head, _, tail = text.partition('"""\n')
            written[target] = f'{head}"""\n\n{extra}\n{tail}'
        else:
            written[target] = merge(tree, target, [*real, *parts])
    others: dict[Path, str] = {}
    for folder in ("tests", "benchmarks", "docs", "requirements"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text()
            if "ade" in text:
                others[path] = rewrite_in_place(tree, str(path.relative_to(root)), text, None, None)
    for path in [root / "pyproject.toml", *root.glob("*.md"), *sorted((root / "docs").rglob("*.md"))]:
        if "decisions" not in path.parts:
            others[path] = _markdown(tree, path.read_text())
    for path in source.rglob("*.py"):
        path.unlink()
    for folder in {target.rpartition("/")[0] for target in written if "/" in target}:
        name = f"{folder}/__init__.py"
        if name not in written:
            written[name] = f'"""{DOCSTRINGS[name]}"""\n'
    for target, text in written.items():
        path = source / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path, text in others.items():
        if path.read_text() != text:
            path.write_text(text)
    for folder in sorted(source.rglob("*"), reverse=True):
        if folder.is_dir() and folder.name == "__pycache__":
            shutil.rmtree(folder)
    for folder in sorted(source.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    print("\n".join(sorted(set(problems))))
    print(f"{len(tree.modules)} modules -> {len(written)}")


def _markdown(tree: Tree, text: str) -> str:
    def statement_of(match: re.Match[str]) -> str:
        lines = []
        for name in match.group(2).split(","):
            entity = tree.define(match.group(1), name.strip())
            lines.append((tree.home(*entity), tree.new_name(*entity), None))
        return statement(lines, "")

    text = re.sub(r"from (ade\.[a-z_.]+) import ([A-Za-z_, ]+)", statement_of, text)
    text = new_paths(tree, text)

    def path_of(match: re.Match[str]) -> str:
        return f"src/ade/{tree.moves.get(match.group(1), match.group(1))}"

    return re.sub(r"src/ade/([a-z_/]+\.py)", path_of, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1])
