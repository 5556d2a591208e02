"""The table of all routes: importing this module loads every module that declares operations.

Only the server and the generators need all routes. A client loads only the module of the operation that it calls. The
order matters: the first route that matches a path wins, as with `/approvals/stats` and `/approvals/{task_id}`. Routes
have the order of the collections below, and within a collection the order of their declarations.
"""

from collections.abc import Iterable, Mapping

from ade.accounts import api as accounts_api
from ade.accounts import api_sessions
from ade.agents import api as agents_api
from ade.agents.conversations import api as conversations_api
from ade.approvals import api as approvals_api
from ade.approvals import api_rulebook
from ade.events import api as events_api
from ade.locks import api as locks_api
from ade.notifications import api as notifications_api
from ade.server import api_system
from ade.server.operation import API, OPERATIONS, Route
from ade.settings import api as settings_api
from ade.tasks.api import create, dead_letters, lifecycle, queues, tasks
from ade.webhooks import api as webhooks_api
from ade.worker.api import runs, workers

# Modules that share a collection must be in order of precedence.
MODULES = (
    *(create, lifecycle, tasks, dead_letters, runs, approvals_api, api_rulebook, locks_api, agents_api, workers),
    *(queues, conversations_api, webhooks_api, notifications_api, settings_api, accounts_api, api_sessions),
    *(events_api, api_system),
)
# Sections of the OpenAPI document, each with the path prefixes of its collections.
COLLECTIONS: Mapping[str, tuple[str, ...]] = {
    "tasks": ("/tasks", "/bulk-actions", "/definitions"),
    "dead letters": ("/dlq",),
    "work": ("/runs",),
    "approvals": ("/approvals", "/delegations"),
    "policies": ("/policies",),
    "locks": ("/locks",),
    "agents": ("/agents", "/subagents"),
    "workers": ("/workers",),
    "queues": ("/queues", "/schedules"),
    "inboxes": ("/inboxes",),
    "webhooks": ("/webhooks",),
    "notifications": ("/notifications",),
    "settings": ("/config", "/features"),
    "accounts": ("/users", "/tokens", "/me", "/sessions", "/me/password", "/me/tokens"),
    "insight": ("/stats", "/events", "/audit", "/health"),
    "outside": ("/livez", "/readyz", "/metrics", "/openapi.json", "/login", "/login.js", "/problems"),
}
_PLACES = [(section, collection) for section, collections in COLLECTIONS.items() for collection in collections]


def _place(route: Route) -> tuple[int, int]:
    """Return the sort key of a route. Raises ValueError for a route in no collection or an unlisted module."""
    path = route.path.removeprefix(API)
    fitting = [number for number, (_, start) in enumerate(_PLACES) if path == start or path.startswith(f"{start}/")]
    if not fitting:
        raise ValueError(f"{route.path} is in no collection of `ade.server.route_table`")
    modules = [module.__name__ for module in MODULES]
    return max(fitting, key=lambda number: len(_PLACES[number][1])), modules.index(route.module)


def in_order(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Return the routes in the order of precedence. Raises TypeError if two have the same method and path."""
    by_address: dict[tuple[str, str], Route] = {}
    for route in sorted(routes, key=_place):
        first = by_address.setdefault((route.method, route.shape), route)
        if first is not route:
            raise TypeError(f"{first.operation} and {route.operation} are both declared as {route.method} {route.path}")
    return tuple(by_address.values())


ROUTES = in_order(each.route for each in OPERATIONS.values())
ROUTE_OF: Mapping[str, Route] = {route.operation: route for route in ROUTES}
SECTIONS: Mapping[str, tuple[Route, ...]] = {
    section: tuple(route for route in ROUTES if _PLACES[_place(route)[0]][0] == section) for section in COLLECTIONS
}
