"""Operations are declared once, and what they take and answer can go over the wire and come back."""

import ast
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import NODEFAULT, Struct, structs

from ade.server.context import RequestContext, Services
from ade.server.operation import OPERATIONS, Operation, ReadRule, operation, shape_of
from ade.server.pagination import RawContent
from ade.server.redaction import private_fields_of, redaction_plan_of
from ade.server.route_table import MODULES, ROUTE_OF, ROUTES, in_order
from ade.server.wire_format import is_moment, plan_of
from tests.architecture.repository import SOURCE
from tests.domain import AuthLevel, Permission, Route, TrafficClass


def _declares(module: ast.Module) -> bool:
    found = (node for node in module.body if isinstance(node, ast.AsyncFunctionDef))
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "operation"
        for function in found
        for each in function.decorator_list
    )


def test_the_table_has_every_module_that_declares_operations() -> None:
    declaring = {
        ".".join(("ade", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in SOURCE.rglob("*.py")
        if _declares(ast.parse(path.read_text()))
    }
    assert {module.__name__ for module in MODULES} == declaring


def test_the_table_has_every_declared_operation() -> None:
    assert {route.operation for route in ROUTES} == set(OPERATIONS)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_queries_are_of_reads_and_bodies_of_what_can_have_one(route: Route) -> None:
    shape = shape_of(route.operation)
    assert shape.path == route.parameters
    assert shape.query is None or route.method == "GET", "what is requested together with a body belongs into the body"
    assert shape.body is None or route.method in ("POST", "PUT", "PATCH")


def test_a_declaration_states_only_what_does_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, Operation] = {}
    monkeypatch.setattr("ade.server.operation.OPERATIONS", declared)

    @operation("PATCH /things/{thing_id}", permission=(Permission.ENQUEUE, Permission.VOTE))
    async def change_thing(services: Services, request: RequestContext, thing_id: str) -> None:
        """Change it. And more about it."""

    @operation("GET /things", door=AuthLevel.SELF, reads=ReadRule.OWN)
    async def list_things(services: Services, request: RequestContext) -> None:
        """All of them."""

    change, read = (declared[name].route for name in ("change_thing", "list_things"))
    assert (change.operation, change.module, change.method) == ("change_thing", __name__, "PATCH")
    assert (change.path, change.summary) == ("/api/v1/things/{thing_id}", "Change it.")
    assert change.needs == {Permission.ENQUEUE, Permission.VOTE}
    assert (change.mutates, change.takes_key, change.traffic) == (True, True, TrafficClass.WRITE)
    assert (read.mutates, read.takes_key, read.traffic) == (False, False, TrafficClass.READ)


def test_a_function_that_does_not_fit_its_declaration_is_refused() -> None:
    async def get_thing(services: Services, request: RequestContext, name: str) -> None: ...
    async def get_task(services: Services, request: RequestContext, task_id: str) -> None: ...

    with pytest.raises(TypeError, match=r"get_thing takes \('name',\), but its path has \('thing_id',\)"):
        operation("GET /things/{thing_id}", permission=Permission.READ, reads=ReadRule.SHARED)(get_thing)
    with pytest.raises(TypeError, match="get_thing must name a permission"):
        operation("GET /things/{name}")(get_thing)
    with pytest.raises(TypeError, match="get_thing must name a permission"):
        operation("GET /things/{name}", permission=Permission.READ, door=AuthLevel.PUBLIC)(get_thing)
    with pytest.raises(TypeError, match=r"get_task is declared in ade\.\S+ and in tests\."):
        operation("GET /tasks/{task_id}", permission=Permission.READ, reads=ReadRule.SHARED)(get_task)
    assert "get_thing" not in OPERATIONS


def test_two_operations_with_one_name_or_one_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get_thing(services: Services, request: RequestContext, name: str) -> None: ...

    monkeypatch.setattr("ade.server.operation.OPERATIONS", {})
    operation("GET /things/{name}", permission=Permission.READ, reads=ReadRule.SHARED)(get_thing)
    with pytest.raises(TypeError, match=r"get_thing is declared in tests\.\S+ and in tests\."):
        operation("GET /others/{name}", permission=Permission.READ, reads=ReadRule.SHARED)(get_thing)
    task = ROUTE_OF["get_task"]
    twin = structs.replace(task, operation="get_twin", path="/api/v1/tasks/{twin_id}")
    with pytest.raises(TypeError, match=r"get_task and get_twin are both declared as GET /api/v1/tasks/\{twin_id\}"):
        in_order([*ROUTES, twin])


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
    wakeups = get_type_hints(kind)
    for field in structs.fields(kind):
        hint, default = wakeups[field.name], field.default
        if field.name in private_fields_of(kind) or default is NODEFAULT:
            continue
        if type(None) in get_args(hint):
            assert default is None, f"None is left out, and {field.name} would come back as {default!r}"
        elif get_origin(hint) is tuple:
            assert default == (), f"what is empty is left out, and {field.name} would come back as {default!r}"
        elif hint is int and is_moment(field.name):
            assert default == 0, f"no moment is left out, and {field.name} would come back as {default!r}"
