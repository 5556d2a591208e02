"""The router, and endpoints: they parse queries and bodies, call the operation, and encode the response."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from types import NoneType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

from ade.server.context import RequestContext, Services
from ade.server.etags import EntityTag, tag_of_content, tag_of_version
from ade.server.openapi import address_of, success_status
from ade.server.operation import API, OPERATIONS, WIDE, ETagUse, Route, shape_of
from ade.server.pagination import RawContent, VersionedRecord
from ade.server.problems import HttpFault, RequestRefused, problem_of_status, refused_fields
from ade.server.request import HttpRequest, HttpResponse
from ade.server.request_body import RequestLimits, check_media_type, read_json
from ade.server.request_types import EarlierNames, is_in_ms, to_ms
from ade.server.wire_format import CodecPlan, body_plan_of, plan_of

E = TypeVar("E")
_LONGEST_VALUE = 500  # no name is longer, and it fits into a URL when percent-encoded
_PLACE_ROUTER = re.compile(r"\{(\w+)\}")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]")


class PathRoutes(NamedTuple, Generic[E]):
    """The endpoints of one path, by method."""

    pattern: re.Pattern[str]
    endpoints: dict[str, E]


class RouteMatch(NamedTuple, Generic[E]):
    """The endpoint for a request and its path parameters."""

    endpoint: E
    values: tuple[str, ...]  # of the path parameters


class MethodNotAllowed(Exception):
    """The path exists, but not with this method."""

    def __init__(self, methods: Sequence[str]) -> None:
        self.problem = problem_of_status(405, allow=tuple(methods))
        super().__init__(self.problem.detail)


class Router(Generic[E]):
    """Finds endpoints: plain paths by lookup, paths with parameters in the order of the table."""

    def __init__(self, endpoints: Iterable[tuple[Route, E]]) -> None:
        self._plain: dict[str, dict[str, E]] = {}
        self._ways: dict[str, list[PathRoutes[E]]] = {}
        by_path: dict[str, dict[str, E]] = {}
        for route, endpoint in endpoints:
            by_path.setdefault(route.path, {})[route.method] = endpoint
            if not route.parameters:
                self._plain[route.path] = by_path[route.path]
        for path, methods in sorted(by_path.items(), key=lambda each: _ends_wide(each[0])):
            if path not in self._plain:
                self._ways.setdefault(_room(path), []).append(PathRoutes(_pattern(path), methods))

    def find(self, method: str, path: str) -> RouteMatch[E]:
        """Return the endpoint. Raises RequestRefused (404, 400) and MethodNotAllowed."""
        plain = self._plain.get(path)
        if plain is not None:
            return RouteMatch(_of_method(plain, method), ())
        for pattern, endpoints in self._ways.get(_room(path), ()):
            match = pattern.fullmatch(path)
            if match is not None:
                return RouteMatch(_of_method(endpoints, method), tuple(map(_value, match.groups())))
        raise RequestRefused(HttpFault.NOT_FOUND)


def _of_method(endpoints: dict[str, E], method: str) -> E:
    found = endpoints.get("GET" if method == "HEAD" else method)
    if found is None:
        raise MethodNotAllowed(sorted({*endpoints, *(["HEAD"] if "GET" in endpoints else [])}))
    return found


def _room(path: str) -> str:
    """The first path segment, by which the table is divided: `tasks` of `/api/v1/tasks/...`."""
    inside = path.removeprefix(f"{API}/")
    return inside.lstrip("/").partition("/")[0]


def _ends_wide(path: str) -> bool:
    """Whether the path ends with a parameter that matches slashes; such a path is tried last."""
    return path.endswith(tuple(f"{{{name}}}" for name in WIDE))


def _pattern(path: str) -> re.Pattern[str]:
    parts = _PLACE_ROUTER.split(path)
    made = [
        re.escape(part) if index % 2 == 0 else "(.+)" if part in WIDE else "([^/]+)" for index, part in enumerate(parts)
    ]
    return re.compile("".join(made))


def _value(text: str) -> str:
    """Decode a path parameter. Raises RequestRefused (400)."""
    if "%" in text:
        try:
            text = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise RequestRefused(HttpFault.BAD_REQUEST, "the address has a part that is not UTF-8") from None
    if len(text) > _LONGEST_VALUE or _UNFIT.search(text):
        raise RequestRefused(
            HttpFault.BAD_REQUEST, f"a part of an address has at most {_LONGEST_VALUE:,} characters, none of control"
        )
    return text


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_PLACE = re.compile(r"\$\.?")
_MOST_NAMED = 40
_LONGEST_PLACE = 200  # characters, because the text comes from the client


def validation_message(error: msgspec.ValidationError, plan: CodecPlan) -> tuple[str, str]:
    """Return the field, such as `priority` or `tasks[3].queue` or "", and an error message."""
    reason, _, place = str(error).partition(" - at `")
    where = _PLACE.sub("", place.removesuffix("`"), count=1)[:_LONGEST_PLACE]
    unknown = _UNKNOWN.fullmatch(reason)
    if unknown is not None:
        known = "" if where else f"; known are {_listed(plan.wire.__struct_fields__)}"
        name = unknown[1][:_LONGEST_PLACE]
        return f"{where}.{name}" if where else name, f"there is no field {unknown[1][:60]!r} here{known}"
    if reason.startswith("Invalid enum value"):
        return where, _with_values(reason, where, plan)
    return where, reason.replace(" | null", "")


def _with_values(reason: str, where: str, plan: CodecPlan) -> str:
    name = where.partition("[")[0].partition(".")[0]
    kinds = {field.name: field.type for field in msgspec.structs.fields(plan.wire)}
    values = _values(kinds[name]) if name in kinds else []
    return f"{reason}; it is one of {_listed(values)}" if values else reason


def _values(kind: Any) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [value for each in get_args(kind) for value in _values(each)]


def _listed(names: Any) -> str:
    shown = list(names)[:_MOST_NAMED]
    return ", ".join(shown) + (" and more" if len(names) > len(shown) else "")


_LARGE_BODY = 262_144
_TO_QUOTE = re.compile(r"[^0-9A-Za-z-]")
_encode = msgspec.json.Encoder().encode


class Endpoint:
    """A route with its operation and its codecs, created once at startup."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.operation = OPERATIONS[route.operation].function
        self.shape = shape_of(route.operation)
        self._query = None if self.shape.query is None else plan_of(self.shape.query)
        self._lists = frozenset() if self._query is None else _lists_of(self._query)
        self._body = None if self.shape.body is None else body_plan_of(self.shape.body)
        self._needs_body = self._body is not None and any(field.is_required for field in self._body.fields)
        is_record = self.shape.answer not in (None, RawContent)
        self._answer: CodecPlan | None = plan_of(self.shape.answer) if is_record else None
        self.status = success_status(route, self.shape.answer)
        self._address = address_of(route)

    def read_query(self, pairs: Sequence[tuple[str, str]]) -> Struct | None:
        """Parse the query. Raises RequestRefused (400)."""
        given: dict[str, Any] = {}
        for name, value in pairs:
            if name in self._lists:
                given.setdefault(name, []).extend(value.split(","))
            elif name in given:
                raise RequestRefused(HttpFault.BAD_REQUEST, f"{name[:60]} may be given only once")
            else:
                given[name] = value
        if self._query is None:
            if given:
                raise RequestRefused(
                    HttpFault.BAD_REQUEST, f"unknown parameter {next(iter(given))[:60]!r}; it takes none"
                )
            return None
        try:
            made: Struct = _made(self._query, given, is_strict=False)
        except _InvalidRequest as unfit:
            at = f"{unfit.at}: " if unfit.at else ""
            raise RequestRefused(HttpFault.BAD_REQUEST, f"{at}{unfit.reason}") from None
        return made

    async def read_body(self, request: HttpRequest, limits: RequestLimits) -> tuple[bytes, Struct | None]:
        """Return the raw bytes, for the idempotency fingerprint, and the parsed body.

        Raises RequestRefused (400, 413, 415, 422).
        """
        raw = await request.body(limits)
        if self._body is None:
            if raw.strip() not in (b"", b"{}"):  # many libraries send an empty object
                raise RequestRefused(HttpFault.BAD_REQUEST, "this operation takes no body")
            return raw, None
        if not raw and not self._needs_body:
            return raw, self._body.record()
        check_media_type(request.named.get("content-type"))
        try:
            if len(raw) <= _LARGE_BODY:
                return raw, _made(self._body, read_json(raw, limits), is_strict=True)
            given = await asyncio.to_thread(read_json, raw, limits)  # so that other requests continue
            return raw, _made(self._body, given, is_strict=True)
        except _InvalidRequest as unfit:
            raise refused_fields({unfit.at: unfit.reason}) from None

    async def carry_out(
        self,
        services: Services,
        request: RequestContext,
        values: Sequence[str],
        query: Struct | None,
        body: Struct | None,
    ) -> Any:
        forms: dict[str, Struct] = {}
        if query is not None:
            forms["query"] = query
        if body is not None:
            forms["body"] = body
        return await self.operation(services, request, *values, **forms)

    def response(self, answer: Any) -> HttpResponse:
        """Return the HTTP response for a result, with its ETag and Location."""
        if answer is None:
            return HttpResponse(204, media_type=None)
        if isinstance(answer, RawContent):
            return _content_response(answer, self.route)
        version = answer.version if isinstance(answer, VersionedRecord) else getattr(answer, "version", None)
        record = answer.record if isinstance(answer, VersionedRecord) else answer
        assert self._answer is not None
        encoded = _encode(self._answer.out(record))
        headers: dict[str, str] = {}
        if self.route.tag is not ETagUse.NONE:
            headers["ETag"] = str(tag_of_version(version) if isinstance(version, int) else tag_of_content(encoded))
        if self._address is not None:
            place = quote(record.id, safe="") if _TO_QUOTE.search(record.id) else record.id
            headers["Location"] = f"{self._address}{place}"
        return HttpResponse(self.status, encoded, headers=headers)


