"""What each operation may answer, as the description of the interface tells it: statuses, headers and problems."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from ade.core.web.problems import MEDIA_TYPE
from ade.core.web.rates import Traffic
from ade.core.web.routes.table import ROUTES
from ade.core.web.routing import Door, Route, Tag
from ade.core.web.statuses import FAULTS
from ade.core.web.wire import Plan, plan_of
from ade.operations.kit import Content
from ade.operations.registry import Shape

Ref = Callable[[Plan], dict[str, str]]
SCHEMA = "#/components/schemas/{name}"
_EVENT_STREAM = "text/event-stream"
_CONTENT = {  # what operations answer that answer no record
    "get_metrics": ("text/plain", "application/openmetrics-text"),
    "export_audit": ("application/x-ndjson",),
    "get_login_page": ("text/html",),
    "get_login_script": ("text/javascript",),
}
_ALWAYS = frozenset({400, 413, 414, 421, 431, 500, 503})  # whatever is asked
_TIMES = frozenset({429, 503})  # told with Retry-After


def success_status(route: Route, answer: Any) -> int:
    """201 where something new has an address of its own from then on."""
    if answer is None:
        return 204
    return 201 if route.method == "POST" and route.mutates and route.operation.startswith("create_") else 200


def address_of(route: Route) -> str | None:
    """Where one finds again what this route has made, up to its id; None where there is no such address."""
    wanted = f"{route.shape}/{{}}"
    is_there = any(each.method == "GET" and each.shape == wanted for each in ROUTES)
    return f"{route.path}/" if is_there and route.operation.startswith("create_") else None


def responses_of(route: Route, shape: Shape, ref: Ref) -> dict[str, Any]:
    found: dict[str, Any] = {str(success_status(route, shape.answer)): _success(route, shape, ref)}
    if route.method == "GET" and route.tag is not Tag.NONE:
        found["304"] = {
            "description": "It is the one that If-None-Match names.",
            "headers": {"X-Request-Id": _header("X-Request-Id"), "ETag": _header("ETag")},
        }
    for status in sorted(_problem_statuses(route, shape)):
        found[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return found


def _problem_statuses(route: Route, shape: Shape) -> set[int]:
    found = set(_ALWAYS)
    is_written = route.mutates or shape.body is not None
    if route.door is not Door.PUBLIC or route.mutates:
        found |= {401, 403}
    if route.traffic is not Traffic.PROBE:
        found.add(429)
    if route.parameters or shape.body is not None or shape.query is not None:
        found |= {404, 422}
    if is_written or "task_id" in route.parameters:
        found.add(409)
    if is_written:
        found |= {422, 507}
    if shape.body is not None:
        found.add(415)
    if route.is_stream:
        found.add(406)
    if route.tag in (Tag.HEEDED, Tag.REQUIRED):
        found.add(412)
    if route.tag is Tag.REQUIRED:
        found.add(428)
    return found | ({410} if route.operation == "get_task_result" else set())


def _success(route: Route, shape: Shape, ref: Ref) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("X-Request-Id")}
    if shape.answer is None:
        return {"description": "Done; there is nothing more to say.", "headers": headers}
    if route.tag is not Tag.NONE:
        headers["ETag"] = _header("ETag")
    if address_of(route) is not None:
        headers["Location"] = _header("Location")
    return {"description": route.summary, "headers": headers, "content": _content(route, shape, ref)}


def _content(route: Route, shape: Shape, ref: Ref) -> dict[str, Any]:
    if shape.answer is Content:
        return {each: {"schema": {}} for each in _CONTENT.get(route.operation, ("application/json",))}
    found: dict[str, Any] = {"application/json": {"schema": ref(plan_of(shape.answer))}}
    if route.is_stream:
        found[_EVENT_STREAM] = {"schema": {"type": "string"}}
    return found


def _header(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/headers/{name}"}


HEADERS: dict[str, Any] = {
    "ETag": {"required": True, "description": "The version of the record.", "schema": {"type": "string"}},
    "Location": {
        "required": True,
        "description": "Where it is from now on.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    "Retry-After": {
        "required": True,
        "description": "Seconds until it is worth trying again.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "required": True,
        "description": "How to say who one is.",
        "schema": {"type": "string"},
    },
    "X-Request-Id": {
        "required": True,
        "description": "What the server's log calls this request.",
        "schema": {"type": "string"},
    },
}

PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong (RFC 9457). `code` is stable, and what programs should look at.",
    "required": ["type", "title", "status", "detail", "code", "instance"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "code": {"type": "string", "pattern": "^[a-z][a-z_]*$"},
        "instance": {"type": "string", "format": "uri-reference"},
        "advice": {"type": "string", "description": "What helps somebody at a command line, where something does."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["at", "reason"],
                "properties": {"at": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
    },
}


def problem_responses(statuses: set[int]) -> dict[str, Any]:
    return {f"Problem{status}": _problem_response(status) for status in sorted(statuses)}


def _problem_response(status: int) -> dict[str, Any]:
    told = " ".join(sentence for known, sentence in FAULTS.values() if known == status)
    headers = {"X-Request-Id": _header("X-Request-Id")}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = _header("WWW-Authenticate")
    if status in _TIMES:
        headers["Retry-After"] = _header("Retry-After")
    return {
        "description": told or f"{HTTPStatus(status).phrase}; `code` and `detail` say more.",
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": {"$ref": SCHEMA.format(name="Problem")}}},
    }
