"""A line with curl for the routes that are used most, with the example body of the OpenAPI document."""

import json
from collections.abc import Mapping

from ade.server.openapi import texts
from ade.server.operation import shape_of
from ade.server.route_table import ROUTES

_JSON = '-H "$json"'
_OPERATIONS = frozenset(route.operation for route in ROUTES)


def _curl(target: str, *more: str) -> str:
    return " ".join(['curl -H "$auth"', *more, f'"$api{target}"'])


def _send(operation: str, target: str, *more: str, method: str = "") -> str:
    assert operation in _OPERATIONS
    form = shape_of(operation).body
    assert form is not None
    body = json.dumps(texts()["examples"][form.__name__])
    return _curl(target, *([f"-X {method}"] if method else []), *more, _JSON, f"-d '{body}'")


CURL: Mapping[str, str] = {
    "create_task": _send("create_task", "/tasks", '-H "Idempotency-Key: $(uuidgen)"'),
    "create_tasks": _send("create_tasks", "/tasks/bulk"),
    "list_tasks": _curl("/tasks?status=failed&status=running&queue=mail&limit=100"),
    "get_task": _curl("/tasks/$id?wait=30"),
    "edit_task": _send("edit_task", "/tasks/$id", "-H 'If-Match: \"3\"'", method="PATCH"),
    "cancel_task": _send("cancel_task", "/tasks/$id/cancel", "-H 'If-Match: \"3\"'"),
    "reschedule_task": _send("reschedule_task", "/tasks/$id/reschedule"),
    "retry_task": _curl("/tasks/$id/retry", "-X POST"),
    "get_task_output": _curl("/tasks/$id/output", "-N", '-H "Accept: text/event-stream"'),
    "run_bulk_action": _send("run_bulk_action", "/bulk-actions"),
    "claim_tasks": _send("claim_tasks", "/runs/claim"),
    "complete_run": _send("complete_run", "/runs/$run/complete"),
    "fail_run": _send("fail_run", "/runs/$run/fail"),
    "list_approvals": _curl("/approvals"),
    "respond_to_approval": _send("respond_to_approval", "/approvals/$id/respond"),
    "apply_rulebook": _send("apply_rulebook", "/policies", "-H 'If-Match: \"1\"'", method="PUT"),
    "acquire_locks": _send("acquire_locks", "/locks/acquire"),
    "register_worker": _send("register_worker", "/workers/w1", method="PUT"),
    "put_schedule": _send("put_schedule", "/schedules/nightly", method="PUT"),
    "create_webhook": _send("create_webhook", "/webhooks"),
    "list_events": _curl("/events?after=0&type=task.*", "-N", '-H "Accept: text/event-stream"'),
}
