"""A line with curl for the routes that are used most. A test sees to it that each fits its route and its form."""

from collections.abc import Mapping

_JSON = '-H "$json"'


def _curl(target: str, *more: str) -> str:
    return " ".join(['curl -H "$auth"', *more, f'"$api{target}"'])


def _post(target: str, body: str, *more: str, method: str = "") -> str:
    return _curl(target, *([f"-X {method}"] if method else []), *more, _JSON, f"-d '{body}'")


_DIGEST = "eb6a47c6fee22abfcef2b14477fc35a6d61317ada6bff90e94cb18247be18e09"
CURL: Mapping[str, str] = {
    "create_task": _post("/tasks", '{"name": "greet", "args": {"name": "Ada"}}', '-H "Idempotency-Key: $(uuidgen)"'),
    "create_tasks": _post(
        "/tasks/bulk", '{"tasks": [{"name": "fetch", "ref": "a"}, {"name": "index", "after": ["a"]}]}'
    ),
    "list_tasks": _curl("/tasks?status=failed&status=running&queue=mail&limit=100"),
    "get_task": _curl("/tasks/$id?wait=30"),
    "edit_task": _post("/tasks/$id", '{"description": "as agreed"}', "-H 'If-Match: \"3\"'", method="PATCH"),
    "cancel_task": _post("/tasks/$id/cancel", '{"reason": "not needed any more"}', "-H 'If-Match: \"3\"'"),
    "reschedule_task": _post("/tasks/$id/reschedule", '{"delay": 0, "priority": "urgent"}'),
    "retry_task": _curl("/tasks/$id/retry", "-X POST"),
    "get_task_output": _curl("/tasks/$id/output", "-N", '-H "Accept: text/event-stream"'),
    "run_bulk_action": _post(
        "/bulk-actions", '{"action": "cancel", "filter": {"tag": "nightly", "status": ["pending"]}}'
    ),
    "claim_tasks": _post("/runs/claim", '{"worker": "w1", "names": ["greet"], "wait": 20}'),
    "complete_run": _post("/runs/$run/complete", '{"task_id": "01a1", "result": "hello"}'),
    "fail_run": _post("/runs/$run/fail", '{"task_id": "01a1", "error": {"type": "NoSuchPage", "message": "404"}}'),
    "list_approvals": _curl("/approvals"),
    "respond_to_approval": _post(
        "/approvals/$id/respond",
        f'{{"decision": "approve", "approval": "01a1ee05-1057-708b-8c02-eeabbab879a3.1", "digest": "{_DIGEST}"}}',
    ),
    "apply_rulebook": _post("/policies", '{"rules": {}}', "-H 'If-Match: \"1\"'", method="PUT"),
    "acquire_locks": _post("/locks/acquire", '{"locks": ["repo:shop"], "ttl": 60, "wait": 10}'),
    "register_worker": _post("/workers/w1", '{"definitions": [{"name": "greet"}]}', method="PUT"),
    "put_schedule": _post("/schedules/nightly", '{"cron": "0 3 * * *", "task_name": "clean_up"}', method="PUT"),
    "create_webhook": _post("/webhooks", '{"url": "https://example.org/in", "events": ["task.failed"]}'),
    "list_events": _curl("/events?after=0&type=task.*", "-N", '-H "Accept: text/event-stream"'),
}
