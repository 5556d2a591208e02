"""What a route of the HTTP API is: its address, who may use it, and how requests to it are treated.

Routes are declared by the decorator `operation` (`ade.server.registry`); the generated client has the part of them
that it needs, as `ClientRoute`. Who may use one is decided in `ade.server.routing`.
"""

import re
from enum import StrEnum, auto

from msgspec import Struct

from ade.accounts.model import Caller, NotAuthenticated, Permission, Role, permissions_of
from ade.errors import NotPermitted

API = "/api/v1"
_PARAMETER = re.compile(r"\{(\w+)\}")
WIDE = frozenset({"agent_id", "inbox_id"})  # parameters whose values may contain a slash


class TrafficClass(StrEnum):
    """Classes of routes that are rate-limited separately. Those of `Asking` share their limit with other interfaces."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    READ = auto()
    WRITE = auto()
    VOTE = auto()
    LOGIN = auto()
    WORK = auto()  # claims and heartbeats: many, and small
    LOCK = auto()  # lock requests
    STREAM = auto()  # opening one; what comes through it is not counted
    PROBE = auto()  # never counted: it must be answered when everything else is refused


class AuthLevel(StrEnum):
    """What a caller must show before permissions are checked."""

    __hash__ = str.__hash__

    PUBLIC = auto()  # nothing
    SELF = auto()  # any known account; the route is about the caller alone
    SESSION = auto()  # the same with a login session: a stolen token is not enough
    PERMISSION = auto()  # one of the permissions in `needs`


class ETagUse(StrEnum):
    """What a route does with ETag and If-Match."""

    __hash__ = str.__hash__

    NONE = auto()
    ANSWERED = auto()  # the response has an ETag, a read may be answered with 304
    HEEDED = auto()  # If-Match counts if it is there
    REQUIRED = auto()  # 428 without If-Match


class ClientRoute(Struct, frozen=True):
    """What a client must know to call an operation, over HTTP or in its own process."""

    module: str  # where the function of the operation is defined
    method: str
    path: str
    mutates: bool = False
    takes_key: bool = False  # heeds Idempotency-Key
    tag: ETagUse = ETagUse.NONE
    is_download: bool = False  # the response is a file, to be read as it arrives

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))


class Route(ClientRoute, frozen=True, kw_only=True):
    """A route as an operation declares it."""

    operation: str  # the operationId, and the name of the function
    summary: str
    door: AuthLevel = AuthLevel.PERMISSION
    needs: frozenset[Permission] = frozenset()  # one of these is enough
    others: Permission | None = None  # the permission to do it to what belongs to others
    traffic: TrafficClass = TrafficClass.READ
    is_stream: bool = False  # may answer with server-sent events
    waits: bool = False  # heeds `Prefer: wait`
    media_types: tuple[str, ...] = ("application/json",)  # of a response that is not a record
    problems: tuple[int, ...] = ()  # statuses it may answer with beyond those that follow from the rest
    has_method: bool = True  # of the client; pages for browsers have none

    @property
    def shape(self) -> str:
        """The path without the names of its parameters: two routes of one shape and method would be the same."""
        return _PARAMETER.sub("{}", self.path)


# Who may use a route.
#
# The HTTP layer calls `check_access` before every operation; the access matrix test goes through the table of routes
# with `access`. `OWN` means that the operation decides by the object: for one that belongs to others the response is
# the 404 of one that does not exist, unless the caller has the permission in `others`.


# What somebody may do with a route.


class RouteAccess(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    ALLOWED = auto()
    OWN = auto()  # on what is the caller's own
    DENIED = auto()  # 403
    UNKNOWN = auto()  # 401


PROGRAMS = frozenset({Role.AGENT, Role.WORKER})  # roles of programs; the others are of people


def access_with(route: Route, permissions: frozenset[Permission] | None, *, has_session: bool = False) -> RouteAccess:
    """The access with these permissions; None: the caller is not known."""
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
    """For the matrix: what an account with this role alone may do; None: the caller is not known."""
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