class _InvalidRequest(Exception):
    def __init__(self, at: str, reason: str) -> None:
        self.at = at
        self.reason = reason
        super().__init__(reason)


def _made(plan: CodecPlan, given: Any, *, is_strict: bool) -> Any:
    try:
        _rename(plan.earlier, given)
        return plan.back(msgspec.convert(given, plan.wire, strict=is_strict))
    except msgspec.ValidationError as error:
        at, reason = validation_message(error, plan)
        advice = getattr(plan.record, "advice_if_invalid", "")
        raise _InvalidRequest(at, f"{reason}; {advice}" if advice else reason) from None
    except ValueError as error:  # an invalid time
        raise _InvalidRequest("", str(error)) from None


def _rename(earlier: EarlierNames, value: Any) -> None:
    """Replace earlier names of fields by the current ones.

    The earlier name of a duration in `_ms` takes seconds. Raises ValueError if a field is given under both names.
    """
    if isinstance(value, list):
        for each in value:
            _rename(earlier, each)
    elif isinstance(value, dict):
        for old in earlier.renamed.keys() & value.keys():
            name = earlier.renamed[old]
            if name in value:
                raise ValueError(f"{old} and {name} are the same field; send only {name}")
            given = value.pop(old)
            value[name] = to_ms(given) if is_in_ms(old, name) and type(given) in (int, float) else given
        for name in earlier.inner.keys() & value.keys():
            _rename(earlier.inner[name], value[name])


def _lists_of(plan: CodecPlan) -> frozenset[str]:
    """The names of parameters that accept several values, repeated or separated by commas."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(plan.wire)}
    return frozenset(name for name, kind in kinds.items() if _is_list(kind))


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(_is_list(each) for each in get_args(kind) if each is not NoneType)


def _content_response(content: RawContent, route: Route) -> HttpResponse:
    headers: dict[str, str] = {}
    if content.file_name is not None:
        headers["Content-Disposition"] = f'attachment; filename="{content.file_name}"'
    if content.policy is not None:
        headers["Content-Security-Policy"] = content.policy
    if not isinstance(content.body, bytes):
        return HttpResponse(200, media_type=content.media_type, headers=headers, stream=content.body)
    if route.tag is not ETagUse.NONE:
        tag: EntityTag = tag_of_content(content.body)
        headers["ETag"] = str(tag)
    return HttpResponse(200, content.body, content.media_type, headers)
