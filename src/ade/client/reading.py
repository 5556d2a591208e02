"""Answers of a server as records again, and its refusals as problems."""

import re
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from ade.core.web.answers import Content, Tagged
from ade.core.web.problems import Problem
from ade.core.web.raising import ServerProblem, read_problem
from ade.core.web.wire import plan_of
from ade.net.pool import Response, StreamedResponse

_VERSION = re.compile(r'"([0-9]{1,18})"', re.ASCII)
_FILE_NAME = re.compile(r'filename="([^"/\\]{1,200})"')
_NO_CONTENT, FIRST_REDIRECT, _FIRST_REFUSAL = 204, 300, 400
_LONGEST_REFUSAL = 1 << 20


def read_answer(kind: Any, response: Response) -> Any:
    """A value of this type. Raises ServerProblem for what is none."""
    if kind is type(None):
        return None
    if kind is Content:
        return content_of(response, response.body)
    if response.status == _NO_CONTENT:
        raise ServerProblem("the server answered nothing where a record was expected; it may be of another version")
    if get_origin(kind) is Tagged:
        [record] = get_args(kind)
        return Tagged(read_record(record, response.body), _version(response))
    return read_record(kind, response.body)


def read_record(kind: Any, body: bytes | str) -> Any:
    """Fields that only a newer server knows are left aside. Raises ServerProblem."""
    try:
        return plan_of(kind).back(_decoder(kind).decode(body))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ServerProblem(f"the server's answer cannot be read; it may be of another version ({error})") from None


def content_of(response: Response | StreamedResponse, body: bytes | AsyncIterator[bytes]) -> Content:
    """An answer that is no record, with its body at once or as it comes."""
    disposition = _FILE_NAME.search(response.header("content-disposition") or "")
    return Content(
        media_type=response.header("content-type") or "application/octet-stream",
        body=body,
        file_name=disposition[1] if disposition else None,
    )


async def problem_of_stream(response: StreamedResponse) -> Problem:
    """What a refused stream says."""
    body = b""
    async for piece in response.chunks():
        body += piece
        if len(body) > _LONGEST_REFUSAL:
            break
    return problem_of(response, body)


def problem_of(response: Response | StreamedResponse, body: bytes) -> Problem:
    if response.status < _FIRST_REFUSAL:
        detail = f"the server answers with {response.status} and points to {response.header('location')!s:.200}"
        return Problem(code=ServerProblem.code, status=response.status, title="", detail=f"{detail}; ask there")
    named = ("retry-after", "www-authenticate")
    headers = {name: value for name in named if (value := response.header(name)) is not None}
    return read_problem(response.status, body, headers)


def _version(response: Response) -> int:
    match = _VERSION.fullmatch(response.header("etag") or "")
    if match is None:
        raise ServerProblem("the server's answer has no ETag, so that its version is not known")
    return int(match[1])


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(plan_of(kind).wire)
