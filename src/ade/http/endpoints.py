"""A route with its operation: what comes in as text becomes forms, what comes back becomes JSON."""

import asyncio
import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args, get_origin
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ade.core.web.bodies import check_media_type, read_json
from ade.core.web.etags import EntityTag, tag_of_content, tag_of_version
from ade.core.web.limits import RequestLimits
from ade.core.web.problems import RequestRefused, refused_fields
from ade.core.web.routing import Route, Tag
from ade.core.web.statuses import Fault
from ade.core.web.wire import Plan, body_plan_of, plan_of
from ade.http.messages import Request, Response
from ade.http.telling import told
from ade.operations.kit import Asked, Content, Office, Tagged
from ade.operations.openapi_answers import address_of, success_status
from ade.operations.registry import check_shape, operation, shape_of

_LARGE_BODY = 262_144
_TO_QUOTE = re.compile(r"[^0-9A-Za-z-]")
_encode = msgspec.json.Encoder().encode


class Endpoint:
    """Made once at the start for every route. Raises TypeError for an operation that does not fit its route."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.operation = operation(route.operation)
        self.shape = shape_of(route.operation)
        check_shape(route)
        self._query = None if self.shape.query is None else plan_of(self.shape.query)
        self._lists = frozenset() if self._query is None else _lists_of(self._query)
        self._body = None if self.shape.body is None else body_plan_of(self.shape.body)
        self._needs_body = self._body is not None and any(field.is_required for field in self._body.fields)
        is_record = self.shape.answer not in (None, Content)
        self._answer: Plan | None = plan_of(self.shape.answer) if is_record else None
        self.status = success_status(route, self.shape.answer)
        self._address = address_of(route)

    def read_query(self, pairs: Sequence[tuple[str, str]]) -> Struct | None:
        """Raises RequestRefused (400)."""
        given: dict[str, Any] = {}
        for name, value in pairs:
            if name in self._lists:
                given.setdefault(name, []).extend(value.split(","))
            elif name in given:
                raise RequestRefused(Fault.BAD_REQUEST, f"{name[:60]} may be given only once")
            else:
                given[name] = value
        if self._query is None:
            if given:
                raise RequestRefused(Fault.BAD_REQUEST, f"unknown parameter {next(iter(given))[:60]!r}; it takes none")
            return None
        try:
            made: Struct = _made(self._query, given, is_strict=False)
        except _Unfit as unfit:
            at = f"{unfit.at}: " if unfit.at else ""
            raise RequestRefused(Fault.BAD_REQUEST, f"{at}{unfit.reason}") from None
        return made

    async def read_body(self, request: Request, limits: RequestLimits) -> tuple[bytes, Struct | None]:
        """The bytes, for who must recognise them, and the form. Raises RequestRefused (400, 413, 415, 422)."""
        raw = await request.body(limits)
        if self._body is None:
            if raw.strip() not in (b"", b"{}"):  # many libraries send an empty object
                raise RequestRefused(Fault.BAD_REQUEST, "this takes no body")
            return raw, None
        if not raw and not self._needs_body:
            return raw, self._body.record()
        check_media_type(request.named.get("content-type"))
        try:
            if len(raw) <= _LARGE_BODY:
                return raw, _made(self._body, read_json(raw, limits), is_strict=True)
            given = await asyncio.to_thread(read_json, raw, limits)  # all others go on meanwhile
            return raw, _made(self._body, given, is_strict=True)
        except _Unfit as unfit:
            raise refused_fields({unfit.at: unfit.reason}) from None

    async def carry_out(
        self, office: Office, asked: Asked, values: Sequence[str], query: Struct | None, body: Struct | None
    ) -> Any:
        forms: dict[str, Struct] = {}
        if query is not None:
            forms["query"] = query
        if body is not None:
            forms["body"] = body
        return await self.operation(office, asked, *values, **forms)

    def response(self, answer: Any) -> Response:
        """What is sent for an answer; its ETag with it."""
        if answer is None:
            return Response(204, media_type=None)
        if isinstance(answer, Content):
            return _content_response(answer, self.route)
        version = answer.version if isinstance(answer, Tagged) else getattr(answer, "version", None)
        record = answer.record if isinstance(answer, Tagged) else answer
        assert self._answer is not None
        encoded = _encode(self._answer.out(record))
        headers: dict[str, str] = {}
        if self.route.tag is not Tag.NONE:
            headers["ETag"] = str(tag_of_version(version) if isinstance(version, int) else tag_of_content(encoded))
        if self._address is not None:
            place = quote(record.id, safe="") if _TO_QUOTE.search(record.id) else record.id
            headers["Location"] = f"{self._address}{place}"
        return Response(self.status, encoded, headers=headers)


class _Unfit(Exception):
    def __init__(self, at: str, reason: str) -> None:
        self.at = at
        self.reason = reason
        super().__init__(reason)


def _made(plan: Plan, given: Any, *, is_strict: bool) -> Any:
    try:
        return plan.back(msgspec.convert(given, plan.wire, strict=is_strict))
    except msgspec.ValidationError as error:
        raise _Unfit(*told(error, plan)) from None
    except ValueError as error:  # a time that is none
        raise _Unfit("", str(error)) from None


def _lists_of(plan: Plan) -> frozenset[str]:
    """Names of parameters that may come more than once, or with commas."""
    hints = {field.name: field.type for field in msgspec.structs.fields(plan.wire)}
    return frozenset(name for name, kind in hints.items() if _is_list(kind))


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(_is_list(each) for each in get_args(kind) if each is not NoneType)


def _content_response(content: Content, route: Route) -> Response:
    headers: dict[str, str] = {}
    if content.file_name is not None:
        headers["Content-Disposition"] = f'attachment; filename="{content.file_name}"'
    if content.policy is not None:
        headers["Content-Security-Policy"] = content.policy
    if not isinstance(content.body, bytes):
        return Response(200, media_type=content.media_type, headers=headers, stream=content.body)
    if route.tag is not Tag.NONE:
        tag: EntityTag = tag_of_content(content.body)
        headers["ETag"] = str(tag)
    return Response(200, content.body, content.media_type, headers)
