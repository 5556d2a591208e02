"""Every route and every role, from the one table: who gets in, and who does not."""

import pytest

from ade.server.operation import AuthLevel, Route, RouteAccess, access
from tests.domain import ROUTES, Role, shape_of
from tests.server.conftest import ServerHarness

_VALUES = {"task_id": "01a1e503-5dba-7f16-87d1-29e75c2bd002", "version": "1", "code": "unknown_task"}
_REFUSED = {401: "not_authenticated", 403: "not_permitted"}


def _path(route: Route) -> str:
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", _VALUES.get(name, "nothing-of-this-name"))
    return path


def _expected(route: Route, role: Role | None) -> RouteAccess:
    """Tokens are what roles come with here, and a token is no session."""
    if role is not None and route.door is AuthLevel.SESSION:
        return RouteAccess.DENIED
    return access(route, role)


async def test_every_route_lets_in_whom_the_table_says(server: ServerHarness) -> None:
    wrong = []
    for route in ROUTES:
        for role in (None, *Role):
            body: object = {} if shape_of(route.operation).body is not None else None
            answer = await server.ask(route.method, _path(route), body, by=role)
            expected = _expected(route, role)
            refused = {RouteAccess.UNKNOWN: 401, RouteAccess.DENIED: 403}.get(expected)
            is_right = (
                (answer.status, answer.code) == (refused, _REFUSED[refused])
                if refused is not None
                else answer.status < 500
                and (answer.status != 403 or answer.code == "reauthentication_needed")  # a token gives no access
                and (answer.status != 401 or route.door is AuthLevel.PUBLIC)
            )
            if not is_right:
                wrong.append((route.operation, role, expected, answer.status, answer.body[:200]))
    assert wrong == []


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "GET"], ids=lambda each: each.operation)
def test_reading_changes_nothing(route: Route) -> None:
    assert not route.mutates
