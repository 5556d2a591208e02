"""What a route of the HTTP API is: its address, who may use it, and how requests to it are treated.

Routes are declared by the decorator `operation` (`ade.server.registry`); the generated client has the part of them
that it needs, as `ClientRoute`. Who may use one is decided in `ade.server.access`.
"""

import re
from enum import StrEnum, auto

from msgspec import Struct

from ade.accounts.model import Permission

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
