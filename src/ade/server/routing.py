"""What a route is, and who may use it.

How it is used: the HTTP layer goes through `ade.server.routes.ROUTES`, finds the function with the name of each
operation, and puts `check_access` before it; a route without a function, or a function without a route, stops the
start. The access matrix test goes through the same table with `access`. `OWN` means: the use case decides by the
object, and for a foreign one the answer is the 404 of one that does not exist, unless the caller has the permission of
`others`.
"""

import re
from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from ade.accounts.model import Caller, NotAuthenticated, Permission, Role, permissions_of
from ade.errors import NotPermitted
from ade.server.rate_limits import TrafficClass
from ade.server.wire_format import to_wire

# What somebody may do with a route.


class RouteAccess(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    ALLOWED = auto()
    OWN = auto()  # on what is the caller's own
    DENIED = auto()  # 403
    UNKNOWN = auto()  # 401


API = "/api/v1"
PROGRAMS = frozenset({Role.AGENT, Role.WORKER})  # roles of programs; the others are of people
_PARAMETER = re.compile(r"\{(\w+)\}")
WIDE = frozenset({"agent_id", "inbox_id"})  # parameters whose values may have a slash in them


class AuthLevel(StrEnum):
    """Who gets as far as the permissions."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    PUBLIC = auto()  # anybody
    SELF = auto()  # anybody who is known; it is about himself alone
    SESSION = auto()  # the same, but signed in: a token that got into wrong hands is not enough
    PERMISSION = auto()  # who has one of `needs`


class ETagUse(StrEnum):
    """What a route does with ETag and If-Match."""

    __hash__ = str.__hash__

    NONE = auto()
    ANSWERED = auto()  # the answer has an ETag, a read may be answered with 304
    HEEDED = auto()  # If-Match counts if it is there
    REQUIRED = auto()  # 428 without If-Match


class Route(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    operation: str  # the operationId, and the name of the function
    summary: str
    door: AuthLevel = AuthLevel.PERMISSION
    needs: frozenset[Permission] = frozenset()  # one of these is enough
    others: Permission | None = None  # what it takes to do it to what is somebody else's
    traffic: TrafficClass = TrafficClass.READ
    mutates: bool = False
    takes_key: bool = False  # heeds Idempotency-Key
    tag: ETagUse = ETagUse.NONE
    is_stream: bool = False  # may answer with server-sent events

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))

    @property
    def shape(self) -> str:
        """The path without the names of its parameters: two routes of one shape and method would be one."""
        return _PARAMETER.sub("{}", self.path)


def read(path: str, operation: str, summary: str, needs: Permission | None = Permission.READ, **more: object) -> Route:
    """A route that changes nothing."""
    given: dict[str, object] = {"method": "GET", "needs": frozenset() if needs is None else frozenset({needs}), **more}
    return Route(path=API + path, operation=operation, summary=summary, **given)  # type: ignore[arg-type]


def change(line: str, operation: str, summary: str, *needs: Permission, **more: object) -> Route:
    """A route that changes something; `line` is `METHOD /path`. All but PUT and DELETE, which are safe to repeat by
    themselves, take a key."""
    method, _, path = line.partition(" ")
    given: dict[str, object] = {
        "needs": frozenset(needs),
        "traffic": TrafficClass.WRITE,
        "takes_key": method in ("POST", "PATCH"),
        "mutates": True,
        **more,
    }
    return Route(method=method, path=API + path, operation=operation, summary=summary, **given)  # type: ignore[arg-type]


def access_with(route: Route, permissions: frozenset[Permission] | None, *, has_session: bool = False) -> RouteAccess:
    """With these permissions; None: nobody knows who asks."""
    if route.door is AuthLevel.PUBLIC:
        return RouteAccess.ALLOWED
    if permissions is None:
        return RouteAccess.UNKNOWN
    if route.door is not AuthLevel.PERMISSION:
        return RouteAccess.OWN if has_session or route.door is AuthLevel.SELF else RouteAccess.DENIED
    if not route.needs & permissions:
        return RouteAccess.DENIED
    return RouteAccess.ALLOWED if route.others is None or route.others in permissions else RouteAccess.OWN


def access(route: Route, role: Role | None) -> RouteAccess:
    """For the matrix: what an account with this role alone may do; None: nobody knows who asks."""
    if role is None:
        return access_with(route, None)
    is_human = role not in PROGRAMS
    return access_with(route, permissions_of([role], is_human=is_human), has_session=is_human)


def check_access(route: Route, caller: Caller | None) -> RouteAccess:
    """ALLOWED or OWN. Raises NotAuthenticated and NotPermitted."""
    if caller is None:
        if route.door is AuthLevel.PUBLIC:
            return RouteAccess.ALLOWED
        raise NotAuthenticated(
            "this takes a session or a token: sign in, or send one as Authorization: Bearer",
            advice="`ade tokens create` makes one, and commands read ADE_TOKEN",
        )
    answer = access_with(route, caller.permissions, has_session=caller.session is not None)
    if answer is RouteAccess.DENIED and route.door is AuthLevel.SESSION:
        raise NotPermitted("this takes a login session; a token is not enough")
    if answer is RouteAccess.DENIED:
        wanted = " or ".join(sorted(route.needs))
        if caller.token is not None and route.needs & caller.user.permissions:
            raise NotPermitted(f"this token of {caller.user.id} was not made for {wanted}; use one that was")
        raise NotPermitted(f"{caller.user.id} has not the permission {wanted}; an admin can give a role")
    return answer


# What a client asks for, as it stands in the first line of a request: the path with its values, and the query.


def target_of(route: Route, values: Sequence[str] = (), query: Struct | None = None) -> str:
    """Every value is one part of the path, whatever is in it."""
    path = route.path
    for name, value in zip(route.parameters, values, strict=True):
        path = path.replace(f"{{{name}}}", quote(value, safe=""), 1)
    pairs = () if query is None else query_pairs(query)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def query_pairs(query: Struct) -> list[tuple[str, str]]:
    """A form as parameters: lists as one for each item, nothing for what is absent."""
    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return [(name, _text(each)) for name, value in said.items() for each in _items(value)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
