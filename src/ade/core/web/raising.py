"""A problem becomes the error again that it was made from, by its code."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

# For all errors that a server may tell of to be known here.
import ade.core.accounts.errors
import ade.core.approvals.refusals
import ade.core.inbox.errors
import ade.core.webhooks.errors  # noqa: F401
from ade.core.errors import AdeError
from ade.core.web.problems import Problem, RequestRefused

_KNOWN = frozenset({"type", "title", "status", "detail", "instance", "code"})
_LONGEST_DETAIL = 2_000


class ServerProblem(AdeError):
    """The server refused that, or answered what this version of ADE does not understand."""

    code = "server_problem"

    def __init__(self, detail: str = "", *, problem: Problem | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        if problem is not None:
            self.code = problem.code

    @property
    def status(self) -> int | None:
        return None if self.problem is None else self.problem.status


def error_of(problem: Problem) -> AdeError:
    """An error of the class that has this code, with what it told beside its sentence; else a ServerProblem."""
    kind = _errors().get(problem.code)
    if kind is None or kind is ServerProblem:
        return ServerProblem(problem.detail, problem=problem)
    error = kind(problem.detail)
    for name, value in problem.more.items():
        if name in vars(error):
            setattr(error, name, value)
    return error


def error_of_refusal(refused: RequestRefused) -> AdeError:
    """What a client sees when a request breaks the conventions, also where nothing goes over HTTP."""
    return error_of(refused.problem)


def read_problem(status: int, body: bytes, headers: Mapping[str, str]) -> Problem:
    """What the body says; where it says nothing, as behind a proxy that answers by itself, the status."""
    try:
        told: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        detail = f"the answer is {status} and says nothing more; is this the address of an ADE server?"
        return Problem(code=ServerProblem.code, status=status, title="", detail=detail, headers=headers)
    return Problem(
        code=told["code"][:100],
        status=status,
        title=_text(told.get("title")),
        detail=_text(told.get("detail")),
        instance=_text(told.get("instance")) or None,
        more={name: value for name, value in told.items() if name not in _KNOWN},
        headers=headers,
    )


def _text(value: object) -> str:
    return value[:_LONGEST_DETAIL] if isinstance(value, str) else ""


@cache
def _errors() -> Mapping[str, type[AdeError]]:
    return {kind.code: kind for kind in _family(AdeError) if kind.__module__.startswith("ade.core.")}


def _family(kind: type[AdeError]) -> Iterator[type[AdeError]]:
    yield kind
    for heir in kind.__subclasses__():
        yield from _family(heir)
