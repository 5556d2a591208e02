"""The methods of the client, one for each operation, and the routes that they call, as the operations declare them."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

from msgspec import NODEFAULT, UNSET, Struct, structs

from ade.client.transport import Section
from ade.common.calls import Call
from ade.server.operation import ClientRoute, ETagUse, Route, shape_of
from ade.server.pagination import VersionedRecord
from ade.server.route_table import ROUTES, SECTIONS
from docs.generators.annotations import Names, filled, imports, text_of

PACKAGE = "ade.client.api"
API = Path(__file__).resolve().parents[2].joinpath("src", *PACKAGE.split("."))
# Modules with the sections whose methods they have.
MODULES: Mapping[str, tuple[str, ...]] = {
    "tasks": ("tasks", "dead letters", "queues"),
    "workers": ("work", "workers"),
    "approvals": ("approvals", "policies"),
    "locks": ("locks",),
    "agents": ("agents", "inboxes"),
    "webhooks": ("webhooks", "notifications"),
    "accounts": ("accounts",),
    "system": ("settings", "insight", "outside"),
}
_WIDTH = 120


class BadOperation(Exception):
    """An operation takes or answers something that no method of the client can have."""


class Parameter(NamedTuple):
    """How a field of a form is taken by a method, and passed on."""

    name: str
    taken: str
    passed: str


def modules() -> Mapping[str, str]:
    """Every generated module with its text."""
    made = {f"{name}.py": _module(name, sections) for name, sections in MODULES.items()}
    return {**made, "routes.py": _routes(), "__init__.py": _package(list(MODULES))}


def stale_modules(folder: Path = API) -> Iterator[tuple[Path, str]]:
    """Modules that are out of date, each with the text it should have."""
    for name, text in modules().items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            yield path, text


def _imported(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__name__


def _class_name(module: str) -> str:
    return "".join(word.title() for word in module.split("_")) + "Calls"


def _package(names: Sequence[str]) -> str:
    lines = [
        '"""All calls of the client. Generated from the operations by `python -m docs.generate`."""',
        "",
        *imports({(f"{PACKAGE}.{name}", _class_name(name)) for name in names}),
        "",
        "",
        "class Api(",
        *(f"    {_class_name(name)}," for name in names),
        "):",
        '    """Everything that can be asked."""',
    ]
    return "\n".join(lines) + "\n"


def _routes() -> str:
    called = [route for route in ROUTES if route.has_method]
    names: Names = {_imported(Mapping), _imported(ClientRoute)}
    rows = [_row(route, names) for route in called]
    lines = [
        '"""Routes as the client needs them. Generated from the operations by `python -m docs.generate`."""',
        "# fmt: off",
        "# ruff: noqa: E501",
        "",
        *imports(names),
        "",
        "CLIENT_ROUTES: Mapping[str, ClientRoute] = {  # module, method, path, mutates, takes_key",
        *rows,
        "}",
    ]
    return "\n".join(lines) + "\n"


def _row(route: Route, names: Names) -> str:
    passed = [f'"{route.module}"', f'"{route.method}"', f'"{route.path}"']
    if route.mutates:
        passed += [str(route.mutates), str(route.takes_key)]
    if route.tag is not ETagUse.NONE:
        names.add(_imported(ETagUse))
        passed.append(f"tag=ETagUse.{route.tag.name}")
    if route.is_download:
        passed.append("is_download=True")
    return f'    "{route.operation}": ClientRoute({", ".join(passed)}),'


def _module(name: str, sections: Sequence[str]) -> str:
    names: Names = {_imported(Call)}
    routes = [route for section in sections for route in SECTIONS[section] if route.has_method]
    methods = [line for route in routes for line in ["", *_method(route, names)]]
    unset = {("msgspec", "UNSET")} if any("UNSET" in line for line in methods) else set()
    listed = ", ".join(f"`{section}`" for section in sections)
    lines = [
        f'"""Calls: {listed}. Generated from the operations by `python -m docs.generate`."""',
        "# fmt: off",
        "",
        "from __future__ import annotations",
        "",
        *imports({("typing", "TYPE_CHECKING"), _imported(Section), *unset}),
        "",
        "if TYPE_CHECKING:",
        *imports(names, 4),
        "",
        "",
        f"class {_class_name(name)}(Section):",
        f'    """Methods of the client: {listed}."""',
        *methods,
    ]
    return "\n".join(lines) + "\n"


def _method(route: Route, names: Names) -> Iterator[str]:
    shape = shape_of(route.operation)
    tagged: Any = VersionedRecord
    kind = tagged[shape.answer] if shape.is_tagged else shape.answer
    answered: Names = set()
    answer = text_of(kind, answered)
    names |= answered
    loaded = set(answered)  # when it is called, so that a program loads no more than it uses
    forms = {"query": shape.query, "body": shape.body}
    parameters = {name: list(_parameters(form, names, loaded)) for name, form in forms.items() if form is not None}
    taken = [each.taken for fields in parameters.values() for each in fields] + _more(route)
    _check(route, [*shape.path, *(each.name for fields in parameters.values() for each in fields)])
    signature = ["self", *(f"{name}: str" for name in shape.path), *(["*"] if taken else []), *taken]
    yield from _wrapped(f"    def {route.operation}(", signature, f") -> Call[{answer}]:", 8)
    yield f'        """{route.summary}"""'
    yield from [*imports(loaded, 8), ""] if loaded else []
    for name, fields in parameters.items():
        form = forms[name]
        assert form is not None
        yield from _wrapped(f"        {name} = {form.__name__}(", [each.passed for each in fields], ")", 12)
    passed = [
        f'"{route.operation}"',
        "type(None)" if kind is None else answer,
        *shape.path,
        *(f"{name}={name}" for name in parameters),
        *(["if_match=if_match"] if _heeds_tag(route) else []),
        *(["key=request_key"] if route.takes_key else []),
    ]
    yield from _wrapped("        return self._call(", passed, ")", 12)


def _more(route: Route) -> list[str]:
    """Which version is meant, and the key of the request. Where a version must be named, None is any."""
    tag = ["if_match: int | None" + (" = None" if route.tag is ETagUse.HEEDED else "")] if _heeds_tag(route) else []
    return tag + (["request_key: str | None = None"] if route.takes_key else [])


def _heeds_tag(route: Route) -> bool:
    return route.tag in (ETagUse.HEEDED, ETagUse.REQUIRED)


def _parameters(form: type[Struct], names: Names, loaded: Names) -> Iterator[Parameter]:
    loaded.add((form.__module__, form.__name__))
    hints = get_type_hints(form)
    for field in structs.fields(form):
        name, kind = field.name, hints[field.name]
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if default is NODEFAULT:
            yield Parameter(name, f"{name}: {text_of(kind, names)}", f"{name}={name}")
        elif isinstance(default, list) and get_origin(kind) is list:
            names.add(("collections.abc", "Sequence"))
            inner = text_of(kind, names).removeprefix("list")
            yield Parameter(name, f"{name}: Sequence{inner} = ()", f"{name}=list({name})")
        elif isinstance(default, dict) and get_origin(kind) is dict:
            names.add(("collections.abc", "Mapping"))
            inner = text_of(kind, names).removeprefix("dict")
            yield Parameter(name, f"{name}: Mapping{inner} | None = None", f"{name}=dict({name} or {{}})")
        elif isinstance(default, Enum):
            loaded.add((type(default).__module__, type(default).__name__))
            usual = f"{type(default).__name__}.{default.name}"
            taken = f"{name}: {text_of(kind, names)} | None = None"
            yield Parameter(name, taken, f"{name}={usual} if {name} is None else {name}")
        else:
            yield Parameter(name, f"{name}: {text_of(kind, names)} = {_literal(form, name, default)}", f"{name}={name}")


def _literal(form: type[Struct], name: str, default: object) -> str:
    if default is UNSET:
        return "UNSET"
    if default is None or isinstance(default, bool | int | float) or default in ((), frozenset()):
        return repr(default)
    if isinstance(default, str):
        return f'"{default}"'
    raise BadOperation(f"{form.__name__}.{name} has a default that no method can have: {default!r}")


def _wrapped(head: str, items: Sequence[str], tail: str, indent: int) -> list[str]:
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) <= _WIDTH:
        return [line]
    return [head, *filled(items, indent), f"{' ' * (indent - 4)}{tail}"]


def _check(route: Route, taken: Sequence[str]) -> None:
    twice = sorted({name for name in taken if taken.count(name) > 1} | {"if_match", "request_key"} & {*taken})
    if twice:
        raise BadOperation(f"{route.operation} takes {', '.join(twice)} twice; rename it in the path or the form")
