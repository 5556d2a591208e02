"""Who may use a route.

The HTTP layer calls `check_access` before every operation; the access matrix test goes through the table of routes with
`access`. `OWN` means that the operation decides by the object: for one that belongs to others the response is the 404
of one that does not exist, unless the caller has the permission in `others`.
"""

from enum import StrEnum, auto

from ade.accounts.model import Caller, NotAuthenticated, Permission, Role, permissions_of
from ade.errors import NotPermitted
from ade.server.routing import AuthLevel, Route

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
