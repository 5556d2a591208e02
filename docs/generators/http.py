"""The HTTP interface: its routes, section by section, as the OpenAPI document describes them."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ade.accounts.model import Permission
from ade.server.openapi import description
from ade.server.operation import API, AuthLevel, ETagUse, OperationSignature, ReadRule, Route, shape_of
from ade.server.problems import FAULTS
from ade.server.request_body import USUAL
from ade.server.route_table import ROUTES, SECTIONS
from ade.settings.sections import HttpSettings
from docs.generators.http_examples import CURL
from docs.generators.http_types import (
    PAGING,
    docstring,
    fields_table,
    http_choices,
    http_types,
    said,
    schemas,
    type_text,
)
from docs.generators.tables import Block, table

_WHO = {AuthLevel.PUBLIC: "anybody", AuthLevel.SELF: "anybody known", AuthLevel.SESSION: "signed in"}
_TAGS = {ETagUse.NONE: "", ETagUse.ANSWERED: "ETag", ETagUse.HEEDED: "If-Match", ETagUse.REQUIRED: "**If-Match**"}

_USUAL = "200"
_FEW = 12  # routes that are named


@cache
def _paths() -> Mapping[str, Any]:
    found: Mapping[str, Any] = description()["paths"]
    return found


def http_routes() -> str:
    return "\n\n".join(text for section, routes in SECTIONS.items() for text in _section(section, routes))


def _section(section: str, routes: tuple[Route, ...]) -> Iterator[str]:
    yield f"### {section.capitalize()}"
    yield table(["route", "operation", "what it does", "who", "heeds", "answers"], map(_row, routes))
    yield from filter(None, map(_details, routes))


def _row(route: Route) -> list[str]:
    name = f"[{route.operation}](#{route.operation})" if _details(route) else route.operation
    line = f"`{route.method} {route.path.removeprefix(API)}`"
    return [line, name, route.summary, _who(route), _heeds(route), _answer(route)]


def _who(route: Route) -> str:
    if route.door is not AuthLevel.PERMISSION:
        return _WHO[route.door]
    needed = " or ".join(sorted(route.needs))
    if route.reads is ReadRule.SCOPED:
        return f"{needed} (own)"
    if route.reads is ReadRule.ALL and Permission.READ in route.needs:
        return f"{needed} (all)"
    return f"{needed}; others': {route.others}" if route.others is not None else needed


def _heeds(route: Route) -> str:
    marks = ["key" if route.takes_key else "", _TAGS[route.tag], "stream" if route.is_stream else ""]
    return ", ".join(filter(None, marks))


def _answer(route: Route) -> str:
    described = _paths()[route.path][route.method.lower()]["responses"]
    status: str = next(each for each in described if each.startswith("2"))
    content = described[status].get("content", {})
    if not content:
        return status
    schema = content.get("application/json", {}).get("schema", {})
    told = type_text(schema) if schema else ", ".join(f"`{each}`" for each in content)
    return told if status == _USUAL else f"{status}, {told}"


@cache
def _details(route: Route) -> str:
    """What the row cannot tell; empty where it tells all."""
    shape = shape_of(route.operation)
    parts = [*_query(route, shape), *_body(route, shape), *_curl(route)]
    return "\n\n".join([f"#### {route.operation}", *parts]) if parts else ""


def _query(route: Route, shape: OperationSignature) -> Iterator[str]:
    if shape.query is None:
        return
    operation = _paths()[route.path][route.method.lower()]
    found = {
        each["name"]: {**each["schema"], "description": each["description"]}
        for each in operation["parameters"]
        if each["in"] == "query"
    }
    required = [each["name"] for each in operation["parameters"] if each["in"] == "query" and each["required"]]
    schema = {"properties": found, "required": required}
    if fields := fields_table(shape.query.__name__, schema, "parameter", without=PAGING):
        yield from filter(None, [docstring(shape.query)])
        yield fields


def _body(route: Route, shape: OperationSignature) -> Iterator[str]:
    if shape.body is None:
        return
    first = next(each for each in ROUTES if shape_of(each.operation).body is shape.body)
    if first is not route and _details(first):
        yield f"The body of [{first.operation}](#{first.operation})."
        return
    name = shape.body.__name__
    schema = schemas()[name]
    if fields := fields_table(name, schema, "field"):
        yield from filter(None, [said(schema)])
        yield fields


def _curl(route: Route) -> Iterator[str]:
    if route.operation in CURL:
        yield f"```sh\n{CURL[route.operation]}\n```"


def http_problems() -> str:
    rows = ([f"`{fault}`", str(status), sentence] for fault, (status, sentence) in FAULTS.items())
    return table(["code", "status", "what it means, and what to do"], rows)


def http_rates() -> str:
    rows = (
        [f"`http.{traffic}_rate`", f"`{rate}`", _counted(traffic)] for traffic, rate in HttpSettings().rates().items()
    )
    return table(["setting", "usual", "routes"], rows)


def _counted(traffic: str) -> str:
    routes = [route for route in ROUTES if route.traffic == traffic]
    return ", ".join(f"`{route.operation}`" for route in routes) if len(routes) <= _FEW else f"{len(routes)} routes"


def http_limits() -> str:
    of_headers = f"{USUAL.headers}, {USUAL.header_chars:,} characters each, {USUAL.all_header_chars:,} together"
    rows = [
        ["body", f"{USUAL.body_bytes:,} bytes (`http.body_limit_kb`)", "413"],
        ["lists and objects inside each other", f"{USUAL.json_depth}", "400"],
        ["address", f"{USUAL.target_chars:,} characters", "414"],
        ["parameters", f"{USUAL.parameters}, {USUAL.parameter_chars:,} characters each", "400"],
        ["headers", of_headers, "431"],
    ]
    return table(["what", "at most", "beyond"], rows)


HTTP_BLOCKS: Mapping[str, Block] = {
    "http-routes": http_routes,
    "http-types": http_types,
    "http-choices": http_choices,
    "http-problems": http_problems,
    "http-rates": http_rates,
    "http-limits": http_limits,
}
