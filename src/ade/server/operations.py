"""What every operation receives, and how it declares its request and its response.

An operation is an async function in the `api` module of its feature, declared by the decorator `operation`
(`ade.server.registry`):

    @operation("POST /tasks/{task_id}/cancel", permission=Permission.ENQUEUE, others=Permission.OPERATE)
    async def cancel_task(services: Services, request: RequestContext, task_id: str, body: CancelTask) -> Task:

After the services and the request context come the path parameters, as strings, in their order. Then come `query`, a
Struct of the query string, and `body`, a Struct of the request body, if the route has them. Both reject unknown fields,
and times in them are datetimes. The response is a record in the form of `ade.server.wire_format`, a Page of records, a
VersionedRecord, Content, or None for 204. The ETag of a route is the field `version` of the record. An operation
raises an AdeError (or RequestRefused) before it changes anything.

The declaration decides who can call an operation. `request.access is RouteAccess.OWN` limits the caller to their own
objects: `check_own` reports any other object as not found.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, field, structs

from ade.accounts.model import InvalidAccount, Permission, UnknownAccount, normal_id
from ade.errors import AdeError, NotPermitted
from ade.events.filters import EventFilter
from ade.server.pagination import Page
from ade.server.routing import RouteAccess
from ade.stores.ports import Stores
from ade.tasks.model import Definition, Task

if TYPE_CHECKING:  # commands that look at one task load none of these
    from ade.accounts.model import Caller
    from ade.approvals.rulebook import Rulebook
    from ade.events.audit_copy import AuditLocation
    from ade.events.feed import EventFeed
    from ade.events.metrics import Metrics
    from ade.locks.client import StoreLockClient
    from ade.server.pagination import Position
    from ade.settings import Settings
    from ade.settings.runtime import RuntimeSettings
    from ade.settings.sections import TaskSettings
    from ade.tasks.enqueue import TaskPlan
    from ade.tasks.payloads import Payloads
    from ade.tasks.service import CompletionWatcher


_LATER_S = 10


class Services(Struct, frozen=True, kw_only=True):
    """Where operations are carried out: the store, and what goes with it on this event loop."""

    stores: Stores
    payloads: "Payloads"
    settings: "Settings"
    defaults: "TaskSettings"
    keep: Callable[[Sequence[Task]], Awaitable[list[Task]]]  # store admitted tasks, as the guard says
    rules: "Callable[[], Awaitable[tuple[Rulebook, RuntimeSettings]]]"  # those in force
    names: Callable[[Collection[str]], Awaitable[Mapping[str, Definition]]]  # what workers have told of them
    watch: "Callable[[], CompletionWatcher]"  # who waits for the end of tasks
    locks: "Callable[[], StoreLockClient]"
    audit: "AuditLocation | None" = None  # None: what is in memory leaves nothing to audit
    feed: "EventFeed | None" = None  # of a server: live events for many
    metrics: "Metrics | None" = None  # of a server
    busy: set[str] = field(default_factory=set)  # what is done once at a time
    plans: "dict[tuple[str, str | None], tuple[Definition, TaskPlan]]" = field(
        default_factory=dict
    )  # by name and author

    @contextmanager
    def exclusively(self, what: str) -> Iterator[None]:
        """Do one at a time what scans the whole store: many at once would block everything else.

        Raises RequestRefused (503) while the same is under way.
        """
        if what in self.busy:
            from ade.server.problems import HttpFault, RequestRefused

            raise RequestRefused(
                HttpFault.UNAVAILABLE, f"{what} is under way already; ask again later", retry_after=_LATER_S
            )
        self.busy.add(what)
        try:
            yield
        finally:
            self.busy.discard(what)


class RequestContext(Struct, frozen=True, kw_only=True):
    """Who asks, and how."""

    actor: str  # for the event log: the id of the account, or `cli:name` on a local store
    author: str | None = None  # in whose name new tasks and votes are: the id of the account
    caller: "Caller | None" = None  # None: on a local store whoever can open the file may do all
    access: RouteAccess = RouteAccess.ALLOWED
    key: str | None = None  # the Idempotency-Key, made the account's own: tasks take it for theirs
    if_match: str | None = None
    if_none_match: str | None = None
    tag_required: bool = False  # 428 without If-Match
    wait_s: float = 0.0  # from ?wait= or Prefer
    address: str = ""  # of the client
    user_agent: str = ""
    accept: str = ""  # the media types that are liked
    trace: str | None = None  # where the request stands in a trace (W3C traceparent), for the tasks that it makes
    operation: str = ""  # which one, and at which address: for the log
    path: str = ""

    def require(self, permission: "Permission") -> None:
        """Raise NotPermitted unless the caller has it; for what the route cannot express."""
        if self.caller is not None:
            self.caller.require(permission)

    def check_version(self, current: int | None) -> None:
        """Raise 412 or 428 unless this version is the one that is meant (If-Match, If-None-Match)."""
        if self.if_match is not None or self.if_none_match is not None or self.tag_required:
            from ade.server.etags import check_write

            check_write(
                current, if_match=self.if_match, if_none_match=self.if_none_match, is_required=self.tag_required
            )

    def expected_version(self, current: int) -> int | None:
        """The version that a write must find; None: any, as with `If-Match: *`. Raises 412 and 428."""
        self.check_version(current)
        return None if self.if_match is None or self.if_match.strip() == "*" else current


# Pages of lists: cursors that tell when they are used with another filter.
#
# A list that fits one page has none of them, so they are loaded when they are needed.


T = TypeVar("T")
# A page may be larger or smaller than the one before, and the last two hours are others when it is asked for.
_APART = ("cursor", "limit", "created_from", "created_before")


def filters_of(query: Struct) -> dict[str, Any]:
    """What the query says beside where to go on."""
    from ade.server.wire_format import to_wire

    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return {name: value for name, value in said.items() if name not in _APART}


def position(of_list: str, query: Struct) -> "Position | None":
    """Where to go on; None at the beginning. Raises RequestRefused (400)."""
    cursor: str | None = query.cursor  # type: ignore[attr-defined] # every query of a list has one
    if cursor is None:
        return None
    from ade.server.pagination import read_cursor

    return read_cursor(of_list, filters_of(query), cursor)


def page(of_list: str, query: Struct, items: Sequence[T], following: "Position | None") -> Page[T]:
    """`following` is where the next page begins, as the store knows it; None at the end."""
    if following is None:
        return Page(items=items)
    from ade.server.pagination import write_cursor

    return Page(items=items, next=write_cursor(of_list, filters_of(query), following))


def cut(of_list: str, query: Struct, items: Sequence[T]) -> Page[T]:
    """A page of a list that is known as a whole; positions are numbers."""
    begin = position(of_list, query) or 0
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    end = begin + query.limit  # type: ignore[attr-defined] # every query of a list has one
    return page(of_list, query, items[begin:end], end if end < len(items) else None)


# On behalf of which account an operation is carried out.


def acting(request: RequestContext) -> str:
    """The id of the account. On a local store it may be one that does not exist. Raises InvalidAccount."""
    return normal_id(request.author or request.actor) if request.caller is None else request.caller.user.id


def voter(request: RequestContext) -> str:
    """Who answers. The table of routes keeps programs away; this does it again, whichever way somebody came here.

    Raises NotPermitted.
    """
    if request.caller is not None and not request.caller.user.is_human:
        raise NotPermitted(f"{request.caller.user.id} is a program, and programs never answer")
    request.require(Permission.VOTE)
    return acting(request)


def account_id(text: str) -> str:
    """The account that an address names. What can be no name is nobody's. Raises UnknownAccount."""
    try:
        return normal_id(text)
    except InvalidAccount:
        raise UnknownAccount(f"no account {text[:100]!r} exists", advice=UnknownAccount.usual_advice) from None


def sign_in_method(request: RequestContext) -> str:
    """How an answer was given, for the record."""
    return "cli" if request.caller is None else "api"


def visible_filter(caller: "Caller | None", wanted: EventFilter) -> EventFilter:
    """What this caller sees of it."""
    return wanted if can_read_access_events(caller) else structs.replace(wanted, hides_access=True)


def can_read_access_events(caller: "Caller | None") -> bool:
    """Whether events of sessions, tokens and links are for him, as they are for who operates."""
    return caller is None or Permission.OPERATE in caller.permissions


# What is somebody's own. What is not is answered as if it did not exist, so that ids tell nothing.


async def check_own(services: Services, request: RequestContext, author: str | None, unknown: AdeError) -> None:
    """Raise `unknown` unless the author is the caller, or a program that the caller owns."""
    if request.caller is not None:
        from ade.accounts.authentication import require_own  # with all accounts, which commands on a file do not need

        await require_own(
            services.stores,
            request.caller,
            author,
            unknown,
            operation=request.operation,
            about=request.path or unknown.detail,
        )


def account_of(request: RequestContext) -> str:
    """Whose workers and runs they are. On a local store whoever asks is the account."""
    return (request.author or request.actor).replace(":", "-") if request.caller is None else request.caller.user.id
