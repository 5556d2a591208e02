"""The interface described for programs (OpenAPI 3.1), made from the table of routes and the shapes of operations."""

from functools import cache
from typing import Any, NamedTuple

import msgspec

from ade.core.web.routes.table import SECTIONS
from ade.core.web.routing import Door, Route, Tag
from ade.core.web.wire import Plan, body_plan_of, plan_of
from ade.operations.kit import Content
from ade.operations.openapi_answers import HEADERS, PROBLEM, SCHEMA, problem_responses, responses_of, success_status
from ade.operations.registry import Shape, shape_of
from ade.version import VERSION

__all__ = ["description", "document", "success_status"]
_ABOUT = """Work that survives crashes, waits for people where it must, and can be seen.

Errors are problem details (RFC 9457) with a stable `code`. Times are RFC 3339, from 1970 on. Lists are pages: give
`next` back as `cursor`. Requests that change something take an `Idempotency-Key` and may be sent again. Fields that are
not named here are refused; a field of a body that may be left out may also be null, which says the same. New fields of
answers may come, so pass over those that you do not know. Every GET is answered to a HEAD too."""
_TAGS = r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$'
_PLAIN = "^[^\\u0000-\\u001f\\u007f]+$"
_SESSION = "The cookie of a login session, over https; over http, as on one's own machine, it is `ade-session-<port>`."
_LONGEST_PART = 500


@cache
def document() -> bytes:
    """As it is served, with its keys in a fixed order."""
    return msgspec.json.encode(description(), order=None)


def description() -> dict[str, Any]:
    routes = [(section, route) for section, listed in SECTIONS.items() for route in listed]
    shapes = [shape_of(route.operation) for _, route in routes]
    schemas = _schemas(shapes)
    paths: dict[str, dict[str, Any]] = {}
    for section, route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(section, route, schemas)
    told = {each for ways in paths.values() for way in ways.values() for each in way["responses"]}
    queries = {schemas.names[plan_of(shape.query).wire] for shape in shapes if shape.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ADE", "version": VERSION, "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "tags": [{"name": section} for section in SECTIONS],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "__Host-ade", "description": _SESSION},
            },
            "schemas": {
                **{name: schema for name, schema in sorted(schemas.all.items()) if name not in queries},
                "Problem": PROBLEM,
            },
            "headers": HEADERS,
            "responses": problem_responses({int(status) for status in told if int(status) >= 400}),
        },
    }


class _Schemas(NamedTuple):
    """Of all that goes over the wire, and what those of wire types are called."""

    all: dict[str, Any]
    names: dict[type, str]

    def ref(self, plan: Plan) -> dict[str, str]:
        return {"$ref": SCHEMA.format(name=self.names[plan.wire])}


def _schemas(shapes: list[Shape]) -> _Schemas:
    plans: list[Plan] = []
    for shape in shapes:
        plans += [plan_of(kind) for kind in (shape.query, shape.answer) if kind is not None and kind is not Content]
        plans += [] if shape.body is None else [body_plan_of(shape.body)]
    wired = list(dict.fromkeys(plan.wire for plan in plans))
    refs, found = msgspec.json.schema_components(wired, ref_template=SCHEMA)
    names = {wire: _short(ref["$ref"].rpartition("/")[2]) for wire, ref in zip(wired, refs, strict=True)}
    return _Schemas({_short(name): _plain(schema) for name, schema in found.items()}, names)


def _short(name: str) -> str:
    """Two records of one name are told apart by their modules; the last word of each is enough."""
    *_, module, last = ("", *name.split("."))
    return "".join(word.title() for word in module.split("_")) + last


def _plain(schema: Any) -> Any:
    """Without defaults of null, which only say that a field may be left out."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return {"$ref": SCHEMA.format(name=_short(schema["$ref"].rpartition("/")[2]))}
    return {name: _plain(each) for name, each in schema.items() if name != "default" or each is not None}


def _operation(section: str, route: Route, schemas: _Schemas) -> dict[str, Any]:
    shape = shape_of(route.operation)
    described: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [section],
        "parameters": [*_path_parameters(route), *_query_parameters(shape, schemas), *_header_parameters(route)],
        "responses": responses_of(route, shape, schemas.ref),
    }
    if route.needs:
        described["description"] = f"Takes the permission {' or '.join(sorted(route.needs))}."
    if route.door is Door.PUBLIC:
        described["security"] = []
    if route.door is Door.SESSION:
        described["security"] = [{"session": []}]
    if shape.body is not None:
        plan = body_plan_of(shape.body)
        described["requestBody"] = {
            "required": any(field.is_required for field in plan.fields),
            "content": {"application/json": {"schema": schemas.ref(plan)}},
        }
    return described


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1, "maxLength": _LONGEST_PART, "pattern": _PLAIN}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in route.parameters]


def _query_parameters(shape: Shape, schemas: _Schemas) -> list[dict[str, Any]]:
    if shape.query is None:
        return []
    schema = schemas.all[schemas.names[plan_of(shape.query).wire]]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_control(each)}
        for name, each in schema["properties"].items()
    ]


def _without_control(schema: dict[str, Any]) -> dict[str, Any]:
    is_text = schema.get("type") == "string" and not schema.keys() & {"pattern", "format"}
    return {**schema, "pattern": _PLAIN.replace("+$", "*$")} if is_text else schema


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.takes_key:
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!#-\[\]-~]+$"}
        found.append(_header("Idempotency-Key", schema, "New for each request; the same when it is sent again."))
    tags = {"type": "string", "pattern": _TAGS, "examples": ['"1"']}
    if route.tag in (Tag.HEEDED, Tag.REQUIRED):
        is_required = route.tag is Tag.REQUIRED
        found.append(_header("If-Match", tags, "The ETag that was seen, or *.", is_required=is_required))
    if route.tag is not Tag.NONE and route.method == "GET":
        found.append(_header("If-None-Match", tags, "ETags that are known; 304 if it is one of them."))
    if route.operation in ("get_task", "create_task"):
        found.append(_header("Prefer", {"type": "string"}, "`wait=30`: answer when the task is final, or then."))
    if route.is_stream:
        found.append(_header("Last-Event-ID", {"type": "string"}, "Of a stream: what was heard last."))
    return found


def _header(name: str, schema: dict[str, Any], about: str, *, is_required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": is_required, "schema": schema, "description": about}
