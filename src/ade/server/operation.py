"""Declaration of API operations: the decorator, the route that it defines, and the access check for a caller.

    @operation("POST /tasks/{task_id}/cancel", permission=Permission.ENQUEUE, others=Permission.OPERATE)
    async def cancel_task(services: Services, request: RequestContext, task_id: str, body: CancelTask) -> Task:
        \"""Stop a task.\"""

This is the only declaration. The table of routes (`ade.server.route_table`), the OpenAPI document, the methods of the
client, the reference, and the rows of the access matrix are derived from it. The function name is the operationId, the
first sentence of the docstring is the summary, and the annotations are the request and response types.
"""

import re
from collections.abc import Awaitable, Callable
from enum import StrEnum, auto
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from ade.accounts.model import READING_ROLES, Caller, NotAuthenticated, Permission, Role, permissions_of
from ade.errors import NotPermitted
from ade.server.pagination import VersionedRecord

API = "/api/v1"
_PARAMETER = re.compile(r"\{(\w+)\}")
WIDE = frozenset({"agent_id", "inbox_id"})  # parameters whose values can contain a slash


class TrafficClass(StrEnum):
    """Classes of routes with separate rate limits. Those in `RateClass` share theirs with other interfaces."""

    __hash__ = str.__hash__  # faster: Enum.__hash__ is a Python function

    READ = auto()
    WRITE = auto()
    VOTE = auto()
    LOGIN = auto()
    WORK = auto()  # claims and heartbeats: frequent and small
    LOCK = auto()  # lock requests
    STREAM = auto()  # counts opening a stream, not its events
    PROBE = auto()  # never limited: probes must work while everything else is rejected


class AuthLevel(StrEnum):
    """The authentication that a route requires before permissions are checked."""

    __hash__ = str.__hash__

    PUBLIC = auto()  # nothing
    SELF = auto()  # any authenticated account; the route concerns only the caller
    SESSION = auto()  # SELF with a login session: a stolen token is not enough
    PERMISSION = auto()  # one of the permissions in `needs`


class ETagUse(StrEnum):
    """How a route uses ETag and If-Match."""

    __hash__ = str.__hash__

    NONE = auto()
    ANSWERED = auto()  # the response has an ETag, and a read can return 304
    HEEDED = auto()  # If-Match is optional
    REQUIRED = auto()  # 428 without If-Match


class ReadRule(StrEnum):
    """What a route that reads shows to a limited account, which does not read everything. Every such route states it.

    `ade.tasks.read_access` has the rule for tasks.
    """

    __hash__ = str.__hash__

    PUBLIC = auto()  # nothing of any account
    SHARED = auto()  # the same as to everyone: it names no tasks, and every account needs it
    OWN = auto()  # what belongs to the account
    SCOPED = auto()  # its tasks, their children, and its queues; all else is not found and not listed
    ALL = auto()  # nothing: only accounts that read everything can call it


class ClientRoute(Struct, frozen=True):
    """The part of a route that a client needs to call the operation, over HTTP or in process."""

    module: str  # where the function of the operation is defined
    method: str
    path: str
    mutates: bool = False
    takes_key: bool = False  # accepts Idempotency-Key
    tag: ETagUse = ETagUse.NONE
    is_download: bool = False  # the response is a file, streamed to the caller

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))


class Route(ClientRoute, frozen=True, kw_only=True):
    """A route as an operation declares it."""

    operation: str  # the operationId, and the name of the function
    summary: str
    door: AuthLevel = AuthLevel.PERMISSION
    needs: frozenset[Permission] = frozenset()  # any one of these is sufficient
    others: Permission | None = None  # the permission to act on objects of other accounts
    reads: ReadRule | None = None  # None: it changes something, and returns what it changed
    traffic: TrafficClass = TrafficClass.READ
    is_stream: bool = False  # can return server-sent events
    waits: bool = False  # supports `Prefer: wait`
    media_types: tuple[str, ...] = ("application/json",)  # of a RawContent response
    problems: tuple[int, ...] = ()  # further error statuses, for the OpenAPI document
    has_method: bool = True  # in the client; pages for browsers have none

    @property
    def shape(self) -> str:
        """The path without parameter names. A method and a shape identify a route."""
        return _PARAMETER.sub("{}", self.path)


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


