"""The definition of a route (path, permissions, request handling) and the access check for a caller.

Routes are declared with the decorator `operation` (`ade.server.registry`). The generated client contains the part of
them that it needs, as `ClientRoute`.
"""

import re
from enum import StrEnum, auto

from msgspec import Struct

from ade.accounts.model import Caller, NotAuthenticated, Permission, Role, permissions_of
from ade.errors import NotPermitted

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


def access_with(route: Route, permissions: frozenset[Permission] | None, *, has_session: bool = False) -> RouteAccess:
    """Return the access with these permissions. None means an unauthenticated caller."""
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
    """Return the access of an account with only this role, for the access matrix test. None: unauthenticated."""
    if role is None:
        return access_with(route, None)
    is_human = role not in PROGRAMS
    return access_with(route, permissions_of([role], is_human=is_human), has_session=is_human)


def check_access(route: Route, caller: Caller | None) -> RouteAccess:
    """Return ALLOWED or OWN; the HTTP layer calls it first. Raises NotAuthenticated and NotPermitted."""
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
