"""The OpenAPI 3.1 document, derived from the declared operations, with the text in `descriptions.toml`."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct

from ade import VERSION
from ade.server.credentials import cookie_name
from ade.server.operation import AuthLevel, ETagUse, OperationSignature, Route, TrafficClass, shape_of
from ade.server.pagination import RawContent
from ade.server.problems import FAULTS, MEDIA_TYPE
from ade.server.route_table import ROUTES, SECTIONS
from ade.server.wire_format import CodecPlan, body_plan_of, is_always_sent, plan_of

Ref = Callable[[CodecPlan], dict[str, str]]
SCHEMA = "#/components/schemas/{name}"
_EVENT_STREAM = "text/event-stream"
_ALWAYS = frozenset({400, 413, 414, 421, 431, 500, 503})  # possible for every operation
_TIMES = frozenset({429, 503})  # have Retry-After


def success_status(route: Route, answer: Any) -> int:
    """Return the success status: 201 for a new object with a URL, 204 without a result, else 200."""
    if answer is None:
        return 204
    return 201 if route.method == "POST" and route.mutates and route.operation.startswith("create_") else 200


def address_of(route: Route) -> str | None:
    """Return the URL of a created object, up to its ID, or None if it has no URL."""
    wanted = f"{route.shape}/{{}}"
    is_there = any(each.method == "GET" and each.shape == wanted for each in ROUTES)
    return f"{route.path}/" if is_there and route.operation.startswith("create_") else None


def responses_of(route: Route, shape: OperationSignature, ref: Ref) -> dict[str, Any]:
    """Return the OpenAPI responses of an operation."""
    found: dict[str, Any] = {str(success_status(route, shape.answer)): _success(route, shape, ref)}
    if route.method == "GET" and route.tag is not ETagUse.NONE:
        found["304"] = {
            "description": "It is the one that If-None-Match names.",
            "headers": {
                "X-Request-Id": _header_openapi_answers("X-Request-Id"),
                "ETag": _header_openapi_answers("ETag"),
            },
        }
    for status in sorted(_problem_statuses(route, shape)):
        found[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return found


def _problem_statuses(route: Route, shape: OperationSignature) -> set[int]:
    found = set(_ALWAYS)
    is_written = route.mutates or shape.body is not None
    if route.door is not AuthLevel.PUBLIC or route.mutates:
        found |= {401, 403}
    if route.traffic is not TrafficClass.PROBE:
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
    if route.tag in (ETagUse.HEEDED, ETagUse.REQUIRED):
        found.add(412)
    if route.tag is ETagUse.REQUIRED:
        found.add(428)
    return found | {*route.problems}


def _success(route: Route, shape: OperationSignature, ref: Ref) -> dict[str, Any]:
    headers = {"X-Request-Id": _header_openapi_answers("X-Request-Id")}
    if shape.answer is None:
        return {"description": "Done; there is nothing more to say.", "headers": headers}
    if route.tag is not ETagUse.NONE:
        headers["ETag"] = _header_openapi_answers("ETag")
    if address_of(route) is not None:
        headers["Location"] = _header_openapi_answers("Location")
    return {"description": route.summary, "headers": headers, "content": _content(route, shape, ref)}


def _content(route: Route, shape: OperationSignature, ref: Ref) -> dict[str, Any]:
    if shape.answer is RawContent:
        return {
            each: {"schema": {} if each == "application/json" else {"type": "string"}} for each in route.media_types
        }
    found: dict[str, Any] = {"application/json": {"schema": ref(plan_of(shape.answer))}}
    if route.is_stream:
        found[_EVENT_STREAM] = {"schema": {"type": "string"}}
    return found


def _header_openapi_answers(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/headers/{name}"}


HEADERS: dict[str, Any] = {
    "ETag": {"required": True, "description": "The version of the record.", "schema": {"type": "string"}},
    "Location": {
        "required": True,
        "description": "The new URL.",
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

PROBLEMS: dict[str, Any] = {
    "Problem": {
        "title": "Problem",
        "type": "object",
        "description": "What went wrong (RFC 9457). Programs should look at `code`, which is stable.",
        "required": ["type", "title", "status", "detail", "code", "instance"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "code": {"type": "string", "pattern": "^[a-z][a-z_]*$"},
            "instance": {"type": "string", "format": "uri-reference"},
            "advice": {"type": "string"},
            "errors": {"type": "array", "items": {"$ref": SCHEMA.format(name="ProblemField")}},
        },
    },
    "ProblemField": {
        "title": "ProblemField",
        "type": "object",
        "description": "An invalid field of a request.",
        "required": ["at", "reason"],
        "properties": {"at": {"type": "string"}, "reason": {"type": "string"}},
    },
}


def problem_responses(statuses: set[int]) -> dict[str, Any]:
    """Return the shared OpenAPI responses for these error statuses."""
    return {f"Problem{status}": _problem_response(status) for status in sorted(statuses)}


def _problem_response(status: int) -> dict[str, Any]:
    told = " ".join(sentence for known, sentence in FAULTS.values() if known == status)
    headers = {"X-Request-Id": _header_openapi_answers("X-Request-Id")}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = _header_openapi_answers("WWW-Authenticate")
    if status in _TIMES:
        headers["Retry-After"] = _header_openapi_answers("Retry-After")
    return {
        "description": told or f"{HTTPStatus(status).phrase}; `code` and `detail` say more.",
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": {"$ref": SCHEMA.format(name="Problem")}}},
    }


_ABOUT = """Work that survives crashes, waits for people where it must, and can be seen.

