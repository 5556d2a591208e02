"""All routes. Whatever the HTTP layer answers is in here, with who may ask for it.

The order counts: of two routes that fit a path the first is meant, as of `/approvals/stats` and `/approvals/{task_id}`.
"""

from collections.abc import Mapping

from ade.core.web.routes.people import ACCOUNTS, APPROVALS, POLICIES
from ade.core.web.routes.resources import AGENTS, INBOXES, LOCKS, QUEUES, WORKERS
from ade.core.web.routes.system import INSIGHT, OUTSIDE, SETTINGS, WEBHOOKS
from ade.core.web.routes.tasks import DEAD_LETTERS, TASKS, WORK
from ade.core.web.routing import Route

SECTIONS: Mapping[str, tuple[Route, ...]] = {
    "tasks": TASKS,
    "dead letters": DEAD_LETTERS,
    "work": WORK,
    "approvals": APPROVALS,
    "policies": POLICIES,
    "locks": LOCKS,
    "agents": AGENTS,
    "workers": WORKERS,
    "queues": QUEUES,
    "inboxes": INBOXES,
    "webhooks": WEBHOOKS,
    "settings": SETTINGS,
    "accounts": ACCOUNTS,
    "insight": INSIGHT,
    "outside": OUTSIDE,
}
ROUTES: tuple[Route, ...] = tuple(route for section in SECTIONS.values() for route in section)
ROUTE_OF: Mapping[str, Route] = {route.operation: route for route in ROUTES}