OPERATIONS: dict[str, Operation] = {}  # of the modules loaded so far; `ade.server.route_table` loads all


def operation(
    line: str,
    *,
    permission: Permission | tuple[Permission, ...] = (),
    others: Permission | None = None,
    reads: ReadRule | None = None,
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
            reads=reads,
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
    if route.reads is None and not route.mutates:
        raise TypeError(f"{route.operation} reads: it must state what limited accounts read (`reads=ReadRule...`)")
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


# Access of callers to routes.


class RouteAccess(StrEnum):
    """The access of a caller to a route.

    With `OWN` the operation checks the object: another account's object returns the same 404 as an object that does not
    exist, unless the caller has the permission in `others`.
    """

    __hash__ = str.__hash__  # faster: Enum.__hash__ is a Python function

    ALLOWED = auto()
    OWN = auto()  # only to the caller's own objects
    DENIED = auto()  # 403
    UNKNOWN = auto()  # 401


PROGRAMS = frozenset({Role.AGENT, Role.WORKER})  # roles of service accounts; all others are for people


def access_with(
    route: Route,
    permissions: frozenset[Permission] | None,
    *,
    has_session: bool = False,
    reads_everything: bool = True,
) -> RouteAccess:
    """Return the access with these permissions. None means an unauthenticated caller."""
    if route.door is AuthLevel.PUBLIC:
        return RouteAccess.ALLOWED
    if permissions is None:
        return RouteAccess.UNKNOWN
    if route.door is not AuthLevel.PERMISSION:
        return RouteAccess.OWN if has_session or route.door is AuthLevel.SELF else RouteAccess.DENIED
    if not route.needs & permissions or (route.reads is ReadRule.ALL and not reads_everything):
        return RouteAccess.DENIED
    return RouteAccess.ALLOWED if route.others is None or route.others in permissions else RouteAccess.OWN


def access(route: Route, role: Role | None) -> RouteAccess:
    """Return the access of an account with only this role, for the access matrix test. None: unauthenticated."""
    if role is None:
        return access_with(route, None)
    is_human = role not in PROGRAMS
    return access_with(
        route,
        permissions_of([role], is_human=is_human),
        has_session=is_human,
        reads_everything=role in READING_ROLES,
    )


def check_access(route: Route, caller: Caller | None) -> RouteAccess:
    """Return ALLOWED or OWN; the HTTP layer calls it first. Raises NotAuthenticated and NotPermitted."""
    if caller is None:
        if route.door is AuthLevel.PUBLIC:
            return RouteAccess.ALLOWED
        raise NotAuthenticated(
            "this requires a session or a token: sign in, or send one as Authorization: Bearer",
            advice="`ade tokens create` creates one, and commands read ADE_TOKEN",
        )
    answer = access_with(
        route,
        caller.permissions,
        has_session=caller.session is not None,
        reads_everything=route.reads is not ReadRule.ALL or caller.reads_everything,
    )
    if answer is RouteAccess.DENIED and route.door is AuthLevel.SESSION:
        raise NotPermitted("this requires a login session; a token is not enough")
    if answer is RouteAccess.DENIED and route.needs & caller.permissions:
        raise NotPermitted(
            f"{caller.user.id} reads its own tasks and queues, and this shows those of everyone; use an account with"
            " the role viewer, or let an admin change what it reads"
        )
    if answer is RouteAccess.DENIED:
        wanted = " or ".join(sorted(route.needs))
        if caller.token is not None and route.needs & caller.user.permissions:
            raise NotPermitted(f"this token of {caller.user.id} does not have the scope {wanted}; use one that does")
        raise NotPermitted(f"{caller.user.id} does not have the permission {wanted}; an admin can give a role")
    return answer
