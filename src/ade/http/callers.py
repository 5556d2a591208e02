"""Who asks: from the bytes of a request to somebody who is known, and may do this."""

from msgspec import Struct

from ade.core.accounts.callers import Caller
from ade.core.web.access import Access
from ade.core.web.addresses import client_address, client_scheme, counted_address
from ade.core.web.cookies import cookie_name
from ade.core.web.credentials import Credentials, check_query, read_credentials
from ade.core.web.origins import (
    SAFE_METHODS,
    check_host,
    check_same_origin_read,
    check_same_origin_write,
    origin_of,
)
from ade.core.web.rates import Traffic
from ade.core.web.routing import Door, Route, check_access
from ade.http.messages import Request
from ade.http.service import Service


class Visitor(Struct, frozen=True):
    """Somebody at the door, known or not."""

    caller: Caller | None
    access: Access
    credentials: Credentials
    address: str
    cookie: str  # the name of the session cookie for this way to reach us

    @property
    def counted_as(self) -> str:
        """No account has a space in its name."""
        return f"address {counted_address(self.address)}" if self.caller is None else self.caller.user.id


async def visitor(service: Service, request: Request, route: Route) -> Visitor:
    """Raises RequestRefused, NotAuthenticated and NotPermitted."""
    check_query([("", request.path), *request.pairs])
    host = request.named.get("host")
    if route.traffic is not Traffic.PROBE:  # which tells nothing, and is asked for by whatever address there is
        check_host(host, service.hosts)
    address = client_address(request.peer, request.headers, service.trusted)
    scheme = client_scheme(request.peer, request.headers, request.scheme, service.trusted)
    shown = request.headers if "cookie" in request.named else _bearer_alone(request)
    credentials = read_credentials(shown, scheme=scheme, host=host, address=address)
    caller = await _caller(service, route, credentials)
    request.account = None if caller is None else caller.user.id
    if not credentials.token:  # also for what is none, as a browser sends it to a proxy that asks for a password
        _check_origin(request, route, credentials, origin_of(scheme, host))
    return Visitor(caller, check_access(route, caller), credentials, address, cookie_name(scheme, host))


def _bearer_alone(request: Request) -> list[tuple[str, str]]:
    sent = request.named.get("authorization")
    return [] if sent is None else [("authorization", sent)]


async def _caller(service: Service, route: Route, credentials: Credentials) -> Caller | None:
    if route.door is Door.PUBLIC:
        return None  # it makes no difference, so nobody is looked up
    if credentials.token is None and credentials.session is None:
        return service.local
    return await service.recognise(credentials)


def _check_origin(request: Request, route: Route, credentials: Credentials, own: str) -> None:
    """No page of another site acts through a browser that is signed in, signs it in, or uses an open door. None can
    make one send a token."""
    origin, fetch_site = request.named.get("origin"), request.named.get("sec-fetch-site")
    is_write = route.mutates or request.method not in SAFE_METHODS
    if credentials.session is not None and is_write and route.door is not Door.PUBLIC:
        check_same_origin_write({own}, origin=origin, fetch_site=fetch_site)
    elif route.mutates or route.door is not Door.PUBLIC:  # probes may be looked at from anywhere
        check_same_origin_read({own}, origin=origin, fetch_site=fetch_site)