Errors are problem details (RFC 9457) with a stable `code`. Times are RFC 3339, from 1970 on. Lists are pages: give
`next` back as `cursor`. Requests that change something take an `Idempotency-Key` and may be sent again. Fields that are
not named here are refused; a field of a body that may be left out may also be null, which says the same. New fields of
answers may come, so pass over those that you do not know. Every GET is answered to a HEAD too."""
_TAGS = r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$'
_PLAIN = "^[^\\u0000-\\u001f\\u007f]+$"
_SESSION = "The cookie of a login session, over https; over http, as on one's own machine, it is `ade-session-<port>`."
_LONGEST_PART = 500


# Text for people, from `descriptions.toml`.


@cache
def texts() -> dict[str, Any]:
    """Return the sections of `descriptions.toml`."""
    return tomllib.loads(files("ade.server").joinpath("descriptions.toml").read_text("utf-8"))


def _about_field(types: Sequence[str], name: str, *shared: str) -> str:
    """Return what the first of these types says about a field, else what these sections say; "" if none does."""
    own = texts()["types"]
    sections = [*(own.get(each, {}) for each in types), *(texts()[each] for each in shared), texts()["fields"]]
    return next((each[name] for each in sections if name in each), "")


def _types_of(plan: CodecPlan) -> list[str]:
    return [each.__name__ for each in plan.record.__mro__]


@cache
def document(base_path: str = "") -> bytes:
    """Return the document as it is served, with its keys in a fixed order."""
    return msgspec.json.encode(description(base_path), order=None)


def description(base_path: str = "") -> dict[str, Any]:
    """Return the document as a dict. `base_path` is the prefix of all paths."""
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
        "servers": [{"url": base_path or "/"}],
        "tags": [{"name": section, "description": texts()["tags"].get(section, "")} for section in SECTIONS],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": cookie_name("https", None, base_path),
                    "description": _SESSION,
                },
            },
            "schemas": {
                **{name: schema for name, schema in sorted(schemas.all.items()) if name not in queries},
                **{name: _with_descriptions(schema, [name]) for name, schema in PROBLEMS.items()},
            },
            "headers": HEADERS,
            "responses": problem_responses({int(status) for status in told if int(status) >= 400}),
        },
    }


class _Schemas(NamedTuple):
    """The JSON schemas of all wire types, and the schema name of each type."""

    all: dict[str, Any]
    names: dict[type, str]

    def ref(self, plan: CodecPlan) -> dict[str, str]:
        return {"$ref": SCHEMA.format(name=self.names[plan.wire])}


def _schemas(shapes: list[OperationSignature]) -> _Schemas:
    sent: dict[type, CodecPlan] = {}
    returned: dict[type, CodecPlan] = {}
    for shape in shapes:
        _collect(shape.query, plan_of, sent)
        _collect(shape.body, body_plan_of, sent)
        _collect(shape.answer, plan_of, returned)
    plans = sent | returned
    refs, found = msgspec.json.schema_components(list(plans), ref_template=SCHEMA)
    names = {wire: _short(ref["$ref"].rpartition("/")[2]) for wire, ref in zip(plans, refs, strict=True)}
    schemas = {_short(name): _plain(schema) for name, schema in found.items()}
    for wire, plan in plans.items():
        schema = schemas[names[wire]]
        if wire in returned and wire not in sent:
            schema["required"] = [field.wire_name for field in plan.fields if is_always_sent(field)]
        schemas[names[wire]] = _with_descriptions(schema, [names[wire], *_types_of(plan)], plan.earlier.renamed)
    return _Schemas(schemas, names)


def _collect(kind: Any, plan: Callable[[Any], CodecPlan], found: dict[type, CodecPlan]) -> None:
    """Add the plans of all records in this type."""
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Struct) and origin is not RawContent:
        made = plan(kind)
        if made.wire not in found:
            found[made.wire] = made
            for field in made.fields:
                _collect(field.kind, plan, found)
    for each in get_args(kind):
        _collect(each, plan, found)


def _with_descriptions(schema: dict[str, Any], types: list[str], renamed: Mapping[str, str] = {}) -> dict[str, Any]:
    properties = {
        name: {**each, "description": _about_field(types, name) + _earlier_name(renamed, name)}
        for name, each in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if "properties" in schema else schema


def _earlier_name(renamed: Mapping[str, str], name: str) -> str:
    """A sentence about the earlier name of a field, if it has one."""
    old = next((old for old, new in renamed.items() if new == name), None)
    in_seconds = ", in seconds," if name.endswith("_ms") else ""
    return "" if old is None else f" `{old}`{in_seconds} is accepted too."


def _short(name: str) -> str:
    """Shorten a qualified name: records of one name are distinguished by the last word of their modules."""
    *_, module, last = ("", *name.split("."))
    return "".join(word.title() for word in module.split("_")) + last


def _plain(schema: Any) -> Any:
    """Drop null defaults, which only mean that a field is optional, and say what generators of clients need to know.

    They take an object without `additionalProperties` for one that is always empty, and an enumeration without a type
    for one of anything.
    """
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return {"$ref": SCHEMA.format(name=_short(schema["$ref"].rpartition("/")[2]))}
    plain = {name: _plain(each) for name, each in schema.items() if name != "default" or each is not None}
    if plain.get("type") == "object" and "title" not in plain and plain.get("additionalProperties", {}) == {}:
        plain["additionalProperties"] = True
    if isinstance(plain.get("enum"), list) and all(isinstance(each, str) for each in plain["enum"]):
        plain["type"] = "string"
    return plain


def _operation(section: str, route: Route, schemas: _Schemas) -> dict[str, Any]:
    shape = shape_of(route.operation)
    described: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [section],
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route, shape, schemas),
            *_header_parameters(route),
        ],
        "responses": responses_of(route, shape, schemas.ref),
    }
    if route.needs:
        described["description"] = f"Takes the permission {' or '.join(sorted(route.needs))}."
    if route.door is AuthLevel.PUBLIC:
        described["security"] = []
    if route.door is AuthLevel.SESSION:
        described["security"] = [{"session": []}]
    if shape.body is not None:
        plan = body_plan_of(shape.body)
        described["requestBody"] = {
            "required": any(field.is_required for field in plan.fields),
            "content": {"application/json": {"schema": schemas.ref(plan), **_example(plan)}},
        }
    return described


def _example(plan: CodecPlan) -> dict[str, Any]:
    found = texts()["examples"].get(plan.record.__name__)
    return {} if found is None else {"examples": {"usual": {"value": found}}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1, "maxLength": _LONGEST_PART, "pattern": _PLAIN}
    return [_parameter(route, name, "path", schema, is_required=True) for name in route.parameters]


def _query_parameters(route: Route, shape: OperationSignature, schemas: _Schemas) -> list[dict[str, Any]]:
    if shape.query is None:
        return []
    plan = plan_of(shape.query)
    schema = schemas.all[schemas.names[plan.wire]]
    required = schema.get("required", ())
    return [
        _parameter(route, name, "query", _without_control(each), is_required=name in required, plan=plan)
        for name, each in schema["properties"].items()
    ]


def _parameter(
    route: Route,
    name: str,
    where: str,
    schema: dict[str, Any],
    *,
    is_required: bool,
    plan: CodecPlan | None = None,
) -> dict[str, Any]:
    about = texts()["operations"].get(route.operation, {}).get(name)
    about = about or _about_field([] if plan is None else _types_of(plan), name, "parameters")
    about += "" if plan is None else _earlier_name(plan.earlier.renamed, name)
    plain = {key: each for key, each in schema.items() if key != "description"}
    return {"name": name, "in": where, "required": is_required, "description": about, "schema": plain}


def _without_control(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "array":
        return {**schema, "items": _without_control(schema["items"])}
    is_text = schema.get("type") == "string" and not schema.keys() & {"pattern", "format"}
    return {**schema, "pattern": _PLAIN.replace("+$", "*$")} if is_text else schema


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.takes_key:
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!#-\[\]-~]+$"}
        found.append(_header("Idempotency-Key", schema))
    tags = {"type": "string", "pattern": _TAGS, "examples": ['"1"']}
    if route.tag in (ETagUse.HEEDED, ETagUse.REQUIRED):
        is_required = route.tag is ETagUse.REQUIRED
        found.append(_header("If-Match", tags, is_required=is_required))
    if route.tag is not ETagUse.NONE and route.method == "GET":
        found.append(_header("If-None-Match", tags))
    if route.waits:
        found.append(_header("Prefer", {"type": "string"}))
    if route.is_stream:
        found.append(_header("Last-Event-ID", {"type": "string"}))
    return found


def _header(name: str, schema: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    about = texts()["headers"][name]
    return {"name": name, "in": "header", "required": is_required, "schema": schema, "description": about}
