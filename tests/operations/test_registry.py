"""Every route has its operation, and what operations take and answer can go over the wire and come back."""

import ast
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import NODEFAULT, Struct, structs

from ade.server.pagination import RawContent
from ade.server.registry import MODULES, check_shape, has_operation, shape_of
from ade.server.routes import ROUTE_OF, ROUTES
from ade.server.routing import Route
from ade.server.wire_direct import redaction_plan_of
from ade.server.wire_format import is_moment, plan_of, private_fields_of
from tests.architecture.repository import SOURCE


def test_every_route_has_an_operation_and_every_operation_a_route() -> None:
    assert [route.operation for route in ROUTES if not has_operation(route.operation)] == []
    assert {name for names in MODULES.values() for name in names} == set(ROUTE_OF)


def test_every_operation_is_registered_where_it_is() -> None:
    written = {
        ".".join(("ade", *module.relative_to(SOURCE).with_suffix("").parts)): [
            node.name
            for node in ast.parse(module.read_text()).body
            if isinstance(node, ast.AsyncFunctionDef) and node.name in ROUTE_OF
        ]
        for module in sorted([*SOURCE.rglob("api*.py"), *SOURCE.glob("*/api/*.py")])
    }
    assert {name: sorted(found) for name, found in written.items() if found} == {
        name: sorted(found) for name, found in MODULES.items()
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_an_operation_takes_what_its_route_gives(route: Route) -> None:
    check_shape(route)
    shape = shape_of(route.operation)
    assert shape.query is None or route.method == "GET", "what is asked beside a body belongs into the body"
    assert shape.body is None or route.method in ("POST", "PUT", "PATCH")


def kinds_of(kind: Any, known: set[type[Struct]]) -> Iterator[type[Struct]]:
    """All types of records in a type."""
    origin = get_origin(kind) or kind
    for each in get_args(kind):
        yield from kinds_of(each, known)
    if isinstance(origin, type) and issubclass(origin, Struct) and origin not in known:
        known.add(origin)
        yield origin
        for hint in get_type_hints(origin).values():
            yield from kinds_of(hint, known)


def answered() -> list[type[Struct]]:
    known: set[type[Struct]] = set()
    answers = [shape_of(route.operation).answer for route in ROUTES]
    return [kind for answer in answers if answer not in (None, RawContent) for kind in kinds_of(answer, known)]


@pytest.mark.parametrize("kind", answered(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_record_that_is_answered_can_be_had_back(kind: type[Struct]) -> None:
    plan_of(kind)
    redaction_plan_of(kind)  # what is hidden has a default
    hints = get_type_hints(kind)
    for field in structs.fields(kind):
        hint, default = hints[field.name], field.default
        if field.name in private_fields_of(kind) or default is NODEFAULT:
            continue
        if type(None) in get_args(hint):
            assert default is None, f"None is left out, and {field.name} would come back as {default!r}"
        elif get_origin(hint) is tuple:
            assert default == (), f"what is empty is left out, and {field.name} would come back as {default!r}"
        elif hint is int and is_moment(field.name):
            assert default == 0, f"no moment is left out, and {field.name} would come back as {default!r}"
