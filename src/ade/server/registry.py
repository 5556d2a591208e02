"""The decorator that declares an API operation, and the registry of declared operations.

    @operation("POST /tasks/{task_id}/cancel", permission=Permission.ENQUEUE, others=Permission.OPERATE)
    async def cancel_task(services: Services, request: RequestContext, task_id: str, body: CancelTask) -> Task:
        \"""Stop a task.\"""

This is the only declaration. The table of routes (`ade.server.routes`), the OpenAPI document, the methods of the
client, the reference, and the rows of the access matrix are derived from it. The function name is the operationId, the
first sentence of the docstring is the summary, and the annotations are the request and response types.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from ade.accounts.model import Permission
from ade.server.pagination import VersionedRecord
from ade.server.routing import API, AuthLevel, ETagUse, Route, TrafficClass

OperationFunction = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=OperationFunction)
_FIRST = 2  # services and request come before the path parameters
_FORMS = ("query", "body")


class Operation(NamedTuple):
    """A declared operation: its route and its function."""

    route: Route
    function: OperationFunction


class OperationSignature(Struct, frozen=True, kw_only=True):
    """The request and response types of an operation."""

    path: tuple[str, ...]
    query: type[Struct] | None
    body: type[Struct] | None
    answer: Any  # a Struct, Page[Struct], or None for 204
    is_tagged: bool  # the function returns a VersionedRecord


OPERATIONS: dict[str, Operation] = {}  # of the modules loaded so far; `ade.server.routes` loads all


def operation(
    line: str,
    *,
    permission: Permission | tuple[Permission, ...] = (),
    others: Permission | None = None,
    door: AuthLevel = AuthLevel.PERMISSION,
    mutates: bool | None = None,
    traffic: TrafficClass | None = None,
    takes_key: bool | None = None,
    tag: ETagUse = ETagUse.NONE,
    is_stream: bool = False,
    is_download: bool = False,
    waits: bool = False,
    media_types: tuple[str, ...] = ("application/json",),
    problems: tuple[int, ...] = (),
    has_method: bool = True,
    prefix: str = API,
) -> Callable[[F], F]:
    """Declare a function as an operation. `line` is `METHOD /path` below `prefix`; see `Route` for the rest.

    One of several permissions is sufficient. By default, every method except GET is a write, and a write takes an
    Idempotency-Key unless it is a PUT or DELETE, which are idempotent anyway. Raises TypeError for a function whose
    parameters do not match its path.
    """
    method, _, path = line.partition(" ")
    needs = frozenset({permission} if isinstance(permission, Permission) else permission)
    is_change = method != "GET" if mutates is None else mutates

    def declare(function: F) -> F:
        name = function.__name__
        route = Route(
            operation=name,
            module=function.__module__,
            method=method,
            path=prefix + path,
            summary=_first_sentence(function.__doc__ or ""),
            door=door,
            needs=needs,
            others=others,
            mutates=is_change,
            traffic=traffic or (TrafficClass.WRITE if is_change else TrafficClass.READ),
            takes_key=is_change and method in ("POST", "PATCH") if takes_key is None else takes_key,
            tag=tag,
            is_stream=is_stream,
            is_download=is_download,
            waits=waits,
            media_types=media_types,
            problems=problems,
            has_method=has_method,
        )
        _check(route, function)
        OPERATIONS[name] = Operation(route, function)
        return function

    return declare


def _first_sentence(text: str) -> str:
    sentence, stop, _ = " ".join(text.split()).partition(". ")
    return sentence + stop.rstrip()


def _check(route: Route, function: OperationFunction) -> None:
    taken = _path_arguments(function)
    if taken != route.parameters:
        raise TypeError(f"{route.operation} takes {taken}, but its path has {route.parameters}")
    if bool(route.needs) != (route.door is AuthLevel.PERMISSION):
        raise TypeError(f"{route.operation} must name a permission, or a door that needs none")
    known = OPERATIONS.get(route.operation)
    if known is not None:
        raise TypeError(f"{route.operation} is declared in {known.route.module} and in {route.module}")


def _path_arguments(function: OperationFunction) -> tuple[str, ...]:
    code = function.__code__
    return tuple(name for name in code.co_varnames[_FIRST : code.co_argcount] if name not in _FORMS)


@cache
def shape_of(name: str) -> OperationSignature:
    """Return the request and response types of the operation with this name."""
    function = OPERATIONS[name].function
    hints = get_type_hints(function)
    answer = hints["return"]
    is_tagged = get_origin(answer) is VersionedRecord
    if is_tagged:
        [answer] = get_args(answer)
    return OperationSignature(
        path=_path_arguments(function),
        query=hints.get("query"),
        body=hints.get("body"),
        answer=None if answer is type(None) else answer,
        is_tagged=is_tagged,
    )
